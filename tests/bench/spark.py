"""Benchmark of a Spark query: rows per second beside a bare pipe, cost per micro-batch."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from coordinator.operator.admin import GroupAdmin
from coordinator.sources import write_log
from coordinator.spark.exactly_once import ExactlyOnceSink
from coordinator.spark.sinks.deciding import Proposal
from coordinator.spark.stream import ConsumerGroupSource
from tests.bench.figures import Figures, Goal, percentile
from tests.bench.servers import Server, scrape, scratch, total

ROWS, ROWS_AN_ARROW_BATCH = 6_000_000, 4_096
ROUNDS = 7
PARTITIONS, BATCHES, ROWS_A_BATCH = 4, 1_000, 400
NOT_OF_A_BATCH = ("Heartbeat", "ReportLogEnds", "JoinGroup", "SyncGroup", "LeaveGroup")
"""Calls that come with time or membership, not with batches."""


def bench_spark(batches: int | None = None, *, quick: bool = False) -> Figures:
    """All figures in one run, on `local[1]`. Needs the extra `spark` and Java 17.

    Args:
        batches: micro-batches of each query; 1,000 by default.
        quick: one round of a hundredth of the rows, and 20 micro-batches.
    """
    batches = batches or (20 if quick else BATCHES)
    rows, rounds = (ROWS // 100, 1) if quick else (ROWS, ROUNDS)
    with scratch() as folder:
        _lay_out(folder, rows, batches)
        spark = make_spark(folder)
        try:
            figures = _rows_a_second(spark, folder, rows, rounds)
            flags = ("--data-dir", f"{folder}/store", "--metrics-listen", "127.0.0.1:0")
            with Server(folder, *flags) as server:
                figures |= _micro_batches(spark, server, folder, batches)
        finally:
            spark.stop()
    return figures


# --- Rows a second ----------------------------------------------------------------------------


class BarePipe(DataSource):
    """The same batches of the same file, with nothing in between."""

    @classmethod
    def name(cls) -> str:
        return "bare_pipe"

    def schema(self) -> StructType:
        return from_arrow_schema(pa.ipc.open_file(self.options["path"]).schema)

    def reader(self, schema: StructType) -> BareReader:
        return BareReader(self.options["path"])


class BareReader(DataSourceReader):
    """One task."""

    def __init__(self, path: str) -> None:
        self._path = path

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[Any]:  # Any: Arrow is untyped.
        reader = pa.ipc.open_file(pa.memory_map(self._path))
        for index in range(reader.num_record_batches):
            yield reader.get_batch(index)


def _rows_a_second(spark: SparkSession, folder: Path, rows: int, rounds: int) -> Figures:
    """Both in turn, the JVM's work included; nothing is committed, so each round reads it all."""
    spark.dataSource.register(ConsumerGroupSource)
    spark.dataSource.register(BarePipe)
    with Server(folder, "--store", "memory") as server:
        ours = {"coordinator": server.address, "group": "rows", "source": str(folder / "rows")}
        loads = {
            "bare": spark.read.format("bare_pipe").option("path", str(folder / "rows/00000.arrow")),
            "ours": spark.read.format("consumer_group").options(**ours),
        }
        seconds: dict[str, list[float]] = {name: [] for name in loads}
        for _ in range(rounds + 1):
            for name, reader in loads.items():
                began = time.perf_counter()
                reader.load().write.format("noop").mode("overwrite").save()
                seconds[name].append(time.perf_counter() - began)
    bare, mine = (statistics.median(seconds[name][1:]) for name in ("bare", "ours"))
    return {
        "bare pipe, rows/s": rows / bare,
        "Arrow source, rows/s": rows / mine,
        "Arrow source to bare pipe, ratio": Goal(bare / mine, at_least=0.8),
    }


# --- A micro-batch ----------------------------------------------------------------------------


def _micro_batches(spark: SparkSession, server: Server, folder: Path, batches: int) -> Figures:
    """Real queries: a plain one of so many micro-batches, and a fifth of them exactly once."""
    figures: Figures = {}
    for title, is_exact, most in (
        ("plain query", False, batches),
        ("exactly-once query", True, batches // 5),
    ):
        group = title.replace(" ", "-")
        checkpoint = str(folder / f"checkpoint-{group}")
        sink = TimedSink(str(folder / group), checkpoint, server.address, group, "flights")
        stream = (
            spark.readStream.format("consumer_group")
            .options(**_stream_options(server, folder, group))
            .option("startingOffsets", _last(most, batches))
            .load()
            .writeStream.foreachBatch(sink if is_exact else _count)
            .option("checkpointLocation", checkpoint)
        )
        before, rebalances = _calls(server), _rebalances(server)
        began = time.perf_counter()
        query = stream.trigger(availableNow=True).start()
        query.awaitTermination()
        lasted = time.perf_counter() - began
        calls = _calls(server, before)
        with GroupAdmin(server.address) as admin:
            offsets = admin.offsets(group)
        ends = sum(o for p, o in offsets.items() if p.topic == "flights") / ROWS_A_BATCH
        done = ends - (batches - most)
        figures |= {
            f"{title}: micro-batches": round(done),
            f"{title}: ms a micro-batch": 1_000 * lasted / done,
            f"{title}: calls a micro-batch": Goal(sum(calls.values()) / done, at_most=2),
            f"{title}: rebalances, its own join apart": Goal(
                _rebalances(server) - rebalances - 1, at_most=0
            ),
        }
        if is_exact:
            figures |= {
                "exactly-once commit, p50, ms": statistics.median(sink.took),
                "exactly-once commit, p99, ms": Goal(percentile(sink.took, 99), at_most=10),
            }
    return figures


def _count(rows: Any, batch_id: int) -> None:
    rows.count()


class TimedSink(ExactlyOnceSink):
    """Durations of commits that write what an exactly-once query writes."""

    def __init__(self, *arguments: str) -> None:
        super().__init__(*arguments)
        self.took: list[float] = []

        decide = self.decider.decide

        def timed(token: str, proposal: Proposal) -> bool:
            began = time.perf_counter()
            try:
                return decide(token, proposal)
            finally:
                self.took.append(1_000 * (time.perf_counter() - began))

        self.decider.decide = timed  # type: ignore[method-assign]


def _stream_options(server: Server, folder: Path, group: str) -> dict[str, str]:
    return {
        "coordinator": server.address,
        "group": group,
        "source": str(folder / "log"),
        "topic": "flights",
        "instance": "bench",
        "sessionTimeoutMs": "600000",  # The last query's place would end in this one's time.
        "maxRowsPerBatch": str(ROWS_A_BATCH),
    }


# --- The surroundings -------------------------------------------------------------------------


def _last(wanted: int, batches: int) -> str:
    """Start offset of each partition that leaves so many batches to read."""
    begin = (batches - wanted) * ROWS_A_BATCH // PARTITIONS
    return json.dumps({str(partition): begin for partition in range(PARTITIONS)})


def _lay_out(folder: Path, rows: int, batches: int) -> None:
    def table(length: int) -> pa.Table:
        return pa.table(
            {
                "flight": pa.array(range(length), pa.int64()),
                "month": pa.array((n % 12 + 1 for n in range(length)), pa.int32()),
                "delay": pa.array((n % 97 - 10.0 for n in range(length)), pa.float64()),
                "carrier": pa.array(("UA", "B6", "EV", "DL")[n % 4] for n in range(length)),
            }
        )

    write_log(folder / "rows", 0, table(rows), rows_per_batch=ROWS_AN_ARROW_BATCH)
    for partition in range(PARTITIONS):
        # One batch more, which the first of a reader's calls takes.
        write_log(folder / "log", partition, table((batches + 1) * ROWS_A_BATCH // PARTITIONS))


def make_spark(folder: Path) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.local.dir", str(folder / "spark"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    return spark


def _calls(server: Server, before: Counter[str] | None = None) -> Counter[str]:
    """Calls that batches make, by method; since `before`."""
    found: Counter[str] = Counter()
    for name, value in scrape(server.metrics).items():
        if name.startswith("coordinator_grpc_calls_total{"):
            method = name.split('method="')[1].split('"')[0]
            if method not in NOT_OF_A_BATCH:
                found[method] += int(value)
    return found - (before or Counter())


def _rebalances(server: Server) -> int:
    return int(total(scrape(server.metrics), "coordinator_rebalances_total"))
