"""Benchmark of reads on Spark: CPU beside Spark's own reads, cost per micro-batch."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from coordinator.client.group_address import GroupAddress
from coordinator.operator.admin import GroupAdmin
from coordinator.sources import open_source, write_log
from coordinator.sources.base import snapshots_of
from coordinator.sources.group.record import in_group
from coordinator.spark import committed, read_assigned, streaming
from coordinator.spark.exactly_once import ExactlyOnce
from coordinator.spark.sinks.parquet import ParquetSink
from coordinator.spark.stream import ConsumerGroupSource
from tests.bench.figures import Figures, Goal, percentile
from tests.bench.servers import Server, scrape, scratch, total

ROWS, FILES = 20_000_000, 64
ROUNDS = 6
"""So that each of three stands equally often in each place of a round."""
READS = 4
"""Batch reads a round of each kind: one alone takes too little CPU to be compared."""
MANY_PARTITIONS, ROWS_OF_ONE = 500, 20_000
MANY_FILES, LINKS = 100_000, 10_000
"""Files to look at, and how many names one of them has."""
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
            rows_of_one = ROWS_OF_ONE // (100 if quick else 1)
            _lay_out_partitions(folder, rows_of_one)
            figures = _beside_spark(spark, folder, rows, rows_of_one, rounds)
            figures |= _many_files(folder, MANY_FILES // (100 if quick else 1))
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


WHO = ("Spark", "control", "ours")
Given = dict[str, Any]
"""Arguments of our reads."""
Run = Callable[[str, int], None]
"""A read by one of `WHO` in a round."""


def _beside_spark(
    spark: SparkSession, folder: Path, rows: int, rows_of_one: int, rounds: int
) -> Figures:
    """CPU of Spark's own reads over that of ours, of the same rows, in balanced order.

    Spark stands beside itself as the control, and both stand beside ours. Nothing that is read in
    batches is committed, so each round reads it all; each round of a stream has a group of its own.
    """
    with Server(folder, "--store", "memory", "--group-initial-rebalance-delay-ms", "0") as server:
        few = _Place(spark, folder / "rows", server, "1", 2, rows // FILES)
        many = _Place(spark, folder / "partitions", server, "numbers", 50, rows_of_one)
        kinds: dict[str, tuple[float, Run]] = {
            **{shape: (0.95, partial(few.batch, do)) for shape, do in SHAPES.items()},
            "stream sums": (0.9, few.stream),
            f"{MANY_PARTITIONS} partitions, stream sums": (0.9, many.stream),
        }
        spent: dict[tuple[str, str], list[float]] = {}
        orders = list(permutations(WHO))
        for number in range(rounds + 1):  # The first one warms up.
            for kind, (_, run) in kinds.items():
                for who in orders[number % len(orders)]:
                    before = _cpu_s(server.pid)
                    run(who, number)
                    spent.setdefault((kind, who), []).append(_cpu_s(server.pid) - before)
        few.leave()
    figures: Figures = {}
    for kind, (least, _) in kinds.items():
        spark_s, control_s, ours_s = (sum(spent[kind, who][1:]) / rounds for who in WHO)
        figures |= {
            f"{kind}: CPU of Spark, s": spark_s,
            f"{kind}: Spark to itself": spark_s / control_s,
            f"{kind}: Spark to ours, ratio": Goal(
                (spark_s + control_s) / 2 / ours_s, at_least=least
            ),
        }
    return figures


class _Place:
    """A directory that Spark reads for itself, and for a group.

    Args:
        rule: `filePartitions`. files: of a batch of a stream. rows: of a file.
    """

    def __init__(
        self, spark: SparkSession, path: Path, server: Server, rule: str, files: int, rows: int
    ) -> None:
        self._spark, self._path, self._files = spark, str(path), files
        self._limits: Given = {"maxRowsPerBatch": files * rows}
        self._ours: Given = {
            "coordinator": server.address,
            "source": f"parquet:{path}",
            "topic": path.name,
            "filePartitions": rule,
        }

    def batch(self, do: Callable[[DataFrame], Any], who: str, number: int) -> None:
        spark = self._spark
        for _ in range(READS):
            is_ours = who == "ours"
            do(
                read_assigned(spark, group="rows", **self._ours)
                if is_ours
                else spark.read.parquet(self._path)
            )

    def leave(self) -> None:
        committed(read_assigned(self._spark, group="rows", **self._ours))

    def stream(self, who: str, number: int) -> None:
        """A stream from its start to its end."""

        def sums(rows: DataFrame, _: int) -> None:
            SHAPES["sums"](rows)

        if who == "ours":
            group = f"{self._ours['topic']}-{number}"
            stream = streaming(self._spark, group=group, **self._limits, **self._ours)
            writer = stream.foreach_batch(sums)
        else:
            schema = self._spark.read.parquet(self._path).schema
            of_spark = self._spark.readStream.schema(schema)
            of_spark = of_spark.option("maxFilesPerTrigger", self._files)
            writer = of_spark.parquet(self._path).writeStream.foreachBatch(sums)
        checkpoint = f"{self._path}-checkpoint-{who}-{number}"
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


# --- Many files -------------------------------------------------------------------------------


def _many_files(folder: Path, files: int) -> Figures:
    """CPU of a group's first look at a flat directory, and of later ones, in this process."""
    place = folder / "many"
    place.mkdir()
    for number in range(files):
        path, first = (place / f"part-{n:06}.parquet" for n in (number, number - number % LINKS))
        if path == first:
            pq.write_table(pa.table({"n": range(10)}), path)
        else:
            path.hardlink_to(first)
    figures: Figures = {}
    with Server(folder, "--store", "memory") as server:
        log = in_group(
            open_source(f"parquet:{place}", "many"), GroupAddress(server.address, "many")
        )
        for title in ("the first look", "a later look"):
            began = time.process_time()
            rows = sum(snapshot.end() for snapshot in snapshots_of(log, log.partitions()).values())
            figures[f"{files:,} files: CPU of {title}, s"] = time.process_time() - began
            assert rows == 10 * files
    return figures


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
        sink = TimedSink(str(folder / group))
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


class TimedSink(ExactlyOnce):
    """Durations of commits that write what an exactly-once query writes."""

    def __init__(self, folder: str) -> None:
        super().__init__(ParquetSink(folder), at=self._note)
        self.took: list[float] = []
        self._staged_s = 0.0

    def _note(self, step: str) -> None:
        if step == "staged":
            self._staged_s = time.perf_counter()
        elif step == "followed":
            self.took.append(1_000 * (time.perf_counter() - self._staged_s))


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


# --- The environment --------------------------------------------------------------------------


def _last(wanted: int, batches: int) -> str:
    """Start offset of each partition that leaves so many batches to read."""
    begin = (batches - wanted) * ROWS_A_BATCH // PARTITIONS
    return json.dumps({str(partition): begin for partition in range(PARTITIONS)})


def _lay_out_partitions(folder: Path, rows: int) -> None:
    """A file for each of many partitions."""
    (folder / "partitions").mkdir()
    for number in range(MANY_PARTITIONS):
        table = pa.table({"n": range(rows), "v": [number] * rows})
        pq.write_table(table, folder / "partitions" / f"{number}.parquet")


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
