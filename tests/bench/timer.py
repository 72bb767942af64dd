"""Benchmark of timers: start and stop, re-arm, memory, and expiry by the thousand.

The rivals are started and stopped in the same run, in turn, among as many standing timers,
and each is told the time now and then, as a loop would.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import statistics
import time
import tracemalloc
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
HELD, HELD_QUICK = 100_000, 5_000
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
    figures |= _bench_memory(HELD_QUICK if quick else HELD)
    figures |= _bench_advance(
        MANY_QUICK if quick else MANY,
        TOGETHER_QUICK if quick else TOGETHER,
        rounds=1 if quick else 3,
    )
    return figures


def _rivals(loop: asyncio.AbstractEventLoop) -> dict[str, Rival]:
    rivals: dict[str, Rival] = {
        "asyncio": LoopTimers(_nothing, loop, loop.time()),
        "heap": LazyHeap(_nothing),
    }
    with contextlib.suppress(LookupError):  # The figures say that it is not there.
        rivals["sortedcontainers"] = SortedTimers(_nothing)
    return rivals


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
    if "sortedcontainers" not in rivals:
        figures["sortedcontainers"] = "not installed, and left out (extra: test)"
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


# --- Holding ------------------------------------------------------------------------------------


def _bench_memory(timers: int) -> Figures:
    """Bytes a standing timer, as `tracemalloc` counts them, with what keeps it."""
    loop = asyncio.new_event_loop()
    wheel = Timer(0, wheel_size=WHEEL_SIZE)

    def hold(deadline_ms: int) -> object:
        task = _Task()
        wheel.add(task, deadline_ms)
        return task

    hold(2 * SPREAD_MS)  # The levels are there; what counts is what a timer adds.
    figures: Figures = {"memory of a timer, bytes": _bytes_each(hold, timers)}
    for name, rival in _rivals(loop).items():

        def start(deadline_ms: int, rival: Rival = rival) -> object:
            return rival.start(deadline_ms, None)

        figures[f"{name}, memory of a timer, bytes"] = _bytes_each(start, timers)
    loop.close()
    return figures


def _bytes_each(hold: Callable[[int], object], timers: int) -> float:
    kept: list[object] = [None] * timers  # Not counted: the caller's.
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(timers):
            kept[number] = hold(1 + number * SPREAD_MS // timers)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return (after - before) / timers


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
        kinds = {
            f"{WHEEL_SIZE} slots, limit {ADVANCE_SLICE}": (WHEEL_SIZE, ADVANCE_SLICE),
            f"{WHEEL_SIZE} slots, no limit": (WHEEL_SIZE, None),
            "20 slots, no limit": (20, None),
        }
        worst: dict[str, list[float]] = {kind: [] for kind in kinds}
        total: dict[str, list[float]] = {kind: [] for kind in kinds}
        for _ in range(rounds):
            for kind, (size, limit) in kinds.items():
                longest, whole = _advance(deadlines_ms, size, limit)
                worst[kind].append(longest)
                total[kind].append(whole)
        for kind, (_, limit) in kinds.items():
            longest = statistics.median(worst[kind])
            figures[f"{what}, {kind}: longest advance, ms"] = (
                longest if limit is None else Goal(longest, at_most=5)
            )
            figures[f"{what}, {kind}: all advances, ms"] = statistics.median(total[kind])
    return figures


def _advance(deadlines_ms: list[int], size: int, limit: int | None) -> tuple[float, float]:
    """The longest advance and all of them together, in ms."""
    timer = Timer(0, wheel_size=size)
    with gc_paused():
        for deadline_ms in deadlines_ms:
            timer.add(_Task(), deadline_ms)
    longest = whole = 0
    for now_ms in range(max(deadlines_ms) + 1):
        while True:
            began = time.thread_time_ns()
            timer.advance_to(now_ms, limit)
            took = time.thread_time_ns() - began
            whole += took
            longest = max(longest, took)
            if not timer.is_behind:
                break
    gc.unfreeze()
    assert not len(timer)
    return longest / 1e6, whole / 1e6
