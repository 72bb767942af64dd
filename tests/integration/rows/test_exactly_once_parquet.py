"""Results in Parquet: manifests, compaction, clean-up; and what is retried."""

from __future__ import annotations

import asyncio
import json

import grpc
import pyarrow as pa
import pytest

from coordinator.assignors import TopicPartition
from coordinator.operator.admin import GroupAdmin
from coordinator.spark.exactly_once import clean, committed_files, compact
from coordinator.spark.ranges import BatchRanges, OffsetRange
from coordinator.spark.sinks import deciding, parquet
from coordinator.spark.sinks.protocol import SinkRefused
from tests.kit.serving import running
from tests.kit.sinks import GROUP, TOPIC, Place, query, rows_of


@pytest.fixture
async def server():
    async with running() as server:
        yield server


@pytest.fixture
def place(tmp_path):
    return Place("parquet", str(tmp_path))


def batches(number: int, rows: int = 2) -> list[BatchRanges]:
    """Batches of partition 0, one after the other."""
    return [
        BatchRanges(n + 1, {0: OffsetRange(n * rows, (n + 1) * rows, n * rows or -1)})
        for n in range(number)
    ]


def count_up_to(rows: int) -> dict:
    return dict.fromkeys(((0, n) for n in range(rows)), 1)


def write_all(place, server, several) -> None:
    exact = query(place, server.address)
    for one in several:
        assert exact.write(rows_of(one), one)


async def test_manifests_name_a_block_of_batches_and_the_block_before(server, place, monkeypatch):
    monkeypatch.setattr(parquet, "BLOCK", 3)
    await asyncio.to_thread(write_all, place, server, batches(8))
    assert await asyncio.to_thread(place.rows, server.address) == count_up_to(16)
    folder = parquet.StorePath.of(place.location()) / parquet.MANIFEST_FOLDER
    names = [entry.name for entry in folder.entries()]
    assert len(names) == 8
    lengths, name = [], names[-1]
    while name:
        manifest = json.loads((folder / name).read())
        lengths.append(len(manifest["batches"]))
        name = manifest["before"]
    assert lengths == [2, 3, 3]


async def test_compaction_replaces_small_files_while_queries_run(server, place):
    def story():
        exact = query(place, server.address)
        first, *more = batches(6)
        exact.write(rows_of(first), first)
        for one in more[:3]:
            exact.write(rows_of(one), one)
        old = committed_files(place.location(), server.address, GROUP)
        assert compact(place.location(), server.address, GROUP)
        for one in more[3:]:
            assert exact.write(rows_of(one), one), "its number was taken, not its offsets"
        new = committed_files(place.location(), server.address, GROUP)
        assert (len(old), len(new)) == (4, 3)
        assert place.rows(server.address) == count_up_to(12)
        assert all(path.stat() for path in old), "readers may still have them"
        dropped = clean(place.location(), server.address, GROUP, older_than_s=-5.0)
        assert set(old) < set(dropped)
        assert place.rows(server.address) == count_up_to(12)
        assert clean(place.location(), server.address, GROUP, older_than_s=-5.0) == []

    await asyncio.to_thread(story)


async def test_two_compactions_at_once_count_each_row_once(server, place):
    await asyncio.to_thread(write_all, place, server, batches(5))
    exact = [query(place, server.address) for _ in range(2)]

    def story():
        plans = []
        for one in exact:
            plans.append(one.sink.stage_compaction(one.recover(), 1 << 20))
        for one, token in zip(exact, plans, strict=True):
            one.decider.decide(token, deciding.Proposal())
        assert place.rows(server.address) == count_up_to(10)

    await asyncio.to_thread(story)


async def test_clean_leaves_what_is_young_and_what_is_decided(server, place):
    class Killed(BaseException):
        pass

    def dies(at: str) -> None:
        if at == "decided":
            raise Killed

    def story():
        first, second = batches(2)
        write_all(place, server, [first])
        with pytest.raises(Killed):
            query(place, server.address, dies).write(rows_of(second), second)
        stray = parquet.StorePath.of(place.location()) / parquet.DATA / "zombie/a.parquet"
        stray.write(b"")
        assert clean(place.location(), server.address, GROUP) == []
        assert clean(place.location(), server.address, GROUP, older_than_s=-5.0) == [stray]
        assert place.rows(server.address) == count_up_to(4)

    await asyncio.to_thread(story)


async def test_a_plain_worker_that_was_faster_is_noticed_too(server, place, monkeypatch):
    stored, key = GroupAdmin.stored, TopicPartition(TOPIC, 0)
    (batch,) = batches(1)
    others = [({key: 3}, {key: -1})]

    def and_then_another_commits(self, group):
        found = stored(self, group)
        if others:
            offsets, expected = others.pop()
            assert self.commit(group, offsets, expected=expected) == {}
        return found

    monkeypatch.setattr(GroupAdmin, "stored", and_then_another_commits)

    def story():
        assert not query(place, server.address).write(rows_of(batch), batch)
        assert place.rows(server.address) == {}

    await asyncio.to_thread(story)


class Refuses(grpc.RpcError):
    def __init__(self, status: grpc.StatusCode) -> None:
        super().__init__(status)
        self._status = status

    def code(self) -> grpc.StatusCode:
        return self._status


@pytest.mark.parametrize(
    ("status", "calls"),
    [
        (grpc.StatusCode.PERMISSION_DENIED, 1),
        (grpc.StatusCode.INVALID_ARGUMENT, 1),
        (grpc.StatusCode.UNAUTHENTICATED, 1),
        (grpc.StatusCode.UNIMPLEMENTED, 1),
        (grpc.StatusCode.UNAVAILABLE, 3),
        (grpc.StatusCode.DEADLINE_EXCEEDED, 3),
    ],
    ids=lambda value: getattr(value, "name", value),
)
async def test_only_what_may_succeed_later_is_tried_again(
    server, place, monkeypatch, status, calls
):
    made = []

    def refuses(self, *arguments, **more):
        made.append(arguments)
        if len(made) == 3:
            monkeypatch.setattr(deciding, "GIVE_UP_S", -1e9)
            monkeypatch.setattr(deciding.time, "monotonic", lambda: float("inf"))
        raise Refuses(status)

    monkeypatch.setattr(GroupAdmin, "commit", refuses)
    monkeypatch.setattr(deciding, "PAUSE_S", 0.0)
    (batch,) = batches(1)
    with pytest.raises(Refuses):
        await asyncio.to_thread(query(place, server.address).write, rows_of(batch), batch)
    assert len(made) == calls


async def test_a_commit_that_is_refused_for_good_says_why(server, place, monkeypatch):
    def refused(self, group, offsets, **more):
        return dict.fromkeys(offsets, "OFFSET_METADATA_TOO_LARGE")

    monkeypatch.setattr(GroupAdmin, "commit", refused)
    (batch,) = batches(1)
    with pytest.raises(SinkRefused, match="OFFSET_METADATA_TOO_LARGE"):
        await asyncio.to_thread(query(place, server.address).write, rows_of(batch), batch)


async def test_too_many_files_for_a_manifest_are_refused_before_anything_is_decided(place):
    from coordinator.spark.sinks.staging import StagedFile, to_token

    with pytest.raises(SinkRefused, match="coalesce"):
        to_token([StagedFile(f"{n:090}", n, n) for n in range(400)])


async def test_files_have_the_types_that_tables_have(place):
    from coordinator.spark.sinks.staging import plain_schema

    given = pa.schema(
        [
            pa.field("t", pa.timestamp("ns", "Europe/Berlin"), nullable=False),
            pa.field("s", pa.struct([pa.field("x", pa.large_string(), nullable=False)])),
            pa.field("l", pa.large_list(pa.int32())),
            pa.field("d", pa.dictionary(pa.int8(), pa.string())),
            pa.field("m", pa.map_(pa.string(), pa.timestamp("s"))),
        ]
    )
    assert plain_schema(given) == pa.schema(
        [
            pa.field("t", pa.timestamp("us", "UTC")),
            pa.field("s", pa.struct([pa.field("x", pa.string())])),
            pa.field("l", pa.list_(pa.field("element", pa.int32()))),
            pa.field("d", pa.string()),
            pa.field("m", pa.map_(pa.string(), pa.timestamp("us"))),
        ]
    )
