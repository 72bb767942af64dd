"""Workers of session groups with a real node, on virtual time."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.assignors import TopicPartition
from coordinator.client import BlockingPartition, Partition, Worker

WISHES = {"lease_ms": 30_000, "join_quiet_ms": 0, "initial_delay_ms": 0}
ALL = {TopicPartition("t", number) for number in range(4)}


@pytest.fixture
def group(virtual_group):
    return virtual_group(shards=1)


def worker(group, **settings) -> Worker:
    made = {"topics": {"t": 4}, "protocol": "session", "wishes": WISHES, "idle_ms": 20}
    return Worker(group.address, "g", **made | settings)


def held(worker: Worker) -> set[TopicPartition]:
    return set(worker.state.partitions)


async def test_threads_hand_over(group):
    a, b = worker(group), worker(group)

    def handle(p: BlockingPartition) -> None:
        position = max(p.position, 0)
        while not p.revoking.wait(0.01):
            position += 1
            p.commit(position)

    a.handler(drain="manual")(handle)
    b.handler(drain="manual")(handle)
    async with a:
        await group.until(lambda: held(a) == ALL)
        async with b:
            await group.until(lambda: len(held(a)) == len(held(b)) == 2)
    assert not a.state.counts["failures"] + b.state.counts["failures"]


async def test_a_handler_that_fails_again_and_again_is_refused(group):
    bad = worker(group, max_failures=2, retry_backoff_ms=10)
    refused: list[int] = []

    @bad.handler
    async def fail(p: Partition) -> None:
        if p.number == 0:
            refused.append(p.token)
            raise ValueError("this row is poison")
        await p.revoking.wait()

    good = worker(group)

    @good.handler
    async def handle(p: Partition) -> None:
        await p.revoking.wait()

    async with bad:
        await group.until(lambda: TopicPartition("t", 0) not in held(bad) and len(held(bad)) == 3)
        assert len(refused) == 2
        async with good:
            await group.until(lambda: TopicPartition("t", 0) in held(good))


async def test_warm_hooks_prepare_while_the_other_one_works(group):
    wishes = WISHES | {"mode": "warm"}
    a, b = worker(group, wishes=wishes), worker(group, wishes=wishes)
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
        await group.until(lambda: held(a) == ALL)
        async with b:
            await group.until(lambda: len(warmed) == 2)
            assert held(a) == ALL
            assert all(not token and not valid for _, token, valid in warmed)
            may_go_on.set()
            await group.until(lambda: len(held(a)) == len(held(b)) == 2)
            assert {p.partition for p in held(b)} == {number for number, _, _ in warmed}


async def test_a_name_that_returns_finds_its_partitions(group):
    async def handle(p: Partition) -> None:
        await p.revoking.wait()

    first = worker(group, member_name="w-a", return_within_ms=60_000)
    first.handler(handle)
    async with first:
        await group.until(lambda: held(first) == ALL)
        tokens = {key: one.token for key, one in first.state.partitions.items()}
    other = worker(group)
    other.handler(handle)
    async with other:
        await group.advance(5)
        assert held(other) == set()
        again = first.copy()
        async with again:
            await group.until(lambda: held(again) == ALL)
            assert all(one.token > tokens[key] for key, one in again.state.partitions.items())
