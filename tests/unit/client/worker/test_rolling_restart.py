"""A rolling restart under workers whose handlers never look at `revoking`.

A partition is idle while nobody works on it who may commit: from one commit that the coordinator
has accepted to the next one, less the time that the work before the second one took. So a handler
that does not run, one whose commit waits, and work that is done in vain are all idle time. It may
last a heartbeat interval, in which the others hear of the rebalance, and a second.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from itertools import pairwise

import pytest

from coordinator.client import BlockingPartition, Partition, Worker
from tests.unit.client.worker.kit import Town

pytestmark = pytest.mark.virtual_time

WORKERS = 6
PARTITIONS = 60
HEARTBEAT_S = 3.0
ALLOWED_S = HEARTBEAT_S + 1.0


class Fleet:
    """Workers of one group, and what became of each piece of their work."""

    def __init__(self, colour: str, work_s: float, **settings) -> None:
        self.town = Town(PARTITIONS)
        self.dice = random.Random(19)
        self.owner: dict[int, str] = {}
        self.worked_s: dict[tuple[int, int], float] = {}
        """Time that the last work on an offset of a partition took."""
        self._serving: dict[str, tuple[Worker, asyncio.Task]] = {}
        self._start = self._start_async if colour == "async def" else self._start_threads
        self._work_s, self._settings = work_s, settings

    async def __aenter__(self) -> Fleet:
        for number in range(WORKERS):
            self.start(f"w{number}")
        await self.until_all_work()
        return self

    async def __aexit__(self, *_: object) -> None:
        for worker, _task in self._serving.values():
            worker.stop()
        await asyncio.gather(*(task for _, task in self._serving.values()))

    def start(self, name: str) -> None:
        worker = self.town.worker(name, **self._settings)
        self._start(name, worker)
        self._serving[name] = worker, self.town.serve(worker)

    async def restart(self, name: str) -> None:
        """Stop a worker as SIGTERM does, and start it again as soon as it has ended."""
        worker, task = self._serving[name]
        worker.stop("stopped by SIGTERM")
        await task
        self.start(name)

    async def until_all_work(self) -> None:
        await self.town.until(lambda: len(self.owner) == PARTITIONS)
        await asyncio.sleep(15)

    def shares(self) -> list[int]:
        """Numbers of partitions of the workers."""
        return [len(worker.state.partitions) for worker, _ in self._serving.values()]

    def idle_s(self, since_s: float) -> list[float]:
        """The longest idle time of each partition; one not committed of late is idle now."""
        accepted = defaultdict(list)
        for at_s, _, number, offset in self.town.commits:
            if at_s >= since_s:
                accepted[number].append((at_s, self.worked_s[number, offset]))
        now = self.town.loop.time(), self._work_s * 1.5
        return [
            max(
                then_s - last_s - worked_s
                for (last_s, _), (then_s, worked_s) in pairwise([*commits, now])
            )
            for commits in accepted.values()
        ]

    def _start_async(self, name: str, worker: Worker) -> None:
        @worker.handler
        async def handle(p: Partition) -> None:
            self._take(p.number, name)
            try:
                while True:
                    await asyncio.sleep(self._work_on(p.number, offset := p.position + 1))
                    await p.commit(offset)
            finally:
                del self.owner[p.number]

    def _start_threads(self, name: str, worker: Worker) -> None:
        @worker.handler
        def handle(p: BlockingPartition) -> None:
            self._take(p.number, name)
            try:
                while True:
                    worker.environment.sleep(self._work_on(p.number, offset := p.position + 1))
                    p.commit(offset)
            finally:
                del self.owner[p.number]

    def _take(self, number: int, name: str) -> None:
        assert self.owner.setdefault(number, name) == name, "two handlers of one partition"

    def _work_on(self, number: int, offset: int) -> float:
        """Seconds that the work takes after which an offset is committed."""
        self.worked_s[number, offset] = self._work_s * (0.5 + self.dice.random())
        return self.worked_s[number, offset]


async def longest_idle_s(fleet: Fleet) -> float:
    """Restart all, one after the other; the longest idle time of a partition."""
    began_s = fleet.town.loop.time() - 12
    for number in range(WORKERS):
        await fleet.restart(f"w{number}")
        await asyncio.sleep(5 * fleet.dice.random())
    await fleet.until_all_work()
    assert len(fleet.owner) == PARTITIONS
    assert max(fleet.shares()) - min(fleet.shares()) <= 1
    idle_s = fleet.idle_s(began_s)
    assert len(idle_s) == PARTITIONS
    return max(idle_s)


@pytest.mark.parametrize("work_s", [2.0, 7.0])
@pytest.mark.parametrize("colour", ["async def", "def"])
async def test_no_partition_rests_longer_than_a_heartbeat_interval_and_a_second(colour, work_s):
    async with Fleet(colour, work_s) as fleet:
        assert await longest_idle_s(fleet) <= ALLOWED_S


async def test_with_range_partitions_rest_until_the_slowest_work_is_done():
    """Eager members give everything back before they join; the coordinator waits for the last."""
    async with Fleet("async def", 7.0, assignors=("range",)) as fleet:
        assert await longest_idle_s(fleet) > 2 * ALLOWED_S
