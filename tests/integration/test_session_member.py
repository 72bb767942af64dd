"""Session members over real gRPC, with a node on this loop."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.assignors import TopicPartition
from coordinator.client import Member
from coordinator.client.errors import StaleMember
from coordinator.client.member.events import Granted, Revoking, Stopping
from tests.integration.waiting import until
from tests.serving import running

WISHES = {"lease_ms": 2_000, "join_quiet_ms": 0, "initial_delay_ms": 0}
TOPICS = {"t": 3}


def member(server, name: str, **settings) -> Member:
    made = {"member_name": name, "wishes": WISHES} | settings
    return Member(server.address, "g", TOPICS, **made, protocol="session")


async def changes(member: Member, kind: type, count: int = 1) -> list:
    """Changes, to the last of so many of a kind."""
    seen = []
    async with asyncio.timeout(60):
        while sum(isinstance(each, kind) for each in seen) < count:
            seen += await member.poll(timeout=None)
    return seen


@pytest.fixture
async def server():
    async with running(group_min_lease_ms=500) as server:
        yield server


async def test_partitions_are_granted_drained_and_handed_over(server):
    async with member(server, "w-a") as a:
        granted = [each for each in await changes(a, Granted, 3) if isinstance(each, Granted)]
        assert {each.partition.partition for each in granted} == {0, 1, 2}
        assert all(a.valid(each.partition) for each in granted)
        await a.commit({each.partition: 10 + each.partition.partition for each in granted})
        async with member(server, "w-b") as b:
            [draining] = [e for e in await changes(a, Revoking) if isinstance(e, Revoking)]
            moved = draining.partition
            await a.commit({moved: 70})
            a.released(moved)
            with pytest.raises(StaleMember, match="released"):
                await a.commit({moved: 71})
            [grant] = [e for e in await changes(b, Granted) if isinstance(e, Granted)]
            assert (grant.partition, grant.offset) == (moved, 70)
            assert grant.token > draining.token
            assert await b.committed([moved]) == {moved: 70}
        again = await changes(a, Granted)
        assert again[-1].partition == moved
    assert a.state == "stopped"


async def test_a_member_that_drains_is_told_partition_by_partition(server):
    async with member(server, "w-a") as a, member(server, "w-b") as b:
        await changes(a, Granted)
        await changes(b, Granted)
        a.drain(20_000, "shutting down")
        seen = await changes(a, Revoking)
        for each in [e for e in seen if isinstance(e, Revoking)]:
            a.released(each.partition)
        while not any(isinstance(each, Stopping) for each in seen):
            seen = await a.poll(timeout=None)
            for each in [e for e in seen if isinstance(e, Revoking)]:
                a.released(each.partition)
        assert a.state == "stopped"
        while len(b.assignment) < 3:
            await b.poll(timeout=1.0)


async def test_a_name_that_returns_keeps_its_partitions(server):
    a = member(server, "w-a")
    await a.start()
    before = {e.partition: e.token for e in await changes(a, Granted, 3) if isinstance(e, Granted)}
    await a.close(return_within_ms=60_000)
    async with member(server, "w-a") as again:
        after = {
            e.partition: e.token for e in await changes(again, Granted, 3) if isinstance(e, Granted)
        }
    assert after.keys() == before.keys()
    assert min(after.values()) > max(before.values())


async def test_a_broken_connection_is_resumed_under_the_same_tokens(server):
    async with member(server, "w-a") as a:
        await changes(a, Granted, 3)
        tokens = {p: a.token(p) for p in a.assignment}
        stream = a._machine._stream
        await a._driver._connection.close()
        await until(
            lambda: a._machine._stream not in (None, stream) and a._machine.session._is_attached
        )
        assert await a.poll(timeout=0) == []
        assert {p: a.token(p) for p in a.assignment} == tokens
        await a.commit({TopicPartition("t", 0): 5})
