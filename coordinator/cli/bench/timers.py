"""Raw timer operations beside an empty method call and asyncio's own timers."""

from __future__ import annotations

import asyncio

from coordinator.cli.bench.figures import Figures, best_of
from timer.task import TimerTask
from timer.timer import Timer

LOOPS = 20_000


class _Task(TimerTask):
    __slots__ = ()

    def run(self) -> None:
        pass


class _Empty:
    __slots__ = ()

    def call(self, task: object, deadline_ms: int) -> None:
        pass


def bench_timer() -> Figures:
    """All in one run, the best of several rounds."""
    timer = Timer(wheel_size=512)
    task, empty = _Task(), _Empty()
    loop = asyncio.new_event_loop()

    def nothing() -> None:
        for deadline_ms in range(30_000, 30_000 + LOOPS):
            empty.call(task, deadline_ms)

    def add_cancel() -> None:
        for deadline_ms in range(30_000, 30_000 + LOOPS):
            timer.add(task, deadline_ms)
            timer.cancel(task)

    def rearm() -> None:
        timer.add(task, 30_000)
        for deadline_ms in range(30_000, 30_000 + LOOPS):
            timer.rearm(task, deadline_ms)
        timer.cancel(task)

    def fresh() -> None:
        for deadline_ms in range(30_000, 30_000 + LOOPS):
            new = _Task()
            timer.add(new, deadline_ms)
            timer.cancel(new)

    def call_later() -> None:
        for _ in range(LOOPS):
            loop.call_later(30.0, nothing).cancel()

    best = best_of(
        {f.__name__: f for f in (nothing, add_cancel, rearm, fresh, call_later)}, each=LOOPS
    )
    loop.close()
    return {
        "empty method call, ns": best["nothing"],
        "add + cancel, ns": best["add_cancel"],
        "lazy re-arm, ns": best["rearm"],
        "fresh timer + cancel, ns": best["fresh"],
        "asyncio call_later + cancel, ns": best["call_later"],
        "add + cancel, in empty calls (goal: 20)": best["add_cancel"] / best["nothing"],
        "asyncio, in add + cancel": best["call_later"] / best["add_cancel"],
        "fresh timer, in lazy re-arms": best["fresh"] / best["rearm"],
    }
