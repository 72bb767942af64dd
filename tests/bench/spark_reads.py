"""Benchmark of Spark's reads: CPU beside `spark.read.parquet` on the same files, and small batches.

Pairs in one session: each round runs both in turn, and a figure is the median of the rounds'
ratios, Spark's CPU by ours. Counted are the Java process and all below it, Python workers included.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from coordinator.spark.options import StreamOptions
from coordinator.spark.stream import ConsumerGroupSource, GroupStreamReader
from tests.bench.figures import Figures, Goal
from tests.bench.servers import Server, scratch
from tests.bench.spark import make_spark

ROWS, FILES, ROUNDS, WARM_UP = 4_000_000, 4, 9, 3
SMALL_BATCH, SMALL_BATCHES = 40, 100
LOOK_S = 0.1
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def bench_spark_reads(*, quick: bool = False) -> Figures:
    """All figures in one session on `local[1]`. Needs the extra `spark`, Java 17 and /proc."""
    with scratch() as folder:
        _lay_out(folder / "wide", ROWS // 100 if quick else ROWS)
        spark = make_spark(folder)
        spark.dataSource.register(ConsumerGroupSource)
        try:
            with Server(folder, "--store", "memory") as server:
                reads = _Reads(spark, server.address, folder)
                figures = reads.pairs(*((1, 0) if quick else (ROUNDS, WARM_UP)))
                return figures | reads.small_batches(5 if quick else SMALL_BATCHES)
        finally:
            spark.stop()


class _Reads:
    """Reads of one directory, by Spark and by this library."""

    def __init__(self, spark: SparkSession, address: str, folder: Path) -> None:
        self._spark, self._folder = spark, folder
        self._wide = str(folder / "wide")
        self._options = {
            "coordinator": address,
            "source": f"parquet:{self._wide}",
            "topic": "wide",
        }
        self._queries = 0

    def pairs(self, rounds: int, warm_up: int) -> Figures:
        chosen = {"columns": "n0,x0"}
        figures: Figures = {}
        java = int(self._spark._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
        with _cpu_of(java) as cpu_s:
            for title, run, ours, theirs, goal in (
                (
                    "batch sums of 2 columns",
                    _sums,
                    lambda: self._batch(**chosen),
                    self._parquet,
                    0.8,
                ),
                ("batch count", _count, lambda: self._batch(columns="n0"), self._parquet, 0.6),
                ("batch sums of 17 columns", _all_sums, self._batch, self._parquet, None),
                ("batch sums, columns not told", _sums, self._batch, self._parquet, None),
                (
                    "stream sums of 2 columns",
                    self._streamed,
                    lambda: self._stream(**chosen),
                    self._parquet_stream,
                    0.7,
                ),
            ):
                ratios = []
                for _ in range(warm_up + rounds):
                    took = []
                    for load in (theirs, ours):
                        before = cpu_s()
                        run(load())
                        took.append(cpu_s() - before)
                    ratios.append(took[0] / max(took[1], TICK_S))
                ratio = statistics.median(ratios[warm_up:])
                name = f"{title}: Spark's CPU by ours"
                figures[name] = ratio if goal is None else Goal(ratio, at_least=goal)
        return figures

    def small_batches(self, batches: int) -> Figures:
        """Time of a micro-batch of 40 rows of one large row group, and the share that is ours."""
        options = {
            **self._options,
            "maxRowsPerBatch": str(SMALL_BATCH),
            # Kafka's form: -1, the end, is known with the topic around only.
            "startingOffsets": '{"wide": {"0": 0, "1": -1, "2": -1, "3": -1}}',
        }
        ours = self._alone({**options, "group": "alone"}, batches)
        stream = self._spark.readStream.format("consumer_group").options(**options, group="small")
        query = (
            stream.load()
            .writeStream.format("noop")
            .option("checkpointLocation", str(self._folder / "checkpoint-small"))
            .start()
        )
        took: dict[int, float] = {}
        while len(took) < batches + 5:
            if query.exception() is not None:
                raise RuntimeError(str(query.exception()))
            for progress in query.recentProgress:
                if progress.numInputRows:
                    took[progress.batchId] = progress.durationMs["triggerExecution"]
            time.sleep(LOOK_S)
        query.stop()
        whole = statistics.median([ms for batch, ms in took.items() if batch >= 5])
        return {
            f"micro-batch of {SMALL_BATCH} rows, ms": whole,
            "of it ours, ms": ours,
            "of it ours, share": Goal(ours / whole, at_most=0.05),
        }

    def _alone(self, options: dict[str, str], batches: int) -> float:
        """Milliseconds of all calls for a micro-batch, the task's included, without Spark."""
        parsed = StreamOptions.parse(options)
        reader = GroupStreamReader(parsed.reading(parsed.schema()))
        limit = reader.getDefaultReadLimit()
        offset = reader.latestOffset(reader.initialOffset(), limit)
        took = []
        for _ in range(batches):
            began = time.perf_counter()
            end = reader.latestOffset(offset, limit)
            for task in reader.partitions(offset, end):
                for _ in reader.read(task):
                    pass
            offset = end
            took.append(1_000 * (time.perf_counter() - began))
        reader.stop()
        return statistics.median(took)

    # --- Frames ---

    def _batch(self, **more: str) -> DataFrame:
        reader = self._spark.read.format("consumer_group").options(**self._options, **more)
        return reader.option("group", "batch").load()

    def _stream(self, **more: str) -> DataFrame:
        self._queries += 1
        reader = self._spark.readStream.format("consumer_group").options(**self._options, **more)
        return reader.option("group", f"stream-{self._queries}").load()

    def _parquet(self) -> DataFrame:
        return self._spark.read.parquet(self._wide)

    def _parquet_stream(self) -> DataFrame:
        schema: StructType = self._parquet().schema
        return self._spark.readStream.schema(schema).parquet(self._wide)

    def _streamed(self, frame: DataFrame) -> None:
        self._queries += 1
        query = (
            frame.agg(F.sum("n0"), F.sum("x0"))
            .writeStream.outputMode("complete")
            .format("noop")
            .option("checkpointLocation", str(self._folder / f"checkpoint-{self._queries}"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()


def _sums(frame: DataFrame) -> None:
    frame.agg(F.sum("n0"), F.sum("x0")).collect()


def _all_sums(frame: DataFrame) -> None:
    # Not the text `note`.
    frame.agg(*(F.sum(name) for name in frame.columns if name[1:].isdigit())).collect()


def _count(frame: DataFrame) -> None:
    frame.count()


# --- CPU --------------------------------------------------------------------------------------


@contextmanager
def _cpu_of(root: int) -> Iterator[Callable[[], float]]:
    """Function that returns the CPU seconds of a process and all that are or were below it.

    Those that end are seen every 0.1 s, so the last of their work is not counted.
    """
    seen: dict[tuple[int, str], float] = {}
    lock, is_over = threading.Lock(), threading.Event()

    def look() -> float:
        with lock:
            seen.update(_below(root))
            return sum(seen.values())

    def watch() -> None:
        while not is_over.wait(LOOK_S):
            look()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield look
    finally:
        is_over.set()
        thread.join()


def _below(root: int) -> dict[tuple[int, str], float]:
    """CPU seconds of a process and those below it, by id and start."""
    children: dict[int, list[int]] = {}
    found: dict[int, tuple[str, float]] = {}
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            text = Path("/proc", name, "stat").read_text()
        except OSError:
            continue
        fields = text[text.rindex(")") + 2 :].split()
        children.setdefault(int(fields[1]), []).append(int(name))
        found[int(name)] = fields[19], (int(fields[11]) + int(fields[12])) * TICK_S
    below, left = {}, [root]
    while left:
        process = left.pop()
        if process in found:
            started, cpu_s = found[process]
            below[process, started] = cpu_s
        left += children.get(process, [])
    return below


def _lay_out(folder: Path, rows: int) -> None:
    """Files of a row group each: 9 whole numbers, 8 doubles, two texts and an id."""
    dice = np.random.default_rng(1)
    folder.mkdir()
    each = rows // FILES
    for file in range(FILES):
        columns: dict[str, object] = {"id": np.arange(each) + file * each}
        columns |= {f"n{i}": dice.integers(0, 1_000_000, each) for i in range(9)}
        columns |= {f"x{i}": dice.normal(size=each) for i in range(8)}
        columns["carrier"] = np.array(["UA", "B6", "EV", "DL"])[dice.integers(0, 4, each)]
        columns["note"] = [f"note {n % 5_000}" for n in range(each)]
        pq.write_table(pa.table(columns), folder / f"{file}.parquet", row_group_size=each)
