"""The flights pipeline's transformation and statistics in Spark, against pandas."""

import pytest

SAMPLE = 20_000


@pytest.fixture(scope="module")
def tables():
    from flights.delays.tables import read_tables

    return read_tables()


@pytest.fixture(scope="module")
def flights():
    from flights.delays.tables import read_flights

    return read_flights()[:SAMPLE]


@pytest.fixture(scope="module")
def enriched(spark, flights, tables):
    import pyarrow as pa

    from flights.delays.enrich import Lookups, enrich
    from flights.delays.tables import FLIGHTS_SCHEMA

    rows = pa.Table.from_pandas(flights, schema=FLIGHTS_SCHEMA, preserve_index=False)
    return enrich(spark.createDataFrame(rows), Lookups.load(spark, tables)).cache()


def test_no_flight_is_lost_or_doubled(enriched):
    from flights.delays.tables import FLIGHT_KEY

    assert enriched.count() == SAMPLE
    assert enriched.select(*FLIGHT_KEY).distinct().count() == SAMPLE


def test_columns_are_those_of_the_joined_tables_and_null_where_nothing_is_known(
    enriched, flights, tables
):
    known = flights["tailnum"].isin(tables.planes["tailnum"])
    assert enriched.where("manufacturer is not null").count() == known.sum()
    places = flights.merge(tables.weather, on=["origin", "time_hour"])
    assert enriched.where("visibility is not null").count() == len(places)
    assert enriched.where("carrier_name is null").count() == 0
    ages = enriched.where("plane_age is not null").selectExpr("plane_built + plane_age as year")
    assert [row.year for row in ages.distinct().collect()] == [2013]


def test_statistics_equal_those_of_pandas(enriched, flights, tables):
    from flights.delays import truth
    from flights.delays.groupings import GROUPINGS
    from flights.delays.statistics import needed_columns, summarise

    true = truth.compute_directly(flights, tables)
    rows = enriched.select(*needed_columns())
    for name, keys in GROUPINGS.items():
        found = summarise(rows, keys).toPandas()
        assert truth.differences(found, true[name], keys) == []
        assert found["flights"].sum() == SAMPLE
