"""Stops of workers that nobody is left to take partitions from: no rebalance for each of them."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.client import Partition, Worker
from tests.unit.client.worker.kit import Town

pytestmark = pytest.mark.virtual_time

PARTITIONS = 12


def start(town: Town, name: str, every_s: float = 1.0) -> tuple[Worker, asyncio.Task]:
    """A worker whose handlers reach their next commits one after the other."""
    worker = town.worker(name)

    @worker.handler
    async def handle(p: Partition) -> None:
        await asyncio.sleep(p.number * every_s / 20)
        while True:
            await asyncio.sleep(every_s)
            await p.commit(p.position + 1)

    return worker, town.serve(worker)


def generation(town: Town) -> int:
    return town.coordinator.shard.machine.groups["g"].generation


async def rebalances_of_a_stop(*names: str) -> int:
    """Rebalances from the stop of all workers of a group to their end."""
    town = Town(PARTITIONS)
    workers, serving = zip(*(start(town, name) for name in names), strict=True)
    await town.until(lambda: all(w.state.partitions for w in workers))
    await asyncio.sleep(15)
    before = generation(town)
    for worker in workers:
        worker.stop("stopped by SIGTERM")
    await asyncio.gather(*serving)
    return generation(town) - before


async def test_a_lone_worker_that_stops_makes_no_rebalance_but_that_of_its_leave():
    assert await rebalances_of_a_stop("one") == 1


@pytest.mark.parametrize("count", [2, 5])
async def test_workers_that_stop_together_make_about_one_rebalance_each(count):
    assert await rebalances_of_a_stop(*(f"w{n}" for n in range(count))) <= count + 1


async def test_a_worker_that_comes_while_the_last_one_stops_takes_what_is_finished():
    town = Town(PARTITIONS)
    last, serving = start(town, "last", every_s=15.0)
    await town.until(lambda: town.stored(PARTITIONS - 1) > 0)
    last.stop("stopped by SIGTERM")
    await town.until(lambda: len(last.state.partitions) < PARTITIONS // 2)
    other, other_serving = start(town, "other")
    await town.until(lambda: len(other.state.partitions) >= PARTITIONS // 2)
    assert last.state.phase == "draining"
    assert not last.state.partitions.keys() & other.state.partitions.keys()
    await serving
    await town.until(lambda: len(other.state.partitions) == PARTITIONS)
    await town.stop(other)
    await other_serving
