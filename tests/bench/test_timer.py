"""The benchmarks of the timer measure what they say: the plan, the rivals, the figures."""

from __future__ import annotations

import asyncio
import random
import statistics
import sys

import pytest

from tests.bench.figures import Goal
from tests.bench.purgatory import (
    GOAL_RATE,
    HEAP,
    KEYS_EACH,
    NOTHING,
    SETTINGS,
    WHEEL,
    Plan,
    Run,
    _figures,
    _panels,
    _rivals,
)
from tests.bench.timer import bench_timer
from tests.bench.timer_rivals import (
    PURGE_INTERVAL,
    LazyHeap,
    LoopTimers,
    RivalTimer,
    SortedTimers,
    Ticketed,
)
from timer import Timer

# --- The plan -----------------------------------------------------------------------------


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_plan_is_the_published_one(setting):
    median_ms, p75_ms = SETTINGS[setting]
    plan = Plan.of(20_000, median_ms, p75_ms)
    assert plan.arrivals[-1] == pytest.approx(20_000)
    gaps = [b - a for a, b in zip(plan.arrivals, plan.arrivals[1:], strict=False)]
    # Exponential: the deviation is the mean, and the median is ln 2 of it.
    assert statistics.mean(gaps) == pytest.approx(1, rel=0.01)
    assert statistics.stdev(gaps) == pytest.approx(1, rel=0.05)
    assert statistics.median(gaps) == pytest.approx(0.693, rel=0.05)
    quartiles = statistics.quantiles(plan.completions_ms, n=4)
    assert quartiles[1:] == pytest.approx([median_ms, p75_ms], rel=0.1)
    assert {len(set(keys)) for keys in plan.keys} == {KEYS_EACH}


def test_a_plan_is_the_same_each_time():
    assert Plan.of(100, 20, 60) == Plan.of(100, 20, 60)


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
    if kind == "sortedcontainers":
        pytest.importorskip("sortedcontainers", reason="a rival that is not installed")
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


def test_the_heap_keeps_what_was_stopped_until_it_comes_up_or_is_scanned_for():
    due = []
    heap = LazyHeap(due.append)
    for number in range(PURGE_INTERVAL):
        heap.stop(heap.start(10, number))
    heap.start(20, "late")
    assert len(heap._entries) == PURGE_INTERVAL + 1
    heap.stop(heap.start(10, "one more"))
    assert len(heap._entries) == 1
    heap.stop(heap.start(5, "first"))
    heap.advance_to(20)
    assert (due, heap._entries, heap._stopped) == (["late"], [], 0)


def test_a_rival_that_is_not_installed_is_left_out_and_the_figures_say_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "sortedcontainers", None)
    assert list(_rivals()) == [WHEEL, HEAP, "asyncio"]
    with pytest.raises(LookupError, match="extra `test`"):
        SortedTimers(print)


# --- The figures --------------------------------------------------------------------------

MEDIANS = {
    (WHEEL, 50_000): Run(50_000, 0.2, 4.0, 0.01),
    (WHEEL, GOAL_RATE): Run(99_000, 0.4, 4.0, 0.01),
    (WHEEL, 200_000): Run(150_000, 0.9, 6.0, 0.02),
    (HEAP, 50_000): Run(50_000, 0.4, 8.0, 0.04),
    (HEAP, GOAL_RATE): Run(75_000, 0.99, 13.0, 0.08),
    (HEAP, 200_000): Run(199_000, 1.0, 13.0, 0.08),
    (NOTHING, GOAL_RATE): Run(100_000, 0.1, 1.0, 0.01),
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


def test_the_picture_has_a_point_for_each_rate_asked():
    first, *_ = _panels("low", MEDIANS, (WHEEL, HEAP), MEDIAN_RATES)
    assert first.diagonal
    assert [curve.name for curve in first.curves] == [WHEEL, HEAP]
    assert first.curves[1].points == ((50, 50), (100, 75), (200, 199))


@pytest.mark.integration  # It takes seconds.
def test_the_benchmark_of_the_timer_says_for_each_goal_whether_it_is_met():
    figures = bench_timer(quick=True)
    goals = {what: figure for what, figure in figures.items() if isinstance(figure, Goal)}
    assert len(goals) == 5
    assert all(goal.value > 0 for goal in goals.values())
    for name in ("asyncio", "heap"):
        assert figures[f"{name}, start + stop, ns"] > 0
        assert figures[f"{name}, memory of a timer, bytes"] > 0
