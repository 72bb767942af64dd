"""The task around a shard: what it does when the log says no while it loads."""

from __future__ import annotations

import asyncio

from coordinator.core.config import GroupConfig
from coordinator.core.errors import ErrorCode
from coordinator.core.ids import ShardId
from coordinator.runtime.clock import AnchoredClock, RandomIds
from coordinator.runtime.payloads import PAYLOADS
from coordinator.runtime.shard_runner import ShardRunner
from coordinator.runtime.watchers import Watchers
from coordinator.shard.shard import Shard
from coordinator.storage.memory import MemoryLog

SHARD = ShardId(0)


class Contended(MemoryLog):
    """Somebody fences the shard between the runner's fence and its load, so many times.

    Args:
        term: of the other one.
    """

    def __init__(self, times: int, term: int) -> None:
        super().__init__()
        self._times, self._term = times, term

    async def load(self, fence, after=0):
        if self._times:
            self._times -= 1
            self.fence_now(fence.shard, self._term)
        return self.load_now(fence, after)


def runner_of(log: MemoryLog) -> tuple[ShardRunner, list[str]]:
    failures: list[str] = []
    clock = AnchoredClock()
    runner = ShardRunner(
        SHARD,
        new_shard=lambda: Shard(GroupConfig(), RandomIds(), PAYLOADS, now_ms=clock.now_ms()),
        log=log,
        clock=clock,
        watchers=Watchers(
            events=lambda *_: None,
            failure=lambda what, _: failures.append(what),
            recovery=lambda _: None,
        ),
    )
    return runner, failures


async def test_an_earlier_attempt_of_the_same_node_does_not_stop_a_load():
    runner, failures = runner_of(Contended(times=3, term=5))
    async with asyncio.timeout(10):
        await runner.start(term=5)
    assert runner.is_loaded
    assert failures == []
    await runner.stop(ErrorCode.NOT_COORDINATOR)


async def test_a_later_term_does():
    runner, failures = runner_of(Contended(times=1, term=6))
    async with asyncio.timeout(10):
        await runner.start(term=5)
    assert not runner.is_loaded
    assert "led elsewhere" in failures[0]
    await runner.stop(ErrorCode.NOT_COORDINATOR)
