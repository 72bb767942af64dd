"""Streaming queries as members of a group, on a real Spark: exactly once, whoever dies."""

from __future__ import annotations

import os
import shutil
import signal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coordinator.cli import reset
from coordinator.operator.admin import GroupAdmin
from coordinator.sources import write_log
from coordinator.spark.exactly_once import ExactlyOnce
from coordinator.spark.sinks.parquet import ParquetSink
from tests.campaigns.faults.spark.processes import python_workers, send, source_processes
from tests.integration.spark.jobs import Job, committed
from tests.integration.waiting import wait_until
from tests.kit.patience import HANG_S
from tests.kit.serving import Process

PARTITIONS, ROWS = 4, 1_500
EVERYTHING = PARTITIONS * ROWS
ENDS = dict.fromkeys(range(PARTITIONS), ROWS)
BY_SPARK = pytest.mark.parametrize("by_spark", [True, False], ids=["by Spark", "in Python"])


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    folder = tmp_path_factory.mktemp("log")
    for number in range(PARTITIONS):
        rows = pa.table({"partition": [number] * ROWS, "n": range(ROWS)})
        pq.write_table(rows, folder / f"{number}.parquet", row_group_size=500)
    return f"parquet:{folder}"


@pytest.fixture
def server():
    with Process(
        "--group-min-session-timeout-ms", "1000", "--group-initial-rebalance-delay-ms", "500"
    ) as process:
        yield process


def generation_changes(server) -> int:
    return sum(line["event"] == "rebalance_completed" for line in server.lines)


@BY_SPARK
def test_all_that_is_there_is_read_once_and_then_nothing(spark, log, server, tmp_path, by_spark):
    static = {"instance": "job-1", "sessionTimeoutMs": "120000"}
    job = Job(spark, log, server, tmp_path, by_spark=by_spark, **static)
    query = job.start(availableNow=True)
    assert query.awaitTermination(2 * HANG_S)
    assert job.result() == (EVERYTHING, EVERYTHING)
    assert committed(server) == ENDS
    before = generation_changes(server)
    again = job.start(availableNow=True)
    assert again.awaitTermination(2 * HANG_S)
    assert job.result() == (EVERYTHING, EVERYTHING)
    assert generation_changes(server) == before, "its instance has kept its place"


def test_a_query_that_is_split_among_tasks_writes_each_row_once(spark, log, server, tmp_path):
    tasks = []

    class Counting(Job):
        def sink(self):
            sink = super().sink()

            def write(rows, batch_id):
                tasks.append(rows.rdd.getNumPartitions())
                sink(rows, batch_id)

            return write

    job = Counting(spark, log, server, tmp_path, minPartitions="7")
    assert job.start(availableNow=True).awaitTermination(2 * HANG_S)
    assert min(tasks) >= 7
    assert job.result() == (EVERYTHING, EVERYTHING)


def test_a_batch_read_is_refused_with_the_call_that_reads(spark, log, server, tmp_path):
    options = Job(spark, log, server, tmp_path).options
    with pytest.raises(Exception, match=r"coordinator\.spark\.reading"):
        spark.read.format("consumer_group").options(**options).load().count()


@BY_SPARK
def test_two_queries_share_the_group_and_one_that_dies_costs_no_row(
    spark, log, server, tmp_path, by_spark
):
    one, two = (
        Job(spark, log, server, tmp_path, name, by_spark=by_spark, maxRowsPerBatch="400")
        for name in ("one", "two")
    )
    before = set(source_processes(os.getpid()))
    first = one.start(processingTime="0 seconds")
    wait_until(lambda: sum(committed(server).values()) > 0)
    victims = set(source_processes(os.getpid())) - before
    second = two.start(processingTime="0 seconds")
    wait_until(lambda: sum(committed(server).values()) > EVERYTHING // 4)
    send(victims, signal.SIGKILL)
    wait_until(lambda: first.exception() is not None)  # Its source's process has crashed.
    shutil.rmtree(one.checkpoint)
    third = one.start(processingTime="0 seconds")
    wait_until(lambda: committed(server) == ENDS)
    for query in (second, third):
        query.stop()
    assert one.result() == (EVERYTHING, EVERYTHING)


def test_rows_of_another_source_are_refused_while_a_groups_query_runs(spark, log, server, tmp_path):
    job = Job(spark, log, server, tmp_path / "results")
    query = job.start(processingTime="1 second")
    wait_until(lambda: committed(server) == ENDS)
    rates = spark.readStream.format("rate").load()
    writer = rates.writeStream.foreachBatch(ExactlyOnce(ParquetSink(str(tmp_path / "rates"))))
    other = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    with pytest.raises(Exception, match="the rows of batch 0 are of no group's stream"):
        other.awaitTermination(2 * HANG_S)
    query.stop()
    assert job.result() == (EVERYTHING, EVERYTHING)


def test_a_task_that_is_run_again_causes_no_rebalance(spark, log, server, tmp_path):
    job = Job(spark, log, server, tmp_path, maxRowsPerBatch="200", sessionTimeoutMs="120000")
    query = job.start(processingTime="0 seconds")
    wait_until(lambda: sum(committed(server).values()) > 0)
    before, app = generation_changes(server), spark.sparkContext.applicationId
    for _ in range(3):
        done = sum(committed(server).values())
        wait_until(lambda: send(python_workers(app), signal.SIGKILL))
        wait_until(lambda done=done: sum(committed(server).values()) > done + 400)
    wait_until(lambda: committed(server) == ENDS)
    assert generation_changes(server) == before
    query.stop()
    assert job.result() == (EVERYTHING, EVERYTHING)


def test_a_partition_that_appears_is_read_and_progress_tells_lag_and_ownership(
    spark, server, tmp_path
):
    from pyspark.sql.streaming.listener import StreamingQueryListener

    from coordinator.spark.progress import shares_of

    log, shares, metrics = tmp_path / "log", [], []

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event) -> None:  # noqa: N802
            pass

        def onQueryProgress(self, event) -> None:  # noqa: N802
            shares.extend(shares_of(event.progress))
            metrics.extend(source.metrics for source in event.progress.sources)

        def onQueryTerminated(self, event) -> None:  # noqa: N802
            pass

    write_log(log, 0, pa.table({"n": range(100)}))
    job = Job(spark, log, server, tmp_path, maxRowsPerBatch="60", topicsRefreshMs="200")
    listener = Listener()
    spark.streams.addListener(listener)
    try:
        query = job.start(processingTime="0 seconds")
        wait_until(lambda: committed(server) == {0: 100})
        write_log(log, 1, pa.table({"n": range(100, 130)}))
        wait_until(lambda: committed(server) == {0: 100, 1: 30})
        wait_until(lambda: shares and shares[-1].owned == [0, 1])
        query.stop()
    finally:
        spark.streams.removeListener(listener)
    assert job.result() == (130, 130)
    first, last = shares[0], shares[-1]
    assert (first.lag, first.backlog, first.owned, first.partitions) == (100, 40, [0], 1)
    assert (last.lag, last.backlog, last.partitions) == (30, 0, 2)
    assert (last.group, last.topic) == ("g", "t")
    assert not any(metrics), "Spark has metrics for Python's sources now: say lag there"


def test_options_out_of_range_and_unknown_layouts_fail_at_load(spark, server, tmp_path):
    nested, empty = (tmp_path / name for name in ("nested", "empty"))
    spark.range(20).write.parquet(str(nested / "more"))
    empty.mkdir()
    given = {"coordinator": server.address, "group": "g"}

    def refusal(**options) -> str:
        reader = spark.readStream.format("consumer_group").options(**{**given, **options})
        with pytest.raises(Exception) as caught:  # Py4J's, of whatever Spark makes.
            reader.load()
        return str(caught.value)

    message = refusal(source=f"parquet:{nested}")
    assert "0.parquet, 1.parquet, ...) or one folder of files for each" in message
    assert "filePartitions=8, which deals them out" in message
    assert "nothing was found in" in refusal(source=f"parquet:{empty}")
    source = f"parquet:{tmp_path}"
    assert "expected is a whole number from 1" in refusal(source=source, maxRowsPerBatch="0")
    assert "expected is true or false" in refusal(source=source, failOnDataLoss="maybe")
    assert "expected is earliest, latest or" in refusal(source=source, startingOffsets="newest")
    assert "did you mean maxRowsPerBatch" in refusal(source=source, maxRowPerBatch="1")
    assert "minPartitions=0: expected is a whole number" in refusal(
        source=source, minPartitions="0"
    )


OF_LAYOUTS = (
    "id",
    "date_add(date'2026-11-21', cast(id % 3 as int)) as d",
    "20261121 + cast(id % 2 as int) as n",
    "timestamp'2026-11-21 09:30:00.12' + make_interval(0, 0, 0, 0, 0, id) as at",
    "case id % 4 when 0 then null when 1 then 'a/b' else 'x%y z' end as s",
    r"""concat('quote " and \\ and', chr(10), id) as t""",
)
TIMES = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"}


@pytest.mark.parametrize(
    ("name", "kind", "by", "written", "read"),
    [
        ("flat", "parquet", [], {}, {"filePartitions": "3"}),
        ("nested", "parquet", ["s", "n"], {}, {}),
        ("json", "json", ["d"], {"compression": "gzip", **TIMES}, {}),
    ],
)
def test_what_spark_writes_and_appends_comes_back_as_it_was(
    spark, server, tmp_path, name, kind, by, written, read
):
    """Every row and column is compared; Spark appends under its random names."""
    rows = spark.range(24).selectExpr(*OF_LAYOUTS).coalesce(2)
    folder, results = tmp_path / "log", tmp_path / "results"
    writer = rows.write.format(kind).options(**written).partitionBy(*by)
    writer.save(str(folder))
    log = {"json": "jsonl"}.get(kind, kind)
    job = Job(spark, f"{log}:{folder}", server, results, **read)
    assert job.start(availableNow=True).awaitTermination(2 * HANG_S)
    assert job.result()[0] == 24
    writer.mode("append").save(str(folder))
    assert job.start(availableNow=True).awaitTermination(2 * HANG_S)
    table = job.rows().selectExpr(*rows.columns)
    # As `spark.read` has it, but for the folders' columns, which are texts.
    theirs = dict(spark.read.format(kind).load(str(folder)).dtypes)
    assert dict(table.dtypes) == theirs | dict.fromkeys(by, "string")
    texts = {c: f"string({c})" for c in by}
    if kind == "json":
        texts["at"] = f"""date_format(at, "{TIMES["timestampFormat"]}")"""
    as_named = rows.selectExpr(*(f"{texts.get(c, c)} as {c}" for c in rows.columns))
    wanted = sorted(map(str, as_named.collect() * 2))
    assert sorted(map(str, table.collect())) == wanted


def test_a_file_that_is_written_over_fails_the_query_and_a_reset_reads_anew(
    spark, server, tmp_path
):
    log = tmp_path / "log"
    rows = spark.range(20).selectExpr("id as n", "0 as partition").coalesce(1)
    rows.write.partitionBy("partition").parquet(str(log))
    (first,) = (log / "partition=0").glob("*.parquet")
    first.rename(first.with_name("part-00000-bbbb.snappy.parquet"))
    job = Job(spark, f"parquet:{log}", server, tmp_path, maxRowsPerBatch="10")
    assert job.start(availableNow=True).awaitTermination(2 * HANG_S)
    assert job.result() == (20, 20)
    rows.write.mode("append").partitionBy("partition").parquet(str(log))
    (late,) = (log / "partition=0").glob("*c000*.parquet")
    late = late.rename(late.with_name("part-00000-aaaa.snappy.parquet"))
    assert job.start(availableNow=True).awaitTermination(2 * HANG_S)
    assert job.result() == (40, 20), "it is read behind what was read"
    whole = late.read_bytes()
    pq.write_table(pa.table({"n": pa.array(range(100, 120), pa.int64())}), late)
    query = job.start(availableNow=True)
    wait_until(lambda: not query.isActive)
    message = str(query.exception())
    assert f"LogChanged: {late} was written over" in message
    assert "Traceback" not in message
    assert job.result() == (40, 20), "no row twice"
    late.write_bytes(whole)
    # An operator goes back to where the last batch began, which is where its files stand.
    reset_to(server, 30)
    assert job.start(availableNow=True).awaitTermination(2 * HANG_S)
    assert job.result() == (50, 20)


def reset_to(server, offset: int) -> None:
    with GroupAdmin(server.address) as admin:
        wait_until(lambda: admin.describe_group("g").group_state == "Empty")
        current = {p: o for p, o in admin.offsets("g").items() if p.topic == "t"}
        reset.execute(admin, "g", dict.fromkeys(current, offset), current)
