"""Partitions that a worker of a classic group has released, or whose handler does not end."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from coordinator.client import Partition, Worker
from tests.unit.client.worker.kit import GROUP, Town

pytestmark = pytest.mark.virtual_time


async def works(p: Partition) -> None:
    for offset in range(p.position, 10**6):
        await asyncio.sleep(1)
        await p.commit(offset + 1)


class Pair:
    """Two workers with two partitions each. The first, or both, fail with some or hang in them."""

    def __init__(self, *, both: bool = False, **settings) -> None:
        self.town = Town(4)
        self.failing: set[int] = set()
        self.hanging: set[int] = set()
        self.one = self.town.worker("one", **settings)
        self.two = self.town.worker("two", **settings)
        self.one.handler(self.handle)
        self.two.handler(self.handle if both else works)
        self.serving = [self.town.serve(self.one), self.town.serve(self.two)]

    async def handle(self, p: Partition) -> None:
        for offset in range(p.position, 10**6):
            await asyncio.sleep(1)
            if p.number in self.failing:
                raise ValueError("the disk is full")
            if p.number in self.hanging:
                await p.log_end(offset + 100)
            while p.number in self.hanging:
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(1)
            await p.commit(offset + 1)

    async def settle(self) -> None:
        await self.town.until(lambda: len(numbers(self.one)) == len(numbers(self.two)) == 2)
        await asyncio.sleep(30)

    @property
    def generation(self) -> int:
        return self.town.coordinator.generation(GROUP)

    async def stop(self) -> None:
        self.hanging.clear()
        await self.town.stop(self.one, self.two)
        await asyncio.gather(*self.serving)


def numbers(worker: Worker) -> list[int]:
    return sorted(partition.partition for partition in worker.state.partitions)


@pytest.mark.parametrize("assignor", ["cooperative-sticky", "sticky", "range", "roundrobin"])
async def test_a_released_partition_goes_to_another_worker_in_one_rebalance(assignor):
    pair = Pair(on_error="release", assignors=[assignor])
    await pair.settle()
    before, (failing, kept) = pair.generation, numbers(pair.one)
    pair.failing.add(failing)
    await pair.town.until(lambda: failing in numbers(pair.two))
    await asyncio.sleep(60)
    assert (numbers(pair.one), len(numbers(pair.two))) == ([kept], 3)
    assert pair.generation == before + 1
    assert pair.one.state.counts["release"] == 1
    await pair.stop()


@pytest.mark.parametrize("policy", ["retry", "release"])
async def test_a_partition_stays_away_from_a_worker_whose_handler_of_it_hangs(policy):
    pair = Pair(on_error=policy, progress_timeout_ms=10_000)
    await pair.settle()
    before, (hanging, kept) = pair.generation, numbers(pair.one)
    pair.hanging.add(hanging)
    await pair.town.until(lambda: hanging in numbers(pair.two), within_s=30)
    assert pair.generation == before + 1
    await asyncio.sleep(1_000)
    third = pair.town.worker("three")
    third.handler(works)
    serving = pair.town.serve(third)
    await pair.town.until(lambda: numbers(third))
    await pair.town.stop(pair.two)
    await asyncio.sleep(60)
    assert kept in numbers(pair.one)
    assert hanging in numbers(third)
    assert pair.one.state.counts["release"] == 1
    await pair.town.stop(third)
    await serving
    await pair.stop()


async def test_a_poison_row_that_fails_everywhere_costs_few_rebalances():
    """A partition that comes back waits until the group is asked again whether somebody has it."""
    pair = Pair(both=True, on_error="release")
    await pair.settle()
    before = pair.generation
    pair.failing.add(0)
    await asyncio.sleep(1_000)
    attempts = sum(worker.state.counts["release"] for worker in (pair.one, pair.two))
    assert attempts > 10
    assert pair.generation - before < attempts // 2
    await pair.stop()


async def test_a_worker_takes_what_it_released_again_when_it_is_alone():
    pair = Pair(on_error="release")
    await pair.settle()
    (failing, _) = numbers(pair.one)
    pair.failing.add(failing)
    await pair.town.until(lambda: failing in numbers(pair.two))
    pair.failing.clear()
    await pair.town.stop(pair.two)
    await pair.town.until(lambda: numbers(pair.one) == [0, 1, 2, 3], within_s=30)
    await pair.stop()
