"""Reads as `spark.read.parquet` makes them: every row and column, chosen, filtered and split."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from functools import reduce

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.kit.patience import HANG_S
from tests.kit.serving import Process

pytestmark = pytest.mark.calm

ROWS = 1_000
PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"
FILTERS = (
    "n > 700",
    "n = 5 and maybe is null",
    "maybe = 6",
    "maybe is not null and maybe <= 30",
    "x > 300",
    "x >= cast('NaN' as double)",
    "x = 0.0",
    "not (x < 5)",
    "price between 1.50 and 2.25",
    "price in (0.01, 7.77)",
    "name = 'é7'",
    "name like 'é1%'",
    "name >= 'é49'",
    "at > timestamp'2026-01-01 00:10:00'",
    "day in (date'2026-01-05', date'2026-01-06')",
    "late is null",
    "late = 3",
    "flag",
    "not flag",
    "part = 1",
    "part is null",
    "n % 2 = 0 and n < 10",
)


@pytest.fixture(scope="module")
def server():
    with Process() as process:
        yield process


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Folders that Spark takes for values of `part`; the first file lacks the column `late`."""
    folder = tmp_path_factory.mktemp("rows")
    for number, part in enumerate(("1", "2", "__HIVE_DEFAULT_PARTITION__")):
        some = range(number * ROWS, (number + 1) * ROWS)
        columns = {
            "n": some,
            "maybe": [None if n % 3 else n for n in some],
            "x": [float("nan") if n % 7 == 0 else n / 3 - 5 for n in some],
            "price": pa.array([Decimal(n) / 100 for n in some], pa.decimal128(10, 2)),
            "name": [f"é{n % 50}" for n in some],
            "at": pa.array(
                [dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=n) for n in some],
                pa.timestamp("us", "UTC"),
            ),
            "day": [dt.date(2026, 1, 1 + n % 28) for n in some],
            "flag": [None if n % 5 == 0 else n % 2 == 0 for n in some],
        }
        if number:
            columns["late"] = [n % 4 for n in some]
        (folder / f"part={part}").mkdir()
        pq.write_table(pa.table(columns), folder / f"part={part}/a.parquet", row_group_size=300)
    return folder


@pytest.fixture
def ours(spark, server, folder):
    """Options of a reader of the folder, and more."""

    def options(**more):
        return {
            "coordinator": server.address,
            "group": "g",
            "source": f"parquet:{folder}",
            "filePartitions": "2",
            "topic": "t",
            **more,
        }

    return lambda **more: spark.read.format("consumer_group").options(**options(**more)).load()


def theirs(spark, folder):
    return spark.read.option("mergeSchema", "true").parquet(str(folder))


def rows_of(frame) -> list[str]:
    return sorted(map(str, frame.collect()))


def test_every_row_and_column_is_sparks_own(spark, ours, folder):
    expected = theirs(spark, folder)
    assert rows_of(ours().select(expected.columns)) == rows_of(expected)


def kept(frame) -> dict[str, list[str]]:
    """Rows that each filter leaves, found in one job."""
    from pyspark.sql.functions import lit

    parts = [frame.where(each).select(lit(each).alias("by"), "n", "late") for each in FILTERS]
    found: dict[str, list[str]] = {each: [] for each in FILTERS}
    for row in reduce(lambda one, other: one.union(other), parts).collect():
        found[row.by].append(f"{row.n} {row.late}")
    return {each: sorted(rows) for each, rows in found.items()}


def test_filters_leave_the_rows_that_spark_leaves(spark, ours, folder):
    # Several scans of one frame, which must not take over each other's filters. Statistics of files
    # that Arrow has written leave NaN out: with them Spark's own reader loses rows.
    spark.conf.set("spark.sql.parquet.filterPushdown", "false")
    spark.conf.set(PUSH_DOWN, "true")
    try:
        assert kept(ours()) == kept(theirs(spark, folder))
    finally:
        spark.conf.unset("spark.sql.parquet.filterPushdown")
        spark.conf.unset(PUSH_DOWN)
    assert ours(columns="n").where("n = 5").count() == 1


def test_the_option_filters_leaves_rows_out_of_streams(spark, server, folder, tmp_path):
    options = {
        "coordinator": server.address,
        "group": "filtered",
        "source": f"parquet:{folder}",
        "filePartitions": "2",
        "topic": "t",
        "columns": "n,day",
        "filters": '[["n", "<", 100], ["day", "=", "2026-01-05"]]',
    }
    found: list[int] = []
    query = (
        spark.readStream.format("consumer_group")
        .options(**options)
        .load()
        .writeStream.foreachBatch(lambda rows, _: found.extend(row.n for row in rows.collect()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(HANG_S)
    assert sorted(found) == [4, 32, 60, 88]


def test_columns_are_chosen_by_name_and_in_their_order(spark, ours, folder):
    chosen = ours(columns="late,n,part")
    assert chosen.columns == ["late", "n", "part"]
    assert rows_of(chosen) == rows_of(theirs(spark, folder).select("late", "n", "part"))


def test_rows_are_split_among_so_many_tasks(spark, ours, folder):
    split = ours(minPartitions="7", columns="n")
    assert split.rdd.getNumPartitions() >= 7
    assert sorted(row.n for row in split.collect()) == list(range(3 * ROWS))
    assert ours(columns="n").rdd.getNumPartitions() == 2


def test_a_query_that_is_split_among_tasks_writes_each_row_once(spark, server, folder, tmp_path):
    from coordinator.spark.exactly_once import ExactlyOnceSink, read_exactly_once

    checkpoint, results = str(tmp_path / "checkpoint"), str(tmp_path / "results")
    sink = ExactlyOnceSink(results, checkpoint, server.address, "split", "t")
    tasks = []

    def write(rows, batch_id):
        tasks.append(rows.rdd.getNumPartitions())
        sink(rows, batch_id)

    options = {
        "coordinator": server.address,
        "group": "split",
        "source": f"parquet:{folder}",
        "filePartitions": "2",
        "topic": "t",
        "maxRowsPerBatch": "1100",
        "minPartitions": "5",
        "columns": "n",
    }
    reader = spark.readStream.format("consumer_group").options(**options).load()
    query = (
        reader.writeStream.foreachBatch(write)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(HANG_S)
    assert min(tasks) >= 5
    found = read_exactly_once(spark, results, server.address, "split").collect()
    assert sorted(row.n for row in found) == list(range(3 * ROWS))
