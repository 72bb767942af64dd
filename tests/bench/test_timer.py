"""The benchmarks of the timer measure what they say: the plan, the rivals, the figures."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.bench.figures import Goal
from tests.bench.purgatory import (
    GOAL_RATE,
    HEAP,
    WHEEL,
    Run,
    _figures,
)
from tests.bench.timer_rivals import (
    LazyHeap,
    LoopTimers,
    RivalTimer,
    SortedTimers,
    Ticketed,
)
from timer import Timer

# --- The rivals ---------------------------------------------------------------------------


class Noted(Ticketed):
    __slots__ = ("name", "ran")

    def __init__(self, name, ran):
        super().__init__()
        self.name, self.ran = name, ran

    def try_complete(self):
        return False

    def on_complete(self):
        self.ran.append((self.deadline_ms, self.name))


def rival(kind, loop):
    if kind == "asyncio":
        # Every deadline below 100 s is past, so the loop need not wait.
        return RivalTimer(lambda on_due: LoopTimers(on_due, loop, loop.time() - 100))
    return RivalTimer({"heap": LazyHeap, "sortedcontainers": SortedTimers}[kind])


@pytest.fixture
def loop():
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.mark.parametrize("kind", ["heap", "asyncio", "sortedcontainers"])
def test_a_rival_does_what_the_wheel_does(kind, loop):
    dice = random.Random(5)
    moves = [(dice.randrange(300), dice.choice("aaac"), dice.randrange(1, 400)) for _ in range(900)]
    outcomes = []
    for timer in (Timer(0), rival(kind, loop)):
        ran = []
        operations = [Noted(number, ran) for number in range(300)]
        for number, what, deadline_ms in moves:
            if what == "c":
                timer.cancel(operations[number])
            else:
                timer.add(operations[number], deadline_ms)
        pending = [operation.is_pending for operation in operations]
        assert len(timer) == sum(pending)
        assert timer.cancel(Noted("never added", ran)) is False
        timer.advance_to(500)
        loop.call_soon(loop.stop)
        loop.run_forever()
        assert len(timer) == 0
        assert [deadline_ms for deadline_ms, _ in ran] == sorted(d for d, _ in ran)
        outcomes.append((pending, sorted(ran)))
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][1], "something ran"


# --- The figures --------------------------------------------------------------------------

MEDIANS = {
    (WHEEL, 50_000): Run(50_000, 0.2, 4.0),
    (WHEEL, GOAL_RATE): Run(99_000, 0.4, 4.0),
    (WHEEL, 200_000): Run(150_000, 0.9, 6.0),
    (HEAP, 50_000): Run(50_000, 0.4, 8.0),
    (HEAP, GOAL_RATE): Run(75_000, 0.99, 13.0),
    (HEAP, 200_000): Run(199_000, 1.0, 13.0),
}
MEDIAN_RATES = (50_000, GOAL_RATE, 200_000)


def test_figures_name_the_rate_up_to_which_everything_asked_is_sustained():
    figures = _figures("low", MEDIANS, (WHEEL, HEAP), MEDIAN_RATES)
    assert figures["low: timing wheel, keeps up with, requests/s"] == 100_000
    assert figures["low: heap, keeps up with, requests/s"] == 50_000  # 75,000 of 100,000 is not.
    assert figures["low: heap, most sustained, requests/s"] == 199_000
    ratio = "low: timing wheel, requests a second of CPU, in those of heap"
    assert figures[ratio] == pytest.approx(13 / 6)
    assert figures["low: timing wheel at 100,000/s, % of a core"] == Goal(40.0, at_most=50)
    assert figures["low: timing wheel at 100,000/s, sustained of that"].is_met
