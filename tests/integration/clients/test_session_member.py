"""Session members over real gRPC, with a node on this loop."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.assignors import TopicPartition
from coordinator.client import Granted, Holding, Member, MemberEvent, Revoking, Stopping
from coordinator.client.errors import StaleMember
from tests.integration.waiting import until
from tests.serving import running

WISHES = {"lease_ms": 30_000, "join_quiet_ms": 0, "initial_delay_ms": 0}
TOPICS = {"t": 3}


def member(server, name: str, **settings) -> Member:
    made = {"member_name": name, "wishes": WISHES} | settings
    return Member(server.address, "g", TOPICS, protocol="session", **made)


async def told(member: Member, kind: type, count: int = 1) -> list[Holding]:
    """Holdings of the events of one kind, when there are so many."""
    seen: list[Holding] = []
    async with asyncio.timeout(60):
        while len(seen) < count:
            seen += told_in(await member.poll(timeout=None), kind)
    return seen


def told_in(events: list[MemberEvent], kind: type) -> list[Holding]:
    return [held for event in events if isinstance(event, kind) for held in event.holdings]


@pytest.fixture
async def server():
    async with running(group_min_lease_ms=500) as server:
        yield server


async def test_partitions_are_granted_drained_and_handed_over(server):
    async with member(server, "w-a") as a:
        granted = await told(a, Granted, 3)
        assert {each.partition.partition for each in granted} == {0, 1, 2}
        assert all(a.valid(each) and a.valid(each.partition) for each in granted)
        await a.commit({each.partition: 10 + each.partition.partition for each in granted})
        async with member(server, "w-b") as b:
            [revoked] = await told(a, Revoking)
            moved = revoked.partition
            await a.commit({moved: 70}, holdings=revoked)
            a.released(revoked)
            with pytest.raises(StaleMember, match="released"):
                await a.commit({moved: 71})
            [grant] = await told(b, Granted)
            assert (grant.partition, grant.offset) == (moved, 70)
            assert grant.token > revoked.token
            assert await b.committed([moved]) == {moved: 70}
        again = await told(a, Granted)
        assert [each.partition for each in again] == [moved]
    assert a.state == "stopped"


async def test_a_member_that_drains_is_told_partition_by_partition(server):
    async with member(server, "w-a") as a, member(server, "w-b") as b:
        await told(a, Granted)
        await told(b, Granted)
        a.drain(20_000, "shutting down")
        events: list[MemberEvent] = []
        while not any(isinstance(each, Stopping) for each in events):
            events = await a.poll(timeout=None)
            a.released(told_in(events, Revoking))
        assert a.state == "stopped"
        while len(b.assignment) < 3:
            await b.poll(timeout=1.0)


async def test_a_name_that_returns_keeps_its_partitions(server):
    a = member(server, "w-a")
    await a.start()
    before = {each.partition: each.token for each in await told(a, Granted, 3)}
    await a.close(return_within_ms=60_000)
    async with member(server, "w-a") as again:
        after = {each.partition: each.token for each in await told(again, Granted, 3)}
    assert after.keys() == before.keys()
    assert min(after.values()) > max(before.values())


async def test_a_broken_connection_is_resumed_under_the_same_tokens(server):
    async with member(server, "w-a") as a:
        await told(a, Granted, 3)
        tokens = {p: a.token(p) for p in a.assignment}
        part = a._machine.part
        stream = part._open
        await a._driver._connection.close()
        await until(lambda: part._open not in (None, stream) and part.stream._is_attached)
        assert await a.poll(timeout=0) == []
        assert {p: a.token(p) for p in a.assignment} == tokens
        await a.commit({TopicPartition("t", 0): 5})
