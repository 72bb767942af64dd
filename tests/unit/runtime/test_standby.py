"""A standby gathers what a leader has, and a leader made of it lacks nothing."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.core.config import GroupConfig
from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.ids import CallId, ShardId
from coordinator.core.values.requests import FetchOffsets
from coordinator.runtime.clock import AnchoredClock, RandomIds
from coordinator.runtime.payloads import PAYLOADS
from coordinator.runtime.shard_runner import ShardRunner
from coordinator.runtime.standby import LeaderUnreachable, SilentLeaders, Standby
from coordinator.runtime.watchers import Watchers
from coordinator.shard.followers import AckPolicy, FetchedEntries, FetchEntries
from coordinator.shard.shard import Shard
from coordinator.storage.coordination import NodeInfo
from coordinator.storage.log import ShardSnapshot
from coordinator.storage.memory import MemoryLog
from tests.kit import commands

pytestmark = pytest.mark.virtual_time
SHARD = ShardId(0)
LEADER = NodeInfo(1, "h", 1, "first")
OTHER = NodeInfo(3, "h", 3, "third")


class Pair:
    """A leader, and a standby which asks it without a network."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        world = asyncio.get_running_loop().world
        self.clock = AnchoredClock(world.wall_ns, world.monotonic_ns)
        self.failures: list[str] = []
        self.asked: list[NodeInfo] = []
        self.is_cut = False
        self.lies = 0
        self.leader = self.new_runner()
        self.standby = Standby(
            SHARD,
            log=self.log,
            clock=self.clock,
            new_shard=self.new_shard,
            fetch=self.fetch,
            report=self.failures.append,
            silent=SilentLeaders(self.failures.append, self.clock),
        )
        self.calls = 0

    def new_shard(self) -> Shard:
        acks = AckPolicy(node=1)
        return Shard(GroupConfig(), RandomIds(), PAYLOADS, now_ms=self.clock.now_ms(), acks=acks)

    def new_runner(self) -> ShardRunner:
        return ShardRunner(
            SHARD,
            new_shard=self.new_shard,
            log=self.log,
            clock=self.clock,
            watchers=Watchers(
                events=lambda *_: None,
                failure=lambda what, _: self.failures.append(what),
                recovery=lambda _: None,
            ),
        )

    async def fetch(self, leader, shard, leader_epoch, offset, min_bytes, max_wait_ms):
        self.asked.append(leader)
        if self.is_cut:
            raise LeaderUnreachable("cut")
        self.calls += 1
        found = await self.leader.fetch(
            FetchEntries(
                call_id=CallId(10_000 + self.calls),
                follower=2,
                offset=offset,
                min_bytes=min_bytes,
                max_wait_ms=max_wait_ms,
            )
        )
        if self.lies and found.entries:
            self.lies -= 1
            return FetchedEntries(entries=found.entries[1:], end_offset=found.end_offset)
        return found

    async def commit(self, offset: int) -> None:
        self.calls += 1
        answer = self.leader.submit(commands.commit(self.calls, offset, partitions=[("t", offset)]))
        assert (await answer).results[0].error is ErrorCode.NONE

    async def has(self, sequence: int) -> None:
        async with asyncio.timeout(10):
            while True:
                gathered = self.standby._gathered
                if gathered is not None and gathered.sequence >= sequence:
                    return
                await asyncio.sleep(0.01)

    async def promote(self) -> set[int]:
        """Make the standby the leader; the partitions with offsets there."""
        gathered = self.standby.stop()
        successor = self.new_runner()
        await successor.start(leader_epoch=2, standby=gathered)
        reply = successor.submit(FetchOffsets(call_id=CallId(1), group_id="g", partitions=None))
        found = {o.partition for o in reply.offsets}
        await successor.stop(ErrorCode.NOT_COORDINATOR)
        return found


@pytest.fixture
async def pair():
    pair = Pair()
    await pair.leader.start(leader_epoch=1)
    yield pair
    pair.standby.stop()
    await pair.leader.stop(ErrorCode.NOT_COORDINATOR)


async def test_a_standby_has_what_was_there_and_what_comes(pair):
    await pair.commit(1)
    pair.standby.follow(LEADER, 1)
    await pair.has(1)
    await pair.commit(2)
    await pair.has(2)
    assert pair.failures == []
    assert await pair.promote() == {1, 2}


async def test_a_standby_that_hears_nothing_reads_the_rest_from_the_store(pair):
    pair.standby.follow(LEADER, 1)
    await pair.commit(1)
    await pair.has(1)
    pair.is_cut = True
    await asyncio.sleep(0.7)  # The fetch that is parked ends.
    await pair.commit(2)
    await pair.commit(3)
    assert pair.standby._gathered.sequence == 1
    assert await pair.promote() == {1, 2, 3}


async def test_the_same_when_a_snapshot_has_taken_the_place_of_what_it_lacks(pair):
    pair.standby.follow(LEADER, 1)
    await pair.commit(1)
    await pair.has(1)
    pair.is_cut = True
    await asyncio.sleep(0.7)
    await pair.commit(2)
    await pair.commit(3)
    shard = pair.leader.shard
    records = tuple(pair.log._read(SHARD, 0).records())
    await pair.log.write_snapshot(pair.leader.driver._fence, ShardSnapshot(3, 3, records))
    assert shard is pair.leader.shard
    assert await pair.promote() == {1, 2, 3}


async def test_a_leader_that_keeps_entries_back_costs_time_and_no_data(pair):
    pair.standby.follow(LEADER, 1)
    await pair.commit(1)
    await pair.has(1)
    pair.lies = 1
    await pair.commit(2)
    await pair.commit(3)
    await pair.has(3)
    assert await pair.promote() == {1, 2, 3}


async def test_it_follows_the_next_leader_and_the_same_one_only_once(pair):
    pair.standby.follow(LEADER, 1)
    await pair.commit(1)
    await pair.has(1)
    task = pair.standby._task
    pair.standby.follow(NodeInfo(1, "h", 1, "first", in_sync=((0, 1, (1, 2)),)), 1)
    assert pair.standby._task is task
    pair.standby.follow(None, 2)
    assert pair.standby._task is None
    pair.standby.follow(OTHER, 3)
    await pair.commit(2)
    await pair.has(2)
    assert pair.asked[-1] is OTHER


async def test_a_leader_that_cannot_be_reached_is_reported_once_and_again_while_it_lasts(pair):
    pair.standby.follow(LEADER, 1)
    await pair.commit(1)
    await pair.has(1)
    pair.is_cut = True
    await asyncio.sleep(4.5)
    assert pair.failures == [], "a fail-over takes no longer"
    await asyncio.sleep(1.5)
    [line] = pair.failures
    assert line.startswith("standbys here have not reached node 1 at h:1 for 5.")
    assert line.endswith("and fall behind: cut")
    await asyncio.sleep(50)
    assert len(pair.failures) == 1
    await asyncio.sleep(20)
    assert len(pair.failures) == 2
    pair.is_cut = False
    await pair.commit(2)
    await pair.has(2)
    pair.is_cut = True
    await asyncio.sleep(4.5)
    assert len(pair.failures) == 2, "its silence has begun anew"
