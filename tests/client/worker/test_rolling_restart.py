"""A rolling restart under workers whose handlers never look at `revoking`.

A partition rests from the last commit of one holding to the first call of the handler in the next
one. It may rest for a heartbeat interval, in which the others hear of the rebalance, and a second.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from coordinator.client import Partition
from tests.client.worker.kit import Town

pytestmark = pytest.mark.virtual_time

WORKERS = 6
PARTITIONS = 60
HEARTBEAT_S = 3.0
ALLOWED_S = HEARTBEAT_S + 1.0


class Rests:
    """Handler of each partition, and the longest time that one rested."""

    def __init__(self, town: Town) -> None:
        self.town = town
        self.owner: dict[int, tuple[str, int]] = {}
        self.left_at: dict[int, float] = {}
        self.longest = 0.0

    async def handle(self, name: str, p: Partition, work_s: float) -> None:
        now = self.town.loop.time()
        me = (name, p.token)
        assert self.owner.setdefault(p.number, me) == me, "two handlers of one partition"
        if p.number in self.left_at:
            self.longest = max(self.longest, now - self.left_at.pop(p.number))
        try:
            while True:
                await asyncio.sleep(work_s)
                await p.commit(p.position + 1)
        finally:
            del self.owner[p.number]
            self.left_at[p.number] = self.town.loop.time()


@pytest.mark.parametrize("work_s", [1.0, 7.0])
async def test_no_partition_rests_longer_than_a_heartbeat_interval_and_a_second(work_s):
    town = Town(PARTITIONS)
    rests = Rests(town)
    dice = random.Random(19)
    serving: dict[str, tuple] = {}

    def start(name: str) -> None:
        worker = town.worker(name)

        @worker.handler
        async def handle(p: Partition) -> None:
            await rests.handle(name, p, work_s * (0.5 + dice.random()))

        serving[name] = (worker, town.serve(worker))

    for number in range(WORKERS):
        start(f"w{number}")
    await town.until(lambda: len(rests.owner) == PARTITIONS)
    await asyncio.sleep(30)
    rests.longest = 0.0
    for number in range(WORKERS):
        worker, task = serving[f"w{number}"]
        worker.stop("stopped by SIGTERM")
        await task
        start(f"w{number}")
        await asyncio.sleep(20 * dice.random())
    await town.until(lambda: len(rests.owner) == PARTITIONS)
    await asyncio.sleep(30)
    assert rests.longest <= ALLOWED_S
    assert len(rests.owner) == PARTITIONS
    held = [len(worker.state.partitions) for worker, _ in serving.values()]
    assert max(held) - min(held) <= 1
    for worker, _ in serving.values():
        worker.stop()
    await asyncio.gather(*(task for _, task in serving.values()))
