"""The flights pipeline's transformation in Spark, against pandas."""

import pytest

pytest.importorskip("pyspark", reason="Spark needs the extra `spark`")

import pyarrow as pa

from flights import dataset, judge
from flights.enrich import enrich, loaded

SAMPLE = 20_000


@pytest.mark.parametrize("version", [1, 2])
def test_rows_equal_those_of_pandas(spark, version):
    flights, tables = dataset.read()[:SAMPLE], dataset.read_tables()
    rows = pa.Table.from_pandas(flights, schema=dataset.SCHEMA, preserve_index=False)
    enriched = enrich(spark.createDataFrame(rows), loaded(spark, tables), version)
    assert ("made_up" in enriched.columns) == (version == 2)
    table = pa.Table.to_pandas(enriched.toArrow())
    table["time_hour"] = table["time_hour"].dt.tz_convert("UTC")
    if version == 1:
        table["made_up"] = None
    (text, holds), wrong = judge.check_rows(table, judge.enriched(flights, tables))
    assert (holds, wrong) == (True, []), text
