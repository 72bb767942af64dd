"""Members of the client library against a real server."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from coordinator.client import (
    BlockingMember,
    CoordinatorError,
    FatalError,
    Granted,
    Lost,
    Member,
    Revoking,
    TopicPartition,
)
from coordinator.core.values.events import MemberLeft
from tests.kit.patience import HANG_S
from tests.kit.serving import Process, running

TOPICS = {"t": 6}
ALL = {TopicPartition("t", n) for n in range(6)}


def member(server, **settings) -> Member:
    defaults = {
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 30_000,
        "heartbeat_interval_ms": 50,
    }
    return Member(server.address, "g", TOPICS, **{**defaults, **settings})


async def settle(*members: Member, share: set | None = None) -> None:
    """Poll until the members hold all partitions, each once, in one generation."""
    async with asyncio.timeout(HANG_S):
        while True:
            for one in members:
                await one.poll(timeout=0.02)
            held = [p for one in members for p in one.assignment]
            generations = {one.generation for one in members}
            if sorted(held) == sorted(ALL) and len(generations) == 1:
                if all(one.assignment for one in members):
                    return


async def test_a_lone_member_is_given_everything_and_leaves_an_empty_group():
    async with running() as server:
        async with member(server) as one:
            events = await one.poll(timeout=HANG_S)
            (event,) = events
            assert isinstance(event, Granted)
            assert (event.partitions, event.generation) == (ALL, 1)
            assert one.is_leader
        await asyncio.sleep(0)
        stats = server.node.stats()
        assert sum(s.members for s in stats) == 0
        assert sum(s.groups.get("Empty", 0) for s in stats) == 1


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky", "cooperative-sticky"])
async def test_members_come_and_go_and_share_all_partitions(assignor):
    async with running() as server, contextlib.AsyncExitStack() as stack:
        members = []
        for _ in range(3):
            one = member(server, assignors=(assignor,))
            members.append(await stack.enter_async_context(one))
            await settle(*members)
        assert sorted(len(m.assignment) for m in members) == [2, 2, 2]
        await members.pop().close()
        await settle(*members)


async def test_a_cooperative_member_keeps_working_on_what_stays():
    async with running() as server:
        async with member(server, assignors=("cooperative-sticky",)) as one:
            await settle(one)
            before = one.assignment
            async with member(server, assignors=("cooperative-sticky",)) as two:
                seen = []
                async with asyncio.timeout(HANG_S):
                    while len(one.assignment) != 3 or len(two.assignment) != 3:
                        seen += await one.poll(timeout=0.02)
                        await two.poll(timeout=0.02)
                        assert not (one.assignment & two.assignment)
                        assert one.assignment <= before
                        assert len(one.assignment) >= 3  # Never stopped as a whole.
                revoked = [e.partitions for e in seen if isinstance(e, Revoking)]
                assert len(revoked) == 1
                assert len(revoked[0]) == 3


async def test_a_member_cut_off_stops_before_its_partitions_are_given_away():
    async with running(group_min_session_timeout_ms=100) as server:
        one = member(server, session_timeout_ms=5_000)
        await one.start()
        await settle(one)
        held = one.assignment
        one._machine.discovery.addresses[:] = ["127.0.0.1:1"]  # Nobody is there.
        await one._driver._connection.close()
        async with asyncio.timeout(HANG_S):
            while not (events := await one.poll(timeout=0.2)):
                pass
        assert [type(e) for e in events] == [Lost]
        assert events[0].partitions == held
        assert one.assignment == frozenset()
        await one.close()


async def test_a_member_without_progress_leaves_and_says_so():
    async with running() as server:
        async with member(server, max_poll_interval_ms=2_000) as one:
            await settle(one)
            async with asyncio.timeout(HANG_S):
                while not (left := [e for e in server.events if isinstance(e, MemberLeft)]):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            assert "no progress" in left[-1].reason
            assert [type(e) for e in await one.poll()] == [Lost]
            await settle(one)  # A poll brings it back.


async def test_a_second_process_with_the_same_instance_id_fences_the_first():
    async with running() as server:
        async with member(server, instance_id="worker-1") as first:
            await settle(first)
            async with member(server, instance_id="worker-1") as second:
                await settle(second)
                with pytest.raises(FatalError, match="FENCED_INSTANCE_ID"):
                    await poll_for_ever(first)


async def poll_for_ever(one: Member) -> None:
    async with asyncio.timeout(HANG_S):
        while True:
            await one.poll(timeout=0.1)


async def test_a_failure_inside_the_member_reaches_its_owner(monkeypatch):
    def fails(*_):
        raise ZeroDivisionError("an assignor's bug")

    async with running() as server:
        async with member(server) as one:
            monkeypatch.setattr(type(one._machine), "handle", fails)
            with pytest.raises(CoordinatorError, match="an assignor's bug"):
                await one.poll(timeout=HANG_S)


def test_a_blocking_member_works_from_plain_code():
    with Process("--group-initial-rebalance-delay-ms", "10") as server:
        with BlockingMember(
            server.address, "g", TOPICS, session_timeout_ms=30_000, heartbeat_interval_ms=100
        ) as one:
            (event,) = one.poll(timeout=HANG_S)
            assert isinstance(event, Granted)
            assert (event.partitions, event.generation) == (ALL, 1)
            one.commit({TopicPartition("t", 2): 3})
            assert one.committed() == {TopicPartition("t", 2): 3}
        with pytest.raises(RuntimeError, match="closed"):
            one.poll()
