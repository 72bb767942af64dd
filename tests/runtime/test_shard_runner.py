"""The task around a shard: what it does when the log says no while it loads, and with our bugs."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace

import pytest

from coordinator.core.commands import CommitOffsets, FetchOffsets, Heartbeat, PartitionCommit
from coordinator.core.config import GroupConfig
from coordinator.core.errors import ErrorCode
from coordinator.core.ids import CallId, ShardId
from coordinator.runtime import shard_runner
from coordinator.runtime.clock import AnchoredClock, RandomIds
from coordinator.runtime.payloads import PAYLOADS
from coordinator.runtime.shard_runner import ShardRunner
from coordinator.runtime.watchers import Watchers
from coordinator.shard.outbox import Revive, Tick
from coordinator.shard.replicas import FetchEntries
from coordinator.shard.shard import Shard
from coordinator.storage.memory import MemoryLog
from coordinator.testing.virtual import CountingIds
from timer.clock import VirtualClock
from timer.timer import Timer

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


# --- Bugs -----------------------------------------------------------------------------------------


class Bug(Exception):
    """Ours."""


class Broken(Shard):
    """A shard whose steps fail for some inputs, and whose load may fail as well.

    Args:
        plan: names of inputs, or "restore" and "replay", and how often each is to fail.
    """

    def __init__(self, plan: dict[str, int]) -> None:
        super().__init__(GroupConfig(), CountingIds(), PAYLOADS, now_ms=0)
        self._plan = plan

    def _fail_if_planned(self, name: str) -> None:
        if self._plan.get(name, 0):
            self._plan[name] -= 1
            raise Bug(name)

    def step(self, event, now_ms):
        self._fail_if_planned(type(event).__name__)
        return super().step(event, now_ms)

    def beat(self, *arguments):
        self._fail_if_planned("beat")
        return super().beat(*arguments)

    def replay(self, records, now_ms):
        self._fail_if_planned("replay")
        super().replay(records, now_ms)

    def restore(self, now_ms, **more):
        self._fail_if_planned("restore")
        return super().restore(now_ms, **more)


class Bench:
    """A runner on the real loop, whose back-offs are no time at all."""

    def __init__(self, monkeypatch, log: MemoryLog | None = None) -> None:
        self.sleeps: list[float] = []
        self.failures: list[tuple[str, BaseException | None]] = []
        self.plan: dict[str, int] = {}
        self.log = log or MemoryLog()
        self.clock = VirtualClock()
        self._calls = itertools.count(1)
        sleep = asyncio.sleep

        async def short(seconds: float) -> None:
            self.sleeps.append(seconds)
            await sleep(0)

        monkeypatch.setattr(shard_runner.asyncio, "sleep", short)
        self.runner = ShardRunner(
            SHARD,
            new_shard=lambda: Broken(self.plan),
            log=self.log,
            clock=self.clock,
            watchers=Watchers(
                events=lambda *_: None,
                failure=lambda what, error: self.failures.append((what, error)),
                recovery=lambda _: None,
            ),
        )

    async def until(self, is_so) -> None:
        for _ in range(10_000):
            if is_so():
                return
            await asyncio.sleep(0)
        raise AssertionError("it does not happen")

    async def until_loaded(self) -> None:
        await self.until(lambda: self.runner.is_loaded)

    def commit(self, offset: int, **more):
        partition = PartitionCommit("t", 0, offset, **more)
        call_id = CallId(next(self._calls))
        return self.runner.submit(
            CommitOffsets(call_id=call_id, group_id="g", partitions=(partition,))
        )

    def fetch(self):
        return self.runner.submit(FetchOffsets(call_id=CallId(next(self._calls)), group_id="g"))

    def tracebacks(self) -> list[str]:
        return [str(error) for _, error in self.failures if error is not None]


@pytest.fixture
async def bench(monkeypatch):
    bench = Bench(monkeypatch)
    await bench.runner.start()
    assert (await bench.commit(7)).results[0].error is ErrorCode.NONE
    yield bench
    bench.plan.clear()
    await bench.runner.stop(ErrorCode.NOT_COORDINATOR)


async def is_well(bench: Bench) -> None:
    """What was durable is served again, and commits are taken."""
    await bench.until_loaded()
    assert bench.fetch().offsets[0].offset == 7
    assert (await bench.commit(7)).results[0].error is ErrorCode.NONE


CAUSES = {
    "CommitOffsets": lambda bench: bench.commit(8),
    "Appended": lambda bench: bench.commit(8),
    "AppendFailed": lambda bench: (bench.log.fail_next_append("too_large"), bench.commit(8))[1],
    "Tick": lambda bench: bench.runner._step(Tick()),
    "Revive": lambda bench: bench.runner._step(Revive()),
    "CallCancelled": lambda bench: bench.runner.cancel(parked(bench)),
    "FetchEntries": lambda bench: asyncio.ensure_future(
        bench.runner.fetch(
            FetchEntries(call_id=CallId(99), follower=2, offset=1, min_bytes=1, max_wait_ms=5)
        )
    ),
    "Heartbeat": lambda bench: bench.runner.submit_now(
        Heartbeat(call_id=CallId(99), group_id="g", generation=1, member_id="m")
    ),
    "beat": lambda bench: bench.runner.beat("g", "m", None, 1),
}


def parked(bench: Bench) -> CallId:
    """A call that waits for the log."""
    bench.commit(8)
    return CallId(next(iter(bench.runner._calls)))


@pytest.mark.parametrize("step", CAUSES)
async def test_a_bug_in_a_step_answers_everybody_and_loads_the_shard_again(bench, step):
    bench.plan[step] = 1
    waiting = CAUSES[step](bench)
    await bench.until(lambda: bench.failures)
    assert not bench.runner.is_loaded
    if isinstance(waiting, asyncio.Future):
        answer = await waiting
        assert answer is not None
    assert not bench.runner._calls
    assert bench.tracebacks() == [step]
    assert bench.fetch().error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await bench.until_loaded()
    assert (await bench.commit(9)).results[0].error is ErrorCode.NONE
    assert bench.fetch().offsets[0].offset == 9


@pytest.mark.parametrize("step", ["replay", "restore"])
@pytest.mark.parametrize("times", [1, 5])
async def test_a_bug_in_a_load_serves_nobody_before_the_load_has_ended(bench, step, times):
    bench.plan |= {"Tick": 1, step: times}
    bench.runner._step(Tick())
    for _ in range(times):
        bugs = len(bench.failures)
        await bench.until(lambda bugs=bugs: len(bench.failures) > bugs)
        assert not bench.runner.is_loaded
        assert bench.fetch().error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await is_well(bench)
    assert bench.tracebacks() == ["Tick", step], "each is told once with its traceback"


async def test_a_bug_that_comes_back_is_met_by_a_back_off_that_grows(bench):
    bench.sleeps.clear()
    bench.plan |= {"Tick": 1, "restore": 9}
    bench.runner._step(Tick())
    await is_well(bench)
    backoffs = [seconds for seconds in bench.sleeps if seconds >= 1]
    assert backoffs == [1, 2, 4, 8, 16, 32, 60, 60, 60, 60]
    bench.clock.advance(60_000, Timer(0))
    bench.sleeps.clear()
    bench.plan["Tick"] = 1
    bench.runner._step(Tick())
    await is_well(bench)
    assert [seconds for seconds in bench.sleeps if seconds >= 1] == [1], "it has served long enough"


@pytest.mark.parametrize("step", ["replay", "restore"])
async def test_a_bug_in_the_first_load_does_not_end_the_node(monkeypatch, step):
    bench = Bench(monkeypatch)
    bench.plan[step] = 2
    await bench.runner.start()
    assert not bench.runner.is_loaded
    await bench.until_loaded()
    assert (await bench.commit(1)).results[0].error is ErrorCode.NONE
    await bench.runner.stop(ErrorCode.NOT_COORDINATOR)


async def test_a_bug_in_the_codec_leaves_no_append_pending(bench, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(shard_runner.codec, "encode", lambda record: 1 / 0)
        answer = await bench.commit(8)
    assert answer.results[0].error is ErrorCode.UNKNOWN_SERVER_ERROR
    await is_well(bench)


async def test_a_heartbeat_that_has_two_answers_is_a_bug_of_the_step(bench, monkeypatch):
    step = Shard.step

    def twice(self, event, now_ms):
        outbox = step(self, event, now_ms)
        outbox.replies *= 2
        return outbox

    with monkeypatch.context() as patch:
        patch.setattr(Shard, "step", twice)
        beat = Heartbeat(call_id=CallId(99), group_id="g", generation=1, member_id="m")
        assert bench.runner.submit_now(beat).error is ErrorCode.UNKNOWN_SERVER_ERROR
    await is_well(bench)


async def test_who_watches_and_breaks_stops_nobody(bench):
    def broken(*_):
        raise Bug("watcher")

    bench.runner._watchers = replace(bench.runner._watchers, events=broken)
    for offset in (8, 9):
        assert (await bench.commit(offset)).results[0].error is ErrorCode.NONE
    assert bench.tracebacks() == ["watcher"]


async def test_a_bug_while_it_stops_answers_everybody(bench):
    waiting = bench.commit(8)
    bench.plan["Unload"] = 1
    await bench.runner.stop(ErrorCode.NOT_COORDINATOR)
    assert (await waiting).results[0].error is ErrorCode.NOT_COORDINATOR
    assert bench.fetch().error is ErrorCode.NOT_COORDINATOR


async def test_a_stop_while_it_waits_to_load_again_does_not_wait(monkeypatch):
    bench = Bench(monkeypatch)
    bench.plan["restore"] = 1_000_000
    await bench.runner.start()
    await bench.runner.stop(ErrorCode.NOT_COORDINATOR)
    assert bench.fetch().error is ErrorCode.NOT_COORDINATOR


async def test_a_load_that_ends_after_the_stop_serves_nobody(monkeypatch):
    bench = Bench(monkeypatch)
    loading = asyncio.ensure_future(bench.runner.start())
    await bench.runner.stop(ErrorCode.NOT_COORDINATOR)
    await loading
    assert not bench.runner.is_loaded


async def test_a_log_that_is_away_for_a_moment_delays_a_commit(monkeypatch):
    """The rule is the shard's; its alarm clock is the runner's."""
    runner, failures = runner_of(log := MemoryLog())
    await runner.start()
    log.fail_next_append("unavailable")
    commit = CommitOffsets(
        call_id=CallId(1), group_id="g", partitions=(PartitionCommit("t", 0, 1),)
    )
    assert (await runner.submit(commit)).results[0].error is ErrorCode.NONE
    assert len(failures) == 1
    await runner.stop(ErrorCode.NOT_COORDINATOR)
