"""Benchmark of reads on Spark: CPU beside Spark's own reads, cost per micro-batch."""

from __future__ import annotations

import json
import os
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from coordinator.operator.admin import GroupAdmin
from coordinator.sources import write_log
from coordinator.spark import read_assigned, streaming
from coordinator.spark.exactly_once import ExactlyOnceSink
from coordinator.spark.sinks.deciding import Proposal
from coordinator.spark.stream import ConsumerGroupSource
from tests.bench.figures import Figures, Goal, percentile
from tests.bench.servers import Server, scrape, scratch, total

ROWS, FILES, ROUNDS = 20_000_000, 64, 7
READS = 4
"""Batch reads a round of each kind: one alone takes too little CPU to be compared."""
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
        _lay_out(folder, batches)
        spark = make_spark(folder)
        try:
            made = spark.range(0, rows, 1, FILES).selectExpr("id AS n", "id % 1000 AS v")
            made.write.parquet(str(folder / "rows"))
            figures = _beside_spark(spark, folder, rows, rounds)
            spark.dataSource.register(ConsumerGroupSource)
            flags = ("--data-dir", f"{folder}/store", "--metrics-listen", "127.0.0.1:0")
            with Server(folder, *flags) as server:
                figures |= _micro_batches(spark, server, folder, batches)
        finally:
            spark.stop()
    return figures


# --- Beside `spark.read` ----------------------------------------------------------------------

SHAPES: dict[str, Callable[[DataFrame], Any]] = {
    "sums": lambda rows: rows.selectExpr("sum(n)", "sum(v)").collect(),
    "count": lambda rows: rows.count(),
    "filter": lambda rows: rows.where("v = 7").selectExpr("sum(n)").collect(),
}


def _beside_spark(spark: SparkSession, folder: Path, rows: int, rounds: int) -> Figures:
    """CPU of Spark's own reads over that of ours, of the same rows, in changing order.

    Spark stands beside itself as the control. Nothing that is read in batches is committed, so
    each round reads it all; each round of a stream has a group of its own.
    """
    path = str(folder / "rows")
    spent: dict[tuple[str, str], list[float]] = {}
    with Server(folder, "--store", "memory", "--group-initial-rebalance-delay-ms", "0") as server:
        ours: Ours = {
            "coordinator": server.address,
            "source": f"parquet:{path}",
            "topic": "rows",
            "filePartitions": "1",
        }
        for number in range(rounds + 1):
            runs = [
                (shape, who, partial(_batch, spark, path, ours, do, who))
                for shape, do in SHAPES.items()
                for who in ("Spark", "control", "ours")
            ]
            runs += [
                (
                    "stream sums",
                    who,
                    partial(_stream, spark, folder, ours, rows * 2 // FILES, who, number),
                )
                for who in ("Spark", "control", "ours")
            ]
            random.Random(number).shuffle(runs)  # noqa: S311  # An order, and the same each time.
            for shape, who, run in runs:
                before = _cpu_s(server.pid)
                run()
                spent.setdefault((shape, who), []).append(_cpu_s(server.pid) - before)
    figures: Figures = {}
    for shape in (*SHAPES, "stream sums"):
        spark_s, control_s, ours_s = (
            statistics.median(spent[shape, who][1:]) for who in ("Spark", "control", "ours")
        )
        least = 0.9 if shape == "stream sums" else 0.95
        figures |= {
            f"{shape}: CPU of Spark, s": spark_s,
            f"{shape}: Spark to itself": spark_s / control_s,
            f"{shape}: Spark to ours, ratio": Goal(spark_s / ours_s, at_least=least),
        }
    return figures


Ours = dict[str, Any]
"""Arguments of our reads."""


def _batch(
    spark: SparkSession,
    path: str,
    ours: Ours,
    do: Callable[[DataFrame], Any],
    who: str,
) -> None:
    for _ in range(READS):
        is_ours = who == "ours"
        do(read_assigned(spark, group="rows", **ours) if is_ours else spark.read.parquet(path))


def _stream(
    spark: SparkSession, folder: Path, ours: Ours, rows_at_once: int, who: str, number: int
) -> None:
    """A stream from its start to its end, in batches of two files."""

    def sums(rows: DataFrame, _: int) -> None:
        SHAPES["sums"](rows)

    if who == "ours":
        group, limit = f"rows-{number}", rows_at_once
        stream = streaming(spark, group=group, maxRowsPerBatch=limit, **ours)
        writer = stream.foreach_batch(sums)
    else:
        schema = spark.read.parquet(str(folder / "rows")).schema
        of_spark = spark.readStream.schema(schema).option("maxFilesPerTrigger", 2)
        rows = of_spark.parquet(str(folder / "rows"))
        writer = rows.writeStream.foreachBatch(sums)
    checkpoint = str(folder / f"checkpoint-{who}-{number}")
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()


def _cpu_s(but: int) -> float:
    """CPU that this process and all below it have used, dead ones included; without one tree."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                found = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(found[1])
            ticks[int(entry.name)] = sum(map(int, found[11:15]))
    total_ticks, left = 0, [os.getpid()]
    while left:
        process = left.pop()
        total_ticks += ticks.get(process, 0)
        left += [p for p, parent in parents.items() if parent == process and p != but]
    return total_ticks / os.sysconf("SC_CLK_TCK")


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


def _lay_out(folder: Path, batches: int) -> None:
    def table(length: int) -> pa.Table:
        return pa.table(
            {
                "flight": pa.array(range(length), pa.int64()),
                "month": pa.array((n % 12 + 1 for n in range(length)), pa.int32()),
                "delay": pa.array((n % 97 - 10.0 for n in range(length)), pa.float64()),
                "carrier": pa.array(("UA", "B6", "EV", "DL")[n % 4] for n in range(length)),
            }
        )

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
