"""A table as a source: SQLite here, by way of SQLAlchemy like any other."""

from __future__ import annotations

import datetime as dt
import pickle
from decimal import Decimal

import pyarrow as pa
import pytest
import sqlalchemy as sa

from coordinator.sources import NothingFound, open_source, partitions_of

KEYS = [n * 3 for n in range(1, 4_001)]  # With gaps, and more than one batch.


@pytest.fixture(scope="module")
def url(tmp_path_factory) -> str:
    url = f"sqlite:///{tmp_path_factory.mktemp('sql') / 'rows.db'}"
    engine = sa.create_engine(url)
    table = sa.Table(
        "flights",
        sa.MetaData(),
        sa.Column("id", sa.BigInteger, primary_key=True),
        sa.Column("day", sa.Date),
        sa.Column("at", sa.DateTime),
        sa.Column("fare", sa.Numeric(8, 2)),
        sa.Column("late", sa.Boolean),
        sa.Column("extra", sa.JSON),
        sa.Column("airport", sa.Integer),
    )
    table.create(engine)
    with engine.begin() as connection:
        rows = [
            {
                "id": key,
                "day": dt.date(2013, 1, 1),
                "at": dt.datetime(2013, 1, 1, 5, key % 60),  # noqa: DTZ001  # As the table has it.
                "fare": Decimal("12.50"),
                "late": key % 2 == 0,
                "extra": {"key": key},
                "airport": key % 4,
            }
            for key in KEYS
        ]
        connection.execute(table.insert(), rows)
    engine.dispose()
    return url


def keys(source, partition: int, begin: int, end: int) -> list[int]:
    return [n for batch in source.read(partition, begin, end) for n in batch["id"].to_pylist()]


def test_the_key_is_the_offset_and_missing_keys_are_gaps(url):
    source = pickle.loads(pickle.dumps(open_source(f"sql:{url}#table=flights")))
    assert source.partitions() == [0]
    assert (source.begin_offset(0), source.end_offset(0)) == (0, 12_001)
    assert keys(source, 0, 0, 12_001) == KEYS
    assert keys(source, 0, 4, 12) == [6, 9]
    (batch,) = source.read(0, 0, 4)
    assert batch.to_pylist() == [
        {
            "id": 3,
            "day": dt.date(2013, 1, 1),
            "at": dt.datetime(2013, 1, 1, 5, 3),  # noqa: DTZ001
            "fare": Decimal("12.50"),
            "late": False,
            "extra": '{"key": 3}',
            "airport": 3,
        }
    ]


@pytest.mark.parametrize("settings", ["partition_by=airport", "spread=4"])
def test_partitions_are_a_column_or_remainders_and_hold_every_row_once(url, settings):
    source = open_source(f"sql:{url}#table=flights&{settings}")
    assert source.partitions() == [0, 1, 2, 3]
    found = [keys(source, p, 0, source.end_offset(p)) for p in source.partitions()]
    assert all(key % 4 == p for p, some in enumerate(found) for key in some)
    assert sorted(key for some in found for key in some) == KEYS
    assert [source.end_offset(p) for p in source.partitions()] == [some[-1] + 1 for some in found]


def test_a_table_without_rows_ends_where_it_begins(url):
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text("create table if not exists empty (id integer, p integer)"))
    engine.dispose()
    assert open_source(f"sql:{url}#table=empty").end_offset(0) == 0
    assert open_source(f"sql:{url}#table=empty&partition_by=p").partitions() == []


def test_an_empty_table_is_no_mistake_unless_partitions_are_told_by_its_rows(url):
    test_a_table_without_rows_ends_where_it_begins(url)
    assert partitions_of(open_source(f"sql:{url}#table=empty&spread=3")) == [0, 1, 2]
    told_by_rows = open_source(f"sql:{url}#table=empty&partition_by=p")
    with pytest.raises(NothingFound, match="no row to tell partitions by"):
        partitions_of(told_by_rows)
    assert partitions_of(told_by_rows, allow_empty=True) == []


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("table=flihgts", "there is no table flihgts at sqlite://"),
        ("table=flights&key=idd", "has no column idd, which key names; it has id, day"),
        ("table=flights&partition_by=gate", "has no column gate, which partition_by names"),
    ],
)
def test_a_table_or_column_that_is_not_there_is_refused_by_name(url, settings, words):
    source = open_source(f"sql:{url}#{settings}")
    with pytest.raises(LookupError, match=words):
        _ = source.partitions(), source.end_offset(0)


def test_columns_are_chosen_by_the_schema_given(url):
    source = open_source(f"sql:{url}#table=flights").with_schema(pa.schema([("id", pa.int32())]))
    assert [batch.schema.names for batch in source.read(0, 0, 4)] == [["id"]]
