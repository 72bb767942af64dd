"""Tables read by Spark's own reader of JDBC: a real PostgreSQL, each row once, as Spark has it."""

from __future__ import annotations

from collections import Counter

import pytest
import sqlalchemy as sa

from coordinator.operator.admin import GroupAdmin
from coordinator.spark import reading, streaming
from coordinator.spark.exactly_once import ExactlyOnce, read_exactly_once
from coordinator.spark.refusals import BadOption
from coordinator.spark.sinks.parquet import ParquetSink
from tests.integration.spark.standalone import JDBC_JAR
from tests.integration.spark.test_files_stream import run_until_all_is_read, server
from tests.integration.waiting import wait_until

__all__ = ["server"]
ROWS, PARTITIONS = 3_000, 3
TYPES = """
    create table "Flights" (
        id bigint primary key, shard int, fare numeric(8, 2), at timestamptz, day date, "a b" text,
        raw bytea, late boolean, parts int[], label varchar(9)
    )
"""
FILL = """
    insert into "Flights"
    select n, n % 3, n / 7.0, to_timestamp(n), date '2026-11-29' + n, 'ü ' || n, '\\x00ff',
           n % 2 = 0, array[n, 1], case when n % 5 > 0 then 'x' end
    from generate_series({}, {}) n
"""


@pytest.fixture(scope="module")
def url(postgres):
    if not JDBC_JAR.exists():
        pytest.skip("no JDBC driver (Debian: libpostgresql-jdbc-java)")
    url = postgres.url("primary", cluster="").replace("postgresql:", "postgresql+psycopg:")
    execute(url, TYPES)
    execute(url, FILL.format(1, ROWS))
    return url


def execute(url: str, text: str) -> None:
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text(text))
    engine.dispose()


def given(server, url, by: str = "partition_by=shard", **more):
    source = f"sql:{url}#table=Flights&key=id&{by}"
    return {
        "coordinator": server.address, "group": "g", "source": source, "topic": "t", **more,
    }  # fmt: skip


USER = {"user": "postgres", "driver": "org.postgresql.Driver"}


def by_spark(spark, url):
    jdbc = "jdbc:postgresql://" + url.partition("@")[2]
    return spark.read.jdbc(jdbc, '"Flights"', properties=USER)


@pytest.mark.parametrize("by", ["partition_by=shard", "spread=2"])
def test_rows_and_types_are_those_that_spark_reads_and_a_commit_goes_on_behind(
    spark, server, url, by
):
    theirs = by_spark(spark, url)
    seen = []
    for upto in (ROWS // 2, ROWS):
        ends = dict.fromkeys(range(3 if "shard" in by else 2), upto + 1)
        with reading(spark, **given(server, url, by, endingOffsets={"t": ends})) as batch:
            assert batch.rows.schema == theirs.schema
            seen += map(str, batch.rows.collect())
    assert sorted(seen) == sorted(map(str, theirs.collect()))
    with reading(spark, **given(server, url, by)) as batch:
        assert batch.rows.count() == 0
        assert batch.rows.schema == theirs.schema


def test_a_stream_is_exactly_once_in_batches_of_keys(spark, server, url, tmp_path):
    checkpoint, sizes = tmp_path / "checkpoint", []
    options = given(server, url, maxRowsPerBatch=2_000)
    sink = ExactlyOnce(ParquetSink(str(tmp_path / "out")))

    def write(rows, batch_id):
        sizes.append(rows.count())
        sink(rows, batch_id)

    for _ in range(2):
        run_until_all_is_read(streaming(spark, **options), write, checkpoint)
    table = read_exactly_once(spark, str(tmp_path / "out"), server.address, "g")
    assert Counter(row.id for row in table.select("id").collect()) == Counter(range(1, ROWS + 1))
    assert max(sizes) <= 2_000
    with GroupAdmin(server.address) as admin:
        stored = {k.partition: v for k, v in admin.offsets("g").items() if k.topic == "t"}
    assert stored == {p: max(n for n in range(ROWS + 1) if n % 3 == p) + 1 for p in range(3)}


def test_a_running_stream_reads_what_is_inserted(spark, server, url, tmp_path):
    seen = Counter()
    stream = streaming(spark, **given(server, url, startingOffsets="latest"))
    writer = stream.foreach_batch(
        lambda rows, _: seen.update(row.id for row in rows.select("id").collect())
    )
    query = writer.option("checkpointLocation", f"{tmp_path}/c").start()
    wait_until(lambda: query.lastProgress is not None)
    try:
        execute(url, FILL.format(100_001, 100_030))
        wait_until(lambda: len(seen) == 30 or query.exception())
    finally:
        query.stop()
        execute(url, 'delete from "Flights" where id > 100000')
    assert seen == Counter(range(100_001, 100_031))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"read_options": {"partitionColumn": "id"}}, "the group says which rows count"),
        ({"read_options": {"url": "jdbc:nobody://127.0.0.1/x"}}, "has no driver of jdbc:nobody"),
        ({"schema": "id long"}, "a table has its own schema"),
    ],
)
def test_what_cannot_be_is_refused(spark, server, url, options, message):
    with pytest.raises(BadOption, match=message), reading(spark, **given(server, url), **options):
        raise AssertionError
