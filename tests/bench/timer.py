"""Benchmark of timers: start and stop, re-arm, and expiry by the thousand.

The rivals are started and stopped in the same run, in turn, among as many standing timers,
and each is told the time now and then, as a loop would.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
from collections.abc import Callable
from typing import Final

from coordinator.runtime.garbage import gc_paused
from coordinator.shard.shard import ADVANCE_SLICE
from tests.bench.figures import Figures, Goal, median_of
from tests.bench.timer_rivals import LazyHeap, LoopTimers, Rival, SortedTimers
from timer.task import TimerTask
from timer.timer import Timer

WHEEL_SIZE: Final = 512
"""Wheel size of the service; the library's default is 20."""
STANDING: Final = 10_000
BLOCK, BLOCKS = 1_000, 20
"""Started and stopped between two looks at the time, and how often."""
MANY, MANY_QUICK = 1_000_000, 20_000
TOGETHER, TOGETHER_QUICK = 100_000, 5_000
SPREAD_MS: Final = 60_000
DELAY_MS: Final = 30_000


class _Task(TimerTask):
    __slots__ = ()

    def run(self) -> None:
        pass


class _Empty:
    __slots__ = ()

    def call(self, task: object, deadline_ms: int) -> None:
        pass


def bench_timer(*, quick: bool = False) -> Figures:
    """Everything in one run.

    Args:
        quick: fewer rounds and fewer timers.
    """
    figures = _bench_operations(rounds=3 if quick else 15)
    figures |= _bench_advance(
        MANY_QUICK if quick else MANY,
        TOGETHER_QUICK if quick else TOGETHER,
        rounds=1 if quick else 3,
    )
    return figures


def _rivals(loop: asyncio.AbstractEventLoop) -> dict[str, Rival]:
    return {
        "asyncio": LoopTimers(_nothing, loop, loop.time()),
        "heap": LazyHeap(_nothing),
        "sortedcontainers": SortedTimers(_nothing),
    }


def _nothing(_: object) -> None:
    pass


# --- Starting, stopping, moving -----------------------------------------------------------------


def _bench_operations(*, rounds: int) -> Figures:
    loop = asyncio.new_event_loop()
    rivals = _rivals(loop)
    loops = _wheel_loops()
    for name, rival in rivals.items():
        loops[name] = _rival_loop(name, rival, loop)
    ns = median_of(loops, each=BLOCK * BLOCKS, rounds=rounds)
    loop.close()
    figures: Figures = {f"{what}, ns": ns[what] for what in loops if what not in rivals}
    figures |= {f"{name}, start + stop, ns": ns[name] for name in rivals}
    add_cancel = ns["add + cancel"]
    figures["add + cancel, in empty calls"] = Goal(add_cancel / ns["empty call"], at_most=13)
    for name in rivals:
        figures[f"{name}, in add + cancel"] = (
            Goal(ns[name] / add_cancel, at_least=5) if name == "asyncio" else ns[name] / add_cancel
        )
    figures["a fresh timer, in lazy re-arms"] = Goal(
        ns["fresh timer + cancel"] / ns["lazy re-arm"], at_least=6
    )
    return figures


def _wheel_loops() -> dict[str, Callable[[], object]]:
    timer = Timer(0, wheel_size=WHEEL_SIZE)
    task, empty = _Task(), _Empty()
    for number in range(STANDING):
        timer.add(_Task(), DELAY_MS + number)
    blocks = range(BLOCKS)
    deadlines_ms = range(DELAY_MS, DELAY_MS + BLOCK)

    def nothing() -> None:
        for _ in blocks:
            for deadline_ms in deadlines_ms:
                empty.call(task, deadline_ms)

    def add_cancel() -> None:
        for _ in blocks:
            for deadline_ms in deadlines_ms:
                timer.add(task, deadline_ms)
                timer.cancel(task)
            timer.advance_to(0)

    def rearm() -> None:
        timer.add(task, DELAY_MS)
        for _ in blocks:
            for deadline_ms in deadlines_ms:
                timer.rearm(task, deadline_ms)
            timer.advance_to(0)
        timer.cancel(task)

    def fresh() -> None:
        for _ in blocks:
            for deadline_ms in deadlines_ms:
                new = _Task()
                timer.add(new, deadline_ms)
                timer.cancel(new)
            timer.advance_to(0)

    return {
        "empty call": nothing,
        "add + cancel": add_cancel,
        "lazy re-arm": rearm,
        "fresh timer + cancel": fresh,
    }


def _rival_loop(name: str, rival: Rival, loop: asyncio.AbstractEventLoop) -> Callable[[], object]:
    start, stop = rival.start, rival.stop
    for number in range(STANDING):
        start(DELAY_MS + number, None)

    def tell_time() -> None:
        if name == "asyncio":  # A turn of the loop.
            loop.call_soon(loop.stop)
            loop.run_forever()
        else:
            rival.advance_to(0)

    def run() -> None:
        for _ in range(BLOCKS):
            for deadline_ms in range(DELAY_MS, DELAY_MS + BLOCK):
                stop(start(deadline_ms, None))
            tell_time()

    return run


# --- Coming due ---------------------------------------------------------------------------------


def _bench_advance(many: int, together: int, *, rounds: int) -> Figures:
    """The longest single `advance_to`, in milliseconds of CPU: neighbours do not count.

    Every millisecond the timer is advanced, again and again if it stays behind. What was
    armed is out of the garbage collector's sight, as it is in the service after a load.
    """
    spread = [1 + number * SPREAD_MS // many for number in range(many)]
    same = [DELAY_MS] * together
    figures: Figures = {}
    for what, deadlines_ms in (
        (f"{many:,} timers in {SPREAD_MS // 1000} s", spread),
        (f"{together:,} timers in one ms", same),
    ):
        worst: list[float] = []
        total: list[float] = []
        for _ in range(rounds):
            longest, whole = _advance(deadlines_ms)
            worst.append(longest)
            total.append(whole)
        figures[f"{what}: longest advance, ms"] = Goal(statistics.median(worst), at_most=5)
        figures[f"{what}: all advances, ms"] = statistics.median(total)
    return figures


def _advance(deadlines_ms: list[int]) -> tuple[float, float]:
    """The longest advance and all of them together, in ms."""
    timer = Timer(0, wheel_size=WHEEL_SIZE)
    with gc_paused():
        for deadline_ms in deadlines_ms:
            timer.add(_Task(), deadline_ms)
    longest = whole = 0
    for now_ms in range(max(deadlines_ms) + 1):
        while True:
            began = time.thread_time_ns()
            timer.advance_to(now_ms, ADVANCE_SLICE)
            took = time.thread_time_ns() - began
            whole += took
            longest = max(longest, took)
            if not timer.is_behind:
                break
    gc.unfreeze()
    assert not len(timer)
    return longest / 1e6, whole / 1e6
