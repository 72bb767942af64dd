"""Workers at random: they come, leave, are cut off and come back; their handlers are slow, fail and
swallow what ends them. Offsets never go back, no partition has two handlers in a process, and in
the end each partition has one that works."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest

from coordinator.client import BlockingPartition, Partition, PartitionRevoked
from tests.unit.client.worker.kit import GROUP, Town

pytestmark = pytest.mark.virtual_time

PARTITIONS = 9
WORKERS = 4


class Chance:
    """One story of a group."""

    def __init__(self, seed: int, assignors: list[str]) -> None:
        self.dice = random.Random(seed)
        self.town = Town(PARTITIONS)
        self.assignors = assignors
        self.is_over = False
        self.running: dict[tuple[str, int], int] = {}
        self.worked: set[int] = set()
        self.stored = [-1] * PARTITIONS
        self.workers: dict[str, tuple] = {}

    @contextlib.contextmanager
    def one_handler(self, name: str, number: int):
        key = (name, number)
        assert key not in self.running, f"two handlers of {key}"
        self.running[key] = number
        try:
            yield
        finally:
            del self.running[key]

    def start(self, name: str) -> None:
        dice, town = self.dice, self.town
        worker = town.worker(
            name,
            assignors=self.assignors,
            session_timeout_ms=8_000,
            heartbeat_interval_ms=1_000,
            rebalance_timeout_ms=10_000,
            progress_timeout_ms=6_000,
            grace_ms=4_000,
            on_error=dice.choice(["retry", "release"]),
            concurrency=dice.choice([None, None, 4]),
        )
        worker.environment.answers_take_s = dice.choice([0.0, 0.003, 0.2])
        if dice.random() < 0.5:
            worker.handler(self.coroutine(name))
        else:
            worker.handler(self.thread(name, worker.environment))
        self.workers[name] = (worker, town.serve(worker))

    def coroutine(self, name: str):
        async def handle(p: Partition) -> None:
            with self.one_handler(name, p.number):
                for _ in range(self.dice.randrange(1, 6)):
                    pause_s = self.pause_s()
                    try:
                        await asyncio.sleep(pause_s)
                    except asyncio.CancelledError:
                        if self.is_over or self.dice.random() < 0.7:
                            raise
                        await asyncio.sleep(self.dice.choice([0.5, 5]))  # It does not end so soon.
                    await p.log_end(1_000_000)
                    await p.commit(p.position + 1)
                    self.worked.add(p.number)

        return handle

    def thread(self, name: str, environment):
        def handle(p: BlockingPartition) -> None:
            with self.one_handler(name, p.number):
                for _ in range(self.dice.randrange(1, 6)):
                    environment.sleep(self.pause_s())
                    try:
                        p.log_end(1_000_000)
                        p.commit(p.position + 1)
                    except PartitionRevoked:
                        if self.is_over or self.dice.random() < 0.7:
                            raise
                        environment.sleep(self.dice.choice([0.5, 5]))
                    self.worked.add(p.number)

        return handle

    def pause_s(self) -> float:
        if self.is_over:
            return 0.1
        if self.dice.random() < 0.1:
            raise ValueError("poison")
        return self.dice.choice([0.01, 0.1, 0.5, 0.5, 3, 9])

    def check_offsets(self) -> None:
        for number in range(PARTITIONS):
            stored = self.town.stored(number)
            assert stored >= self.stored[number], f"the offset of {number} has gone back"
            self.stored[number] = stored

    async def play(self, seconds: float) -> None:
        dice = self.dice
        ends = self.town.loop.time() + seconds
        for number in range(WORKERS):
            self.start(f"w{number}")
        while self.town.loop.time() < ends:
            await asyncio.sleep(dice.choice([0.1, 1, 4]))
            self.check_offsets()
            name = f"w{dice.randrange(WORKERS)}"
            worker, task = self.workers[name]
            match dice.randrange(4):
                case 0:
                    worker.environment.is_cut = not worker.environment.is_cut
                case 1 if not worker.environment.is_cut:
                    worker.stop("at random", grace_ms=dice.choice([0, None]))
                    await task
                    await self.town.until(lambda name=name: not self.runs_of(name))
                    self.start(name)

    def runs_of(self, name: str) -> list:
        return [key for key in self.running if key[0] == name]

    async def end(self) -> None:
        self.is_over = True
        for worker, _ in self.workers.values():
            worker.environment.is_cut = False
        await asyncio.sleep(90)
        self.worked.clear()
        await self.town.until(lambda: len(self.worked) == PARTITIONS, within_s=60)
        self.check_offsets()
        held = [key for worker, _ in self.workers.values() for key in worker.state.partitions]
        assert len(held) == len(set(held)) == PARTITIONS
        for worker, task in self.workers.values():
            worker.stop()
            await task
        members = self.town.coordinator.shard.machine.groups[GROUP].members
        assert not members
        assert not self.running


@pytest.mark.parametrize("assignors", [["cooperative-sticky"], ["range"]], ids=["coop", "range"])
@pytest.mark.parametrize("seed", range(4))
async def test_at_random(seed, assignors):
    chance = Chance(seed, assignors)
    await chance.play(120)
    await chance.end()
