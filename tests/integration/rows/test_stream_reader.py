"""The source's reader without Spark: what it plans and what it stores, when others interfere."""

from __future__ import annotations

import asyncio
import os
import re
from dataclasses import replace

import pytest

pytest.importorskip("pyspark", reason="streams need the extra `spark`")

import pyarrow as pa

from coordinator.assignors import TopicPartition
from coordinator.client import Member
from coordinator.client.member.classic.membership import MembershipPhase
from coordinator.operator.admin import GroupAdmin
from coordinator.sources import write_log
from coordinator.spark import announced, stream
from coordinator.spark.announced import announced_batch
from coordinator.spark.options import StreamOptions
from coordinator.spark.ranges import MANIFESTS, BatchRanges, OffsetRange
from coordinator.spark.refusals import RowsLeftUnread
from coordinator.spark.sinks.protocol import SinkRefused
from coordinator.spark.stream import GroupStreamReader
from tests.integration.waiting import until, wait_until
from tests.kit.serving import running

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
COOPERATIVE = ("cooperative-sticky",)
ROWS = 100


@pytest.fixture
async def server():
    async with running() as server:
        yield server


@pytest.fixture
async def reader(server, tmp_path, tmp_path_factory, monkeypatch):
    # Processes that run tests side by side have one parent, by which batches are announced.
    monkeypatch.setattr(announced.tempfile, "tempdir", str(tmp_path_factory.mktemp("announced")))
    for partition in (0, 1):
        write_log(tmp_path, partition, pa.table({"n": range(ROWS)}))
    options = {"coordinator": server.address, "group": "g", "source": str(tmp_path), "topic": "t"}
    made = GroupStreamReader(StreamOptions.parse({**options, "maxRowsPerBatch": "20"}))
    yield made
    await asyncio.to_thread(made.stop)


def next_batch(reader: GroupStreamReader, start: dict | None = None) -> dict:
    """The offset of the batch after `start`, as Spark asks for it."""
    return reader.latestOffset(start or reader.initialOffset(), reader.getDefaultReadLimit())


def ranges(offset: dict) -> dict[str, tuple[int, int]]:
    return {p: (r["begin"], r["end"]) for p, r in offset["ranges"].items()}


def interfere(server, offsets: dict, expected: dict) -> None:
    with GroupAdmin(server.address) as admin:
        assert admin.commit("g", offsets, expected=expected) == {}


def stored(server) -> dict[TopicPartition, int]:
    with GroupAdmin(server.address) as admin:
        return admin.offsets("g")


async def test_a_batch_is_stored_and_the_next_one_goes_on_behind_it(server, reader):
    def story():
        first = next_batch(reader)
        assert ranges(first) == {"0": (0, 10), "1": (0, 10)}
        second = next_batch(reader, first)
        assert ranges(second) == {"0": (10, 20), "1": (10, 20)}
        assert stored(server) == {T0: 10, T1: 10}
        reader.commit(second)
        assert stored(server) == {T0: 20, T1: 20}

    await asyncio.to_thread(story)


async def test_the_share_of_a_query_is_told_for_its_progress(server, reader):
    def story():
        assert reader.reportLatestOffset() is None, "nothing was looked at"
        first = next_batch(reader)
        told = reader.reportLatestOffset()
        assert (told["group"], told["topic"], told["partitions"]) == ("g", "t", 2)
        assert (told["owned"], told["lag"], told["backlog"]) == ([0, 1], 2 * ROWS, 2 * ROWS - 20)
        assert told["offsets"]["1"] == {"committed": 0, "planned": 10, "end": ROWS}
        assert told["member"] == reader._planner.member.member_id
        next_batch(reader, first)
        assert reader.reportLatestOffset()["lag"] == 2 * ROWS - 20

    await asyncio.to_thread(story)


async def test_a_plain_querys_other_partitions_are_stored_though_one_was_done_elsewhere(
    server, reader
):
    def story():
        first = next_batch(reader)
        interfere(server, {T0: 30}, {T0: -1})
        second = next_batch(reader, first)
        assert stored(server) == {T0: 30, T1: 10}
        assert ranges(second) == {"0": (30, 40), "1": (10, 20)}

    await asyncio.to_thread(story)


async def test_rows_that_an_exactly_once_sink_has_dropped_are_read_again(server, reader):
    """Its sink is refused for one partition, and drops the rows of both."""

    def story():
        first = next_batch(reader)
        interfere(server, {T0: 30, MANIFESTS: 1}, {T0: -1, MANIFESTS: -1})
        second = next_batch(reader, first)
        assert stored(server) == {T0: 30, MANIFESTS: 1}
        assert ranges(second) == {"0": (30, 40), "1": (0, 10)}

    await asyncio.to_thread(story)


async def test_a_batch_that_its_sink_has_stored_costs_no_look_at_the_offsets(server, reader):
    def story():
        first = next_batch(reader)
        interfere(server, {T0: 10, T1: 10, MANIFESTS: 1}, {T0: -1, T1: -1, MANIFESTS: -1})
        before = server.server.pipeline.calls["OffsetFetch", "OK"]
        second = next_batch(reader, first)
        assert ranges(second) == {"0": (10, 20), "1": (10, 20)}
        assert server.server.pipeline.calls["OffsetFetch", "OK"] == before

    await asyncio.to_thread(story)


async def polls_until_it_has_some(member: Member) -> None:
    while not member.assignment:
        await member.poll(timeout=0.05)


async def test_a_batch_is_stored_before_its_partition_is_given_back(server, reader):
    first = await asyncio.to_thread(next_batch, reader)
    async with Member(server.address, "g", {"t": 2}, assignors=COOPERATIVE) as other:
        # The query's member is told to give one back, and the batch is under way still.
        machine = reader._planner.member._member._machine.part.membership
        await until(lambda: machine.phase is MembershipPhase.REVOKING)
        second = await asyncio.to_thread(next_batch, reader, first)
        assert await asyncio.to_thread(stored, server) == {T0: 10, T1: 10}
        assert len(second["ranges"]) == 1
        await polls_until_it_has_some(other)


async def test_a_batch_that_outlives_a_partition_does_not_move_its_successor_back(
    server, reader, caplog
):
    """The successor is where the batch began, which a compare-and-set alone would not see."""
    reader._options = replace(reader._options, rebalance_timeout_ms=1_000)
    first = await asyncio.to_thread(next_batch, reader)
    async with Member(server.address, "g", {"t": 2}, assignors=COOPERATIVE) as successor:
        await polls_until_it_has_some(successor)
        (moved,) = successor.assignment
        (kept,) = {T0, T1} - successor.assignment
        second = await asyncio.to_thread(next_batch, reader, first)
        assert await asyncio.to_thread(stored, server) == {kept: 10}
        assert "outlived its partitions" in caplog.text
        assert moved.topic == "t"
        assert ranges(second) == {str(kept.partition): (10, 30)}


async def test_each_batch_is_announced_and_so_is_one_without_rows(server, reader):
    """Spark runs a first batch of a new checkpoint though there is nothing to read."""

    def found() -> dict[int, OffsetRange]:
        return announced_batch(os.getppid(), 0).batch.ranges

    def story():
        interfere(server, {T0: ROWS, T1: ROWS}, {T0: -1, T1: -1})
        nothing = next_batch(reader)
        assert nothing == reader.initialOffset()
        assert found() == {}
        of_checkpoint = BatchRanges(1, {0: OffsetRange(0, 5, -1)})
        assert len(reader.partitions(nothing, of_checkpoint.to_offset())) == 1
        assert found() == of_checkpoint.ranges
        assert reader.partitions(nothing, nothing) == []
        assert found() == {}
        reader.stop()
        with pytest.raises(SinkRefused, match="no group's stream that has announced"):
            found()

    await asyncio.to_thread(story)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), SinkRefused("not ours")])
async def test_a_query_that_cannot_announce_goes_on_without_an_exactly_once_sink(
    reader, monkeypatch, caplog, error
):
    def refused(*_: object) -> None:
        raise error

    def story():
        monkeypatch.setattr("coordinator.spark.announced._folder", refused)
        first = next_batch(reader)
        second = next_batch(reader, first)
        assert (first["number"], second["number"]) == (1, 2)

    await asyncio.to_thread(story)
    lines = [r.getMessage() for r in caplog.records if "cannot be announced" in r.getMessage()]
    assert len(lines) == 1
    assert str(error) in lines[0]


async def test_a_query_that_has_lost_all_and_joins_again_is_not_done(server, reader):
    """A plan without partitions would end a query with AvailableNow."""
    first = await asyncio.to_thread(next_batch, reader)
    await asyncio.to_thread(reader.commit, first)
    machine = reader._planner.member._member._machine.part.membership
    machine._lose("staged: its generation is known, and what it is given in it is not")
    machine.phase = MembershipPhase.SYNCING
    second = await asyncio.to_thread(next_batch, reader, first)
    assert ranges(second) == {"0": (10, 20), "1": (10, 20)}


# --- AvailableNow beside other owners ---------------------------------------------------------


async def beside_an_owner(server, tmp_path, story, **options):
    """Run a story of a reader with AvailableNow that owns one partition of two."""
    for partition in (0, 1):
        write_log(tmp_path, partition, pa.table({"n": range(ROWS)}))
    given = {"coordinator": server.address, "group": "g", "source": str(tmp_path), "topic": "t"}
    other = Member(server.address, "g", {"t": 2}, assignors=COOPERATIVE)
    reader = GroupStreamReader(StreamOptions.parse({**given, **options}))
    async with other:
        polling = asyncio.create_task(keep_polling(other))
        await until(lambda: len(other.assignment) == 2)
        # A cooperative rebalance hands a partition over in its second round.
        await asyncio.to_thread(wait_until, lambda: reader._planning()._joined().assignment)
        (theirs,) = other.assignment
        try:
            await asyncio.to_thread(story, reader, theirs)
        finally:
            polling.cancel()
            await asyncio.to_thread(reader.stop)


async def keep_polling(member: Member) -> None:
    while True:
        await member.poll(timeout=0.05)


@pytest.mark.parametrize("how", ["leave", "fail"])
async def test_rows_of_other_owners_are_left_to_them_or_fail_the_query(
    server, tmp_path, caplog, how
):
    def story(reader, theirs):
        reader.prepareForTriggerAvailableNow()
        first = next_batch(reader)
        (mine,) = {0, 1} - {theirs.partition}
        assert ranges(first) == {str(mine): (0, ROWS)}
        expected = (
            f"{ROWS} rows that were there .* those of the partitions {theirs.partition}, which"
        )
        if how == "fail":
            with pytest.raises(RowsLeftUnread, match=expected):
                next_batch(reader, first)
            interfere(server, {theirs: ROWS}, {theirs: -1})
        assert next_batch(reader, first) == first
        assert bool(re.search(expected, caplog.text)) is (how == "leave")

    await beside_an_owner(server, tmp_path, story, availableNowRest=how)


async def test_a_query_waits_for_rows_of_other_owners(server, tmp_path, monkeypatch):
    looks = []

    def story(reader, theirs):
        reader.prepareForTriggerAvailableNow()
        first = next_batch(reader)

        def look(seconds):
            looks.append(seconds)
            if len(looks) == 3:
                interfere(server, {theirs: ROWS}, {theirs: -1})

        monkeypatch.setattr(stream.time, "sleep", look)
        try:
            assert next_batch(reader, first) == first
        finally:
            monkeypatch.undo()
        assert looks == [stream.REST_LOOK_S] * 3

    await beside_an_owner(server, tmp_path, story, availableNowRest="wait")


async def test_a_query_shares_with_members_on_range_as_workers_do(server, reader):
    """Members that name range alone have the group on it: plain ones do so by default."""
    async with Member(server.address, "g", {"t": 2}) as other:
        await polls_until_it_has_some(other)
        keep_polling = asyncio.create_task(polls_for_ever(other))
        first = await asyncio.to_thread(next_batch, reader)  # The query has fallen back to range.
        assert len(first["ranges"]) == 1
        await asyncio.to_thread(next_batch, reader, first)
        (partition,) = first["ranges"]
        assert await asyncio.to_thread(stored, server) == {TopicPartition("t", int(partition)): 20}
        assert {TopicPartition("t", int(partition))} | other.assignment == {T0, T1}
        keep_polling.cancel()


async def polls_for_ever(member: Member) -> None:
    while True:
        await member.poll(timeout=0.05)
