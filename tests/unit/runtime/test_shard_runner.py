"""The host of a shard's driver: what it does when effects fail; on a loop whose clock jumps."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace

import pytest

from coordinator.core.config import GroupConfig
from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.ids import CallId, ShardId
from coordinator.core.values.requests import FetchOffsets, Heartbeat
from coordinator.runtime import shard_runner
from coordinator.runtime.clock import AnchoredClock
from coordinator.runtime.payloads import PAYLOADS
from coordinator.runtime.shard_runner import RELEASE_SLICE, ShardRunner
from coordinator.runtime.watchers import Watchers
from coordinator.shard.followers import AckPolicy, FetchEntries
from coordinator.shard.inputs import Tick
from coordinator.shard.shard import Shard
from coordinator.storage.log import Damaged
from coordinator.storage.memory import MemoryLog
from coordinator.testing.engine.loop import SimulatedLoop
from coordinator.testing.virtual import CountingIds
from tests.kit import commands

SHARD = ShardId(0)


class Bug(Exception):
    """Ours."""


class SlowLog(MemoryLog):
    """Steps can be made to hang, for ever or until they are let go on."""

    def __init__(self) -> None:
        super().__init__()
        self.hangs: dict[str, asyncio.Event] = {}

    async def _wait(self, step: str) -> None:
        if step in self.hangs:
            await self.hangs[step].wait()

    async def load(self, fence, after=0):
        await self._wait("load")
        return await super().load(fence, after)

    async def append(self, fence, entry):
        await self._wait("append")
        await super().append(fence, entry)


class Bench:
    """A runner, and everything it tells."""

    def __init__(self, loop: SimulatedLoop, **how) -> None:
        self.failures: list[tuple[str, BaseException | None]] = []
        self.in_sync: list[frozenset[int]] = []
        self.log = SlowLog()
        self._calls = itertools.count(1)
        self.clock = AnchoredClock(lambda: 0, lambda: int(loop.time() * 1e9))
        self.runner = ShardRunner(
            SHARD,
            new_shard=lambda: Shard(
                GroupConfig(), CountingIds(), PAYLOADS, now_ms=self.clock.now_ms(), **how
            ),
            log=self.log,
            clock=self.clock,
            watchers=Watchers(
                events=lambda *_: None,
                failure=lambda what, error: self.failures.append((what, error)),
                recovery=lambda _: None,
            ),
            on_in_sync=self.in_sync.append,
        )

    def commit(self, offset: int):
        return self.runner.submit(commands.commit(self.new_call(), offset))

    def fetch(self):
        return self.runner.submit(FetchOffsets(call_id=self.new_call(), group_id="g"))

    def new_call(self) -> CallId:
        return CallId(next(self._calls))

    def tracebacks(self) -> list[str]:
        return [str(error) for _, error in self.failures if error is not None]

    async def until_loaded(self) -> None:
        while self.runner.shard is None:  # noqa: ASYNC110  # Virtual time.
            await asyncio.sleep(0.1)

    async def is_well(self) -> bool:
        """True if durable offsets are served again, and commits are accepted."""
        await self.until_loaded()
        return (
            self.fetch().offsets[0].offset == 7
            and (await self.commit(7)).results[0].error is ErrorCode.NONE
        )


def simulated(play, *, is_started: bool = True, **how) -> None:
    """Play a test on a loop whose clock jumps."""
    with asyncio.Runner(loop_factory=SimulatedLoop) as host:
        bench = Bench(host.get_loop(), **how)

        async def whole() -> None:
            if is_started:
                await bench.runner.start()
                assert (await bench.commit(7)).results[0].error is ErrorCode.NONE
            await play(bench)
            await bench.runner.stop(ErrorCode.NOT_COORDINATOR)

        host.run(whole())


def raising(*_, **__):
    raise Bug("effect")


def broken_once(bench: Bench, name: str) -> None:
    """A part of the host that raises the next time."""
    whole = getattr(bench.runner, name)

    def once(*arguments):
        setattr(bench.runner, name, whole)
        raise Bug("effect")

    setattr(bench.runner, name, once)


def is_refused(answer) -> bool:
    """True if the answer is an error, as a reply or an exception; it must be there."""
    if isinstance(answer, asyncio.Future):
        assert answer.done()
        if answer.exception() is not None:
            return isinstance(answer.exception(), Bug)
        answer = answer.result()
    return answer.results[0].error is ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("part", ["_answer", "_resolve", "_do", "_on_in_sync", "_report"])
def test_an_effect_that_cannot_be_carried_out_loads_the_shard_again(part):
    async def play(bench: Bench) -> None:
        broken_once(bench, part)
        if part == "_report":
            bench.log.fail_next_append("unavailable")
        waiting = bench.commit(8)
        await bench.runner.fetch(
            FetchEntries(call_id=bench.new_call(), follower=2, offset=1, min_bytes=0, max_wait_ms=0)
        )
        while bench.runner.shard is not None:  # noqa: ASYNC110  # Virtual time.
            await asyncio.sleep(0.001)
        assert is_refused(waiting)
        assert bench.tracebacks() == ["effect"]
        assert bench.fetch().error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await bench.until_loaded()
        assert (await bench.commit(7)).results[0].error is ErrorCode.NONE
        assert len(bench.tracebacks()) == 1, "it is told once"

    simulated(play, acks=AckPolicy(node=1))


def test_an_alarm_that_cannot_be_set_loads_the_shard_again():
    class NoAlarm:
        wake_at = close = raising

    async def play(bench: Bench) -> None:
        alarm, bench.runner._alarm = bench.runner._alarm, NoAlarm()
        bench.fetch()
        assert bench.runner.shard is None
        await asyncio.sleep(0.5)
        assert bench.runner.shard is None
        bench.runner._alarm = alarm
        assert await bench.is_well()
        assert bench.tracebacks() == ["effect"]

    simulated(play)


def test_a_bug_in_the_codec_leaves_no_append_pending(monkeypatch):
    async def play(bench: Bench) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(shard_runner.codec, "encode", lambda record: 1 / 0)
            answer = await bench.commit(8)
        assert answer.results[0].error is ErrorCode.UNKNOWN_SERVER_ERROR
        assert await bench.is_well()

    simulated(play)


@pytest.mark.parametrize("part", ["new_shard", "load"])
def test_a_bug_in_the_first_load_does_not_end_the_node(part):
    async def play(bench: Bench) -> None:
        if part == "new_shard":
            broken_once(bench, "_new_shard")
        else:
            load, bench.log.load = bench.log.load, raising
        await bench.runner.start()
        assert bench.runner.shard is None
        if part == "load":
            bench.log.load = load
        await bench.until_loaded()
        assert bench.tracebacks() == ["effect"]

    simulated(play, is_started=False)


def test_damage_that_the_first_load_finds_is_raised():
    async def play(bench: Bench) -> None:
        await bench.log.fence(SHARD)

        async def damaged(*_):
            raise Damaged("entry 3")

        bench.log.load = damaged
        with pytest.raises(Damaged, match="entry 3"):
            await bench.runner.start()
        assert bench.runner.shard is None

    simulated(play, is_started=False)


def test_who_watches_and_breaks_stops_nobody():
    async def play(bench: Bench) -> None:
        bench.runner._watchers = replace(bench.runner._watchers, events=raising)
        for offset in (8, 9):
            assert (await bench.commit(offset)).results[0].error is ErrorCode.NONE
        assert bench.tracebacks() == ["effect"]

    simulated(play)


def test_a_stop_does_not_wait_for_a_load_that_hangs():
    async def play(bench: Bench) -> None:
        bench.log.hangs["load"] = asyncio.Event()
        starting = asyncio.ensure_future(bench.runner.start())
        await asyncio.sleep(1)
        assert not starting.done()
        await bench.runner.stop(ErrorCode.NOT_COORDINATOR)
        await starting
        assert bench.fetch().error is ErrorCode.NOT_COORDINATOR

    simulated(play, is_started=False)


def test_a_shard_that_waits_for_its_turn_says_that_it_is_loading():
    async def play(bench: Bench) -> None:
        load_slot = asyncio.Semaphore(0)  # Held by another shard, which loads.
        starting = asyncio.ensure_future(bench.runner.start(load_slot))
        await asyncio.sleep(1)
        assert bench.fetch().error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert not bench.log._fence_epochs, "nothing is asked of the log before its turn"
        load_slot.release()
        await starting
        assert bench.runner.shard is not None

    simulated(play, is_started=False)


def test_a_stop_lets_the_last_append_end():
    async def play(bench: Bench) -> None:
        bench.log.hangs["append"] = asyncio.Event()
        waiting = bench.commit(8)
        await asyncio.sleep(1)
        stopping = asyncio.ensure_future(bench.runner.stop(ErrorCode.NOT_COORDINATOR))
        await asyncio.sleep(1)
        assert (await waiting).results[0].error is ErrorCode.NOT_COORDINATOR
        assert not stopping.done()
        bench.log.hangs["append"].set()
        await stopping
        assert len(bench.log.load_now(await bench.log.fence(SHARD)).entries) == 2

    simulated(play)


def test_what_waits_to_be_written_is_not_written_once_the_shard_is_given_up():
    async def play(bench: Bench) -> None:
        waiting = bench.commit(8)
        await bench.runner.stop(ErrorCode.NOT_COORDINATOR)
        assert (await waiting).results[0].error is ErrorCode.NOT_COORDINATOR
        assert len(bench.log.load_now(await bench.log.fence(SHARD)).entries) == 1

    simulated(play)


def test_a_log_that_is_away_for_a_moment_delays_a_commit():
    """The rule is the shard's; its alarm clock is the runner's."""

    async def play(bench: Bench) -> None:
        bench.log.fail_next_append("unavailable")
        began_ms = bench.clock.now_ms()
        assert (await bench.commit(8)).results[0].error is ErrorCode.NONE
        assert bench.clock.now_ms() == began_ms + 50
        assert len(bench.failures) == 1

    simulated(play)


def test_many_answers_are_given_in_slices_that_let_others_in():
    async def play(bench: Bench) -> None:
        bench.log.hangs["append"] = asyncio.Event()
        waiting = [bench.commit(offset) for offset in range(3 * RELEASE_SLICE)]
        await asyncio.sleep(1)
        bench.log.hangs["append"].set()
        counts = []
        while len(counts) < 1_000 and not all(future.done() for future in waiting):
            await asyncio.sleep(0)
            counts.append(sum(future.done() for future in waiting))
        steps = [after - before for before, after in itertools.pairwise([0, *counts])]
        assert max(steps) <= RELEASE_SLICE
        assert counts[-1] == len(waiting)

    simulated(play)


def test_a_heartbeat_is_answered_without_a_future():
    async def play(bench: Bench) -> None:
        beat = Heartbeat(call_id=bench.new_call(), group_id="g", generation=1, member_id="m")
        assert bench.runner.submit(beat).error is ErrorCode.UNKNOWN_MEMBER_ID
        assert not bench.runner._calls

    simulated(play)


@pytest.mark.parametrize(("longest_s", "turns"), [(-1.0, 4), (1.0, 0)])
def test_others_have_turns_after_a_long_step(monkeypatch, longest_s, turns):
    async def play(bench: Bench) -> None:
        monkeypatch.setattr(shard_runner, "LONG_STEP_S", longest_s)
        had = itertools.count()

        async def another() -> None:
            while True:
                await asyncio.sleep(0.001)
                next(had)

        task = asyncio.create_task(another())
        bench.runner._drive(Tick())
        assert (await bench.commit(7)).results[0].error is ErrorCode.NONE
        assert next(had) >= turns
        assert turns or next(had) == 1, "a short step rests for nobody"
        task.cancel()

    simulated(play)


def test_the_alarm_rests_after_a_long_step_too(monkeypatch):
    async def play(bench: Bench) -> None:
        monkeypatch.setattr(shard_runner, "LONG_STEP_S", -1.0)
        bench.runner._drive(Tick())
        events: list[object] = []
        monkeypatch.setattr(bench.runner, "_drive", events.append)
        bench.runner._wake(bench.clock.now_ms())
        assert events == []
        await asyncio.sleep(0.1)
        assert any(isinstance(event, Tick) for event in events)
        monkeypatch.undo()
        bench.runner._drive(Tick())

    simulated(play)
