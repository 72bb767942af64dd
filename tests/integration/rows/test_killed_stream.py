"""A streaming query that is killed, and its successor: each row once, in both protocols.

Programs call the source's reader and an exactly-once sink as Spark does, with a checkpoint.
"""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

pytest.importorskip("pyspark", reason="streams need the extra `spark`")

import pyarrow as pa
import pyarrow.parquet as pq

from coordinator.sources import write_log
from coordinator.spark.exactly_once import committed_files
from tests.kit.patience import HANG_S
from tests.kit.serving import Process

PARTITIONS, ROWS = 2, 100
PROGRAM = """
import json, os, pathlib, signal, sys
import pyarrow as pa
from coordinator.spark.options import StreamOptions
from coordinator.spark.ranges import BatchRanges
from coordinator.spark.sinks.parquet import ParquetSink
from coordinator.spark.sinks.writer import BatchWriter
from coordinator.spark.stream import GroupStreamReader

address, protocol, logs, results, checkpoint, dies_at = sys.argv[1:]
checkpoint = pathlib.Path(checkpoint)
reader = GroupStreamReader(StreamOptions.parse({
    "coordinator": address, "group": protocol, "source": logs, "topic": "t", "protocol": protocol,
    "sessionTimeoutMs": "2000", "maxRowsPerBatch": "20", "availableNowRest": "wait",
}))
written = 0

def at(step):
    if step == dies_at and written == 2:
        os.kill(os.getpid(), signal.SIGKILL)

sink = BatchWriter(ParquetSink(results), address, protocol, "t", at=at)

def run(start, end):
    global written
    checkpoint.write_text(json.dumps([start, end]))
    rows = [each for task in reader.partitions(start, end) for each in reader.read(task)]
    written += sink.write(pa.Table.from_batches(rows), BatchRanges.from_offset(end))

reader.prepareForTriggerAvailableNow()
start = reader.initialOffset()
if checkpoint.exists():
    before, start = json.loads(checkpoint.read_text())
    run(before, start)
while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
    run(start, end)
    reader.commit(end)
    start = end
reader.stop()
"""


@pytest.fixture(scope="module")
def node():
    flags = ("--group-initial-rebalance-delay-ms", "20", "--group-min-session-timeout-ms", "100")
    with Process(*flags) as process:
        yield process


@pytest.mark.parametrize("protocol", ["classic", "session"])
def test_each_row_counts_once_though_two_queries_are_killed(node, tmp_path, protocol):
    logs, results = tmp_path / "logs", str(tmp_path / "results")
    for number in range(PARTITIONS):
        rows = {"p": [number] * ROWS, "n": list(range(ROWS))}
        write_log(logs, number, pa.table(rows), rows_per_batch=10)
    command = [
        sys.executable, "-c", PROGRAM, node.address, protocol, str(logs), results,
        str(tmp_path / "checkpoint"),
    ]  # fmt: skip
    codes = []
    # The rows of a batch are written and do not count; they count, and the query has not heard.
    for dies_at in ("staged", "decided", ""):
        codes.append(subprocess.run([*command, dies_at], timeout=HANG_S, check=False).returncode)
    assert codes == [-signal.SIGKILL, -signal.SIGKILL, 0]
    tables = []
    for path in committed_files(results, node.address, protocol):
        with path.open() as file:
            tables.append(pq.read_table(file))
    table = pa.concat_tables(tables)
    rows = sorted(zip(table["p"].to_pylist(), table["n"].to_pylist(), strict=True))
    assert rows == [(p, n) for p in range(PARTITIONS) for n in range(ROWS)]
