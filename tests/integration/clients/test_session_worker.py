"""Workers of session groups over real gRPC, with a node on this loop."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.assignors import TopicPartition
from coordinator.client import BlockingPartition, Member, Partition, Worker
from tests.integration.waiting import until
from tests.serving import running

WISHES = {"lease_ms": 30_000, "join_quiet_ms": 0, "initial_delay_ms": 0}
TOPICS = {"t": 4}
ALL = {TopicPartition("t", number) for number in range(4)}


def worker(server, **settings) -> Worker:
    made = {"topics": TOPICS, "protocol": "session", "wishes": WISHES, "idle_ms": 20}
    return Worker(server.address, "g", **made | settings)


@pytest.fixture
async def server():
    async with running(group_min_lease_ms=500) as server:
        yield server


def held(worker: Worker) -> set[TopicPartition]:
    return set(worker.state.partitions)


async def test_handlers_commit_under_tokens_and_hand_over(server):
    seen: dict[int, list[tuple[str, int, int]]] = {number: [] for number in range(4)}

    def made(name: str) -> Worker:
        one = worker(server, member_name=name)

        @one.handler
        async def handle(p: Partition) -> None:
            seen[p.number].append((name, p.position, p.token))
            position = max(p.position, 0)
            while True:
                position += 1
                await asyncio.sleep(0.01)
                await p.commit(position)

        return one

    a, b = made("w-a"), made("w-b")
    async with a:
        await until(lambda: held(a) == ALL)
        async with b:
            await until(lambda: len(held(a)) == len(held(b)) == 2)
            await until(lambda: sum(len(each) for each in seen.values()) == 6)
            assert held(a) | held(b) == ALL
            moved = [each for each in seen.values() if len(each) == 2]
            for (_, _, before), (_, position, after) in moved:
                assert position > 0
                assert after > before
        await until(lambda: held(a) == ALL)
        assert not a.state.counts["failures"]
    assert a.state.phase == "stopped"


async def test_threads_hand_over_too(server):
    a, b = worker(server), worker(server)

    def handle(p: BlockingPartition) -> None:
        position = max(p.position, 0)
        while not p.revoking.wait(0.01):
            position += 1
            p.commit(position)

    a.handler(drain="manual")(handle)
    b.handler(drain="manual")(handle)
    async with a:
        await until(lambda: held(a) == ALL)
        async with b:
            await until(lambda: len(held(a)) == len(held(b)) == 2)
    assert not a.state.counts["failures"] + b.state.counts["failures"]


async def test_a_handler_that_fails_again_and_again_is_refused(server):
    bad = worker(server, max_failures=2, retry_backoff_ms=10)
    refused: list[int] = []

    @bad.handler
    async def fail(p: Partition) -> None:
        if p.number == 0:
            refused.append(p.token)
            raise ValueError("this row is poison")
        await p.revoking.wait()

    good = worker(server)

    @good.handler
    async def handle(p: Partition) -> None:
        await p.revoking.wait()

    async with bad:
        await until(lambda: TopicPartition("t", 0) not in held(bad) and len(held(bad)) == 3)
        assert len(refused) == 2
        async with good:
            await until(lambda: TopicPartition("t", 0) in held(good))


async def test_warm_hooks_prepare_while_the_other_one_works(server):
    wishes = WISHES | {"mode": "warm"}
    a, b = worker(server, wishes=wishes), worker(server, wishes=wishes)
    warmed: list[tuple[int, int, bool]] = []
    may_go_on = asyncio.Event()

    async def handle(p: Partition) -> None:
        await p.revoking.wait()

    a.handler(handle)
    b.handler(handle)

    @b.warm
    async def warm(p: Partition) -> None:
        warmed.append((p.number, p.token, p.valid))
        await may_go_on.wait()

    async with a:
        await until(lambda: held(a) == ALL)
        async with b:
            await until(lambda: len(warmed) == 2)
            assert held(a) == ALL
            assert all(not token and not valid for _, token, valid in warmed)
            may_go_on.set()
            await until(lambda: len(held(a)) == len(held(b)) == 2)
            assert {p.partition for p in held(b)} == {number for number, _, _ in warmed}


async def test_a_name_that_returns_finds_its_partitions(server):
    async def handle(p: Partition) -> None:
        await p.revoking.wait()

    first = worker(server, member_name="w-a", return_within_ms=60_000)
    first.handler(handle)
    async with first:
        await until(lambda: held(first) == ALL)
        tokens = {key: one.token for key, one in first.state.partitions.items()}
    async with Member(server.address, "g", TOPICS, protocol="session") as other:
        assert await other.poll(timeout=0.5) == []
        again = first.copy()
        async with again:
            await until(lambda: held(again) == ALL)
            assert all(one.token > tokens[key] for key, one in again.state.partitions.items())
