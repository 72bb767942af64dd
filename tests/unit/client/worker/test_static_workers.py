"""Static workers that stop: a restart within the session is no rebalance."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.client import Partition, Worker
from coordinator.observe.explain import explain
from tests.unit.client.worker.kit import Town

pytestmark = pytest.mark.virtual_time

EAGER_AND_NOT = pytest.mark.parametrize("assignors", ["cooperative-sticky", "range"])


def group_of(town: Town):
    return town.coordinator.shard.machine.groups["g"]


class Shop:
    """Workers whose handlers commit each second, those of higher partitions later in it."""

    def __init__(self, partitions: int, **settings) -> None:
        self.town = Town(partitions)
        self._settings = settings
        self._serving: dict[Worker, asyncio.Task] = {}

    def open(self, name: str, *, every_s: float = 1.0, **settings) -> Worker:
        options = {"client_id": name, **self._settings, **settings}
        worker = self.town.worker(name, **options)

        @worker.handler
        async def handle(p: Partition) -> None:
            await asyncio.sleep(p.number * every_s / 4)
            while True:
                await asyncio.sleep(every_s)
                await p.commit(p.position + 1)

        self._serving[worker] = self.town.serve(worker)
        return worker

    async def until_shared(self, *workers: Worker) -> None:
        await self.town.until(
            lambda: all(w.state.partitions and w.state.phase == "stable" for w in workers)
        )
        await asyncio.sleep(15)

    async def stop(self, worker: Worker, **how) -> None:
        worker.stop("stopped by SIGTERM", **how)
        await self._serving.pop(worker)

    async def close(self) -> None:
        for worker in list(self._serving):
            await self.stop(worker, leave=True)


@EAGER_AND_NOT
async def test_restarts_of_static_workers_are_no_rebalances(assignors):
    shop = Shop(8, assignors=assignors)
    workers = [shop.open(name, instance_id=name) for name in "ab"]
    await shop.until_shared(*workers)
    generation = group_of(shop.town).generation
    held = [set(worker.state.partitions) for worker in workers]
    for _ in range(3):
        for number, name in enumerate("ab"):
            await shop.stop(workers[number])
            await asyncio.sleep(2)
            workers[number] = shop.open(name, instance_id=name)
            await shop.until_shared(*workers)
    assert group_of(shop.town).generation == generation
    assert [set(worker.state.partitions) for worker in workers] == held
    await shop.close()


async def test_a_static_worker_that_stops_sends_nothing_but_its_last_commits():
    shop = Shop(4)
    worker, town = shop.open("a", instance_id="a"), shop.town
    await shop.until_shared(worker)
    before = town.calls.copy()
    await shop.stop(worker)
    sent = {kind for _, kind in town.calls - before}
    assert sent <= {"OffsetCommitRequest", "HeartbeatRequest"}
    assert len({number for _, _, number, _ in town.commits[-4:]}) == 4
    assert len(group_of(town).members) == 1


async def test_a_static_worker_that_stops_gives_others_what_the_group_takes_away():
    shop = Shop(4)
    worker = shop.open("a", instance_id="a", every_s=15.0)
    await shop.until_shared(worker)
    worker.stop("stopped by SIGTERM")
    other = shop.open("b")
    await shop.town.until(lambda: len(other.state.partitions) > 0)
    assert worker.state.phase == "draining"
    await shop.stop(worker)
    assert len(group_of(shop.town).members) == 2
    again = shop.open("a", instance_id="a")
    await shop.until_shared(again, other)
    assert len(again.state.partitions) == len(other.state.partitions) == 2
    await shop.close()


@EAGER_AND_NOT
async def test_a_static_worker_leaves_if_it_is_told_to(assignors):
    shop = Shop(4, assignors=assignors)
    worker = shop.open("a", instance_id="a")
    await shop.until_shared(worker)
    await shop.stop(worker, leave=True)
    assert len(group_of(shop.town).members) == 0


async def test_a_static_worker_that_was_stopped_before_may_still_be_told_to_leave():
    shop = Shop(4)
    worker = shop.open("a", instance_id="a")
    await shop.until_shared(worker)
    worker.stop("stopped by SIGTERM")
    await asyncio.sleep(0.01)
    await shop.stop(worker, grace_ms=0, leave=True)
    assert len(group_of(shop.town).members) == 0


async def test_a_static_worker_leaves_if_its_error_policy_stops_it():
    town = Town(1)
    worker = town.worker(instance_id="i", on_error="stop")

    @worker.handler
    async def handle(p: Partition) -> None:
        raise ValueError("a poison row")

    with pytest.raises(ValueError, match="poison"):
        await town.serve(worker)
    assert len(group_of(town).members) == 0


async def test_a_static_worker_that_does_not_return_is_told_of():
    shop = Shop(4)
    gone, other = shop.open("a", instance_id="pod-0"), shop.open("b")
    await shop.until_shared(gone, other)
    await shop.stop(gone)
    await shop.town.until(lambda: len(other.state.partitions) == 4)
    told = [" ".join(explain(record)) for record in group_of(shop.town).journal]
    assert any("session timeout: the static member pod-0 did not return." in text for text in told)
    await shop.close()
