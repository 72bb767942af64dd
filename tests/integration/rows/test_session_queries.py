"""Queries in a session group, without Spark: how partitions go from one to the next."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="streams need the extra `spark`")

import pyarrow as pa
import pyarrow.parquet as pq

from coordinator.sources import write_log
from coordinator.spark import announced
from coordinator.spark.announced import announced_files
from coordinator.spark.options import StreamOptions
from coordinator.spark.stream import FilesReader, GroupStreamReader
from tests.integration.rows.test_stream_reader import next_batch, ranges
from tests.integration.waiting import wait_until
from tests.kit.serving import running

ROWS = 1_000
PROGRAM = """
import json, sys, time
from coordinator.spark.options import StreamOptions
from coordinator.spark.stream import GroupStreamReader

reader = GroupStreamReader(StreamOptions.parse(json.loads(sys.argv[1])))
at = reader.initialOffset()
while True:
    at = reader.latestOffset(at, reader.getDefaultReadLimit())
    print(json.dumps(at), flush=True)
    time.sleep(0.1)
"""


class Readers:
    """Makes readers of one group."""

    def __init__(self, address: str, logs: Path) -> None:
        self._given = {
            "coordinator": address, "group": "g", "source": str(logs), "topic": "t",
            "protocol": "session", "sessionTimeoutMs": "2000", "maxRowsPerBatch": "20",
        }  # fmt: skip
        self.made: list[GroupStreamReader] = []

    def options(self, **more: str) -> dict[str, str]:
        return {**self._given, **more}

    def __call__(self, **more: str) -> GroupStreamReader:
        self.made.append(GroupStreamReader(StreamOptions.parse(self.options(**more))))
        return self.made[-1]


@pytest.fixture
async def readers(tmp_path, tmp_path_factory, monkeypatch):
    # Processes that run tests side by side have one parent, by which batches are announced.
    monkeypatch.setattr(announced.tempfile, "tempdir", str(tmp_path_factory.mktemp("announced")))
    for partition in (0, 1):
        write_log(tmp_path, partition, pa.table({"n": range(ROWS)}))
    async with running() as server:
        readers = Readers(server.address, tmp_path)
        yield readers
        for reader in readers.made:
            await asyncio.to_thread(reader.stop)


def batch_after(reader: GroupStreamReader, start: dict) -> dict:
    """The offset of the next batch, once there is one."""
    found = start

    def is_planned() -> bool:
        nonlocal found
        found = next_batch(reader, start)
        return found != start

    wait_until(is_planned)
    return found


async def test_a_partition_stays_until_the_next_query_has_run_a_batch(readers):
    old, new = readers(), readers()

    def story():
        at = next_batch(old)
        assert ranges(at) == {"0": (0, 10), "1": (0, 10)}
        cold = batch_after(new, {**new.initialOffset(), "number": 7})  # Of an old checkpoint.
        assert (cold["number"], ranges(cold)) == (8, {}), "Spark runs no batch without this"
        at = next_batch(old, at)
        assert ranges(at) == {"0": (10, 20), "1": (10, 20)}, "the new one is not ready"
        assert next_batch(new, cold) == cold, "a batch without rows is run once"
        served = [ranges(at)]

        def is_given_back() -> bool:
            nonlocal at
            at = next_batch(old, at)
            served.append(ranges(at))
            return len(ranges(at)) == 1

        wait_until(is_given_back)
        (kept,) = served[-1]
        (moved,) = {"0", "1"} - {kept}
        assert ranges(batch_after(new, cold))[moved][0] == served[-2][moved][1]

    await asyncio.to_thread(story)


async def test_the_batch_before_is_of_a_file_of_the_partitions_to_come_and_of_no_row(
    readers, tmp_path
):
    for partition in (0, 1):
        (tmp_path / "p" / str(partition)).mkdir(parents=True)
        pq.write_table(pa.table({"n": range(ROWS)}), tmp_path / "p" / f"{partition}/1.parquet")
    options = StreamOptions.parse(readers.options(source=f"parquet:{tmp_path / 'p'}"))
    old, new = FilesReader(options, "old"), FilesReader(options, "new")
    readers.made += [old, new]

    def story():
        next_batch(old)
        begin = new.initialOffset()
        cold = batch_after(new, begin)
        for path in (tmp_path / "p").rglob("*.parquet"):
            path.rename(path.with_suffix(".moved"))
        new.partitions(begin, cold)
        assert announced_files(os.getppid(), "new").files == [], "nothing of them is read yet"
        for path in (tmp_path / "p").rglob("*.moved"):
            path.rename(path.with_suffix(".parquet"))
        new.partitions(begin, cold)
        told, (file,) = announced_files(os.getppid(), "new")
        assert not told.batch.ranges
        assert (file.first, file.rows) == (file.last, ROWS)
        warm = next_batch(new, cold)
        new.partitions(cold, warm)
        assert announced_files(os.getppid(), "new").files == []

    await asyncio.to_thread(story)


async def test_a_query_that_stands_still_in_a_batch_loses_its_partitions(readers):
    stuck, other = readers(maxPollIntervalMs="3000"), readers()

    def story():
        at = next_batch(stuck)
        assert len(ranges(at)) == 2
        begin = other.initialOffset()
        wait_until(lambda: len(ranges(next_batch(other, begin))) == 2)
        taken = next_batch(other, begin)
        assert ranges(taken) == {"0": (0, 10), "1": (0, 10)}
        stuck.commit(at)  # It goes on as if nothing were: its commit is refused.
        assert ranges(next_batch(other, taken)) == {"0": (10, 20), "1": (10, 20)}

    await asyncio.to_thread(story)


async def test_a_query_started_again_under_its_name_has_its_partitions_back(readers):
    options, other = readers.options(instance="one"), readers(instance="two")
    at = await asyncio.to_thread(next_batch, other)
    killed = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, json.dumps(options), stdout=asyncio.subprocess.PIPE
    )
    had: dict = {}
    while len(had) != 1 or len(ranges(at)) != 1:
        had = ranges(json.loads(await killed.stdout.readline()))
        at = await asyncio.to_thread(next_batch, other, at)
    killed.kill()
    await killed.wait()
    (others,) = ranges(at)
    again = ranges(await asyncio.to_thread(next_batch, readers(instance="one")))
    assert list(again) == list(had), "the same partition"
    assert list(ranges(await asyncio.to_thread(next_batch, other, at))) == [others]
