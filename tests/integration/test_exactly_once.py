"""Files and offsets become true together: races, zombies, lost answers. Without Spark."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path

import grpc
import pytest

from coordinator.assignors import TopicPartition
from coordinator.client import GroupMember
from coordinator.client.admin import GroupAdmin
from coordinator.spark import exactly_once
from coordinator.spark.exactly_once import DATA, ExactlyOnceSink, data_of
from coordinator.spark.ranges import MANIFESTS, BatchRanges, Range
from tests.serving import running

PARTITIONS, ROWS, MOST = 3, 60, 7


class Rows:
    """Like a DataFrame, of the rows of some ranges."""

    def __init__(self, batch: BatchRanges) -> None:
        self.rows = [(p, n) for p, r in batch.ranges.items() for n in range(r.begin, r.end)]

    @property
    def write(self):
        return self

    def parquet(self, path: str) -> None:
        Path(path).mkdir(parents=True)
        (Path(path) / "rows").write_text(json.dumps(self.rows))


class Query:
    """Plans batches by what the group has stored, as the source does, and runs them at leisure."""

    def __init__(self, folder: Path, address: str, name: str) -> None:
        self.folder, self.address = folder, address
        self.checkpoint = folder / f"checkpoint-{name}"
        (self.checkpoint / "offsets").mkdir(parents=True)
        self.sink = ExactlyOnceSink(str(folder), str(self.checkpoint), address, "g", "t")
        self.batch_id = -1

    def plan(self, dice: random.Random) -> BatchRanges | None:
        with GroupAdmin(self.address) as admin:
            stored = admin.offsets("g")
        ranges = {}
        for partition in dice.sample(range(PARTITIONS), dice.randint(1, PARTITIONS)):
            offset = stored.get(TopicPartition("t", partition), -1)
            begin = max(offset, 0)
            end = min(begin + dice.randint(1, MOST), ROWS)
            if begin < end:
                ranges[partition] = Range(begin, end, offset)
        if not ranges:
            return None
        self.batch_id += 1
        batch = BatchRanges(self.batch_id + 1, ranges)
        self.note(batch)
        return batch

    def note(self, batch: BatchRanges) -> None:
        lines = ["v1", "{}", json.dumps(batch.to_offset())]
        (self.checkpoint / "offsets" / str(self.batch_id)).write_text("\n".join(lines))

    def run(self, batch: BatchRanges) -> None:
        self.sink(Rows(batch), self.batch_id)


def rows_that_count(folder: Path, address: str) -> list[tuple[int, int]]:
    with GroupAdmin(address) as admin:
        _, newest = admin.stored("g")
    names = data_of(folder, newest.decode())
    assert len(set(names)) == len(names)
    there = {path.name for path in (folder / DATA).iterdir()}
    assert there == set(names), "what does not count is dropped"
    return sorted(
        tuple(row)
        for name in names
        for row in json.loads((folder / DATA / name / "rows").read_text())
    )


EVERYTHING = sorted((p, n) for p in range(PARTITIONS) for n in range(ROWS))


@pytest.fixture
async def server():
    async with running() as it:
        yield it


async def test_queries_that_race_for_the_same_rows_count_each_row_once(server, tmp_path):
    queries = [Query(tmp_path, server.address, str(n)) for n in range(3)]

    def work(query: Query, seed: int) -> None:
        dice = random.Random(seed)
        misses = 0
        while misses < 20:
            batch = query.plan(dice)
            misses = misses + 1 if batch is None else 0
            if batch is not None:
                query.run(batch)

    await asyncio.gather(*(asyncio.to_thread(work, q, n) for n, q in enumerate(queries)))
    assert await asyncio.to_thread(rows_that_count, tmp_path, server.address) == EVERYTHING
    assert sum(q.sink.refused for q in queries) > 0, "otherwise nobody raced"


async def test_manifests_name_a_block_of_batches_and_the_block_before(
    server, tmp_path, monkeypatch
):
    monkeypatch.setattr(exactly_once, "BLOCK", 3)
    query = Query(tmp_path, server.address, "q")
    dice = random.Random(3)
    done: list = []
    while len(done) < 8:
        batch = await asyncio.to_thread(query.plan, dice)
        await asyncio.to_thread(query.run, batch)
        done += [Rows(batch).rows]
    expected = sorted(row for rows in done for row in rows)
    assert await asyncio.to_thread(rows_that_count, tmp_path, server.address) == expected
    with GroupAdmin(server.address) as admin:
        _, newest = await asyncio.to_thread(admin.stored, "g")
    lengths, name = [], newest.decode()
    while name:
        manifest = json.loads((tmp_path / exactly_once.MANIFEST_FOLDER / name).read_text())
        lengths.append(len(manifest["batches"]))
        name = manifest["before"]
    assert lengths == [2, 3, 3]


async def test_a_zombie_is_refused_though_the_group_has_members(server, tmp_path):
    async with GroupMember(server.address, "g", {"t": PARTITIONS}) as member:
        while not member.assignment:
            await member.poll(timeout=5.0)
        zombie = Query(tmp_path, server.address, "zombie")
        heir = Query(tmp_path, server.address, "heir")
        dice = random.Random(5)
        late = await asyncio.to_thread(zombie.plan, dice)
        heir.batch_id = 0
        heir.note(late)
        await asyncio.to_thread(heir.run, late)
        await asyncio.to_thread(zombie.run, late)
        assert (heir.sink.refused, zombie.sink.refused) == (0, 1)
        found = await asyncio.to_thread(rows_that_count, tmp_path, server.address)
        assert found == sorted(Rows(late).rows)


async def test_a_batch_that_spark_runs_again_counts_once(server, tmp_path):
    query = Query(tmp_path, server.address, "q")
    batch = await asyncio.to_thread(query.plan, random.Random(1))
    await asyncio.to_thread(query.run, batch)
    await asyncio.to_thread(query.run, batch)
    found = await asyncio.to_thread(rows_that_count, tmp_path, server.address)
    assert found == sorted(Rows(batch).rows)


async def test_a_commit_whose_answer_is_lost_is_found_out(server, tmp_path, monkeypatch):
    query = Query(tmp_path, server.address, "q")
    batch = await asyncio.to_thread(query.plan, random.Random(1))
    commit, lost = GroupAdmin.commit, []

    def loses_its_answer(self, *arguments, **more):
        found = commit(self, *arguments, **more)
        if not lost:
            lost.append(found)
            raise grpc.RpcError
        return found

    monkeypatch.setattr(GroupAdmin, "commit", loses_its_answer)
    await asyncio.to_thread(query.run, batch)
    assert lost == [{}], "it had been carried out"
    assert query.sink.refused == 0
    found = await asyncio.to_thread(rows_that_count, tmp_path, server.address)
    assert found == sorted(Rows(batch).rows)
    with GroupAdmin(server.address) as admin:
        offsets = await asyncio.to_thread(admin.offsets, "g")
    assert offsets[MANIFESTS] == 1


async def test_a_plain_worker_that_was_faster_is_noticed_too(server, tmp_path, monkeypatch):
    query = Query(tmp_path, server.address, "q")
    batch = await asyncio.to_thread(query.plan, random.Random(1))
    stored = GroupAdmin.stored
    partition, r = next(iter(batch.ranges.items()))
    key = TopicPartition("t", partition)
    others = [({key: r.end + 1}, {key: r.stored})]

    def and_then_another_commits(self, group):
        found = stored(self, group)
        if others:
            offsets, expected = others.pop()
            assert self.commit(group, offsets, expected=expected) == {}
        return found

    monkeypatch.setattr(GroupAdmin, "stored", and_then_another_commits)
    await asyncio.to_thread(query.run, batch)
    assert query.sink.refused == 1
    assert await asyncio.to_thread(rows_that_count, tmp_path, server.address) == []
