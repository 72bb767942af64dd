"""The published benchmark of Kafka's purgatory, on the wheel and its rivals in one run.

Requests arrive at exponential intervals and each is watched under three keys of a hundred
until it completes, after a log-normal time, or times out after 200 ms. What is asked: how
many a second can be taken in, and at which price? Each run has a target rate; whoever
cannot keep up takes longer.

One thread does everything, as in the service. Every millisecond the loop completes what
is to complete, tells the timer the time and takes in what has arrived, and sleeps for the
rest. Completions cost the harness a list a millisecond, the same for all. A completion
after the time-out would find the request answered, so it is left out.

Source: Kafka `TestPurgatoryPerformance`, and the project's description of its purgatory.
"""

from __future__ import annotations

import asyncio
import gc
import math
import random
import statistics
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from tests.bench.figures import Figures, Goal
from tests.bench.timer_rivals import (
    LazyHeap,
    LoopTimers,
    RivalTimer,
    SortedTimers,
    Ticketed,
)
from timer.purgatory import Purgatory
from timer.timer import Timer

SETTINGS: Final = {"low": (20, 60), "high": (200, 400)}
"""Time-out rates, and the median and 75th percentile of the times to completion, in ms."""

RATES: Final = (25_000, 50_000, 75_000, 100_000, 150_000, 200_000, 300_000, 400_000, 500_000)
QUICK_RATES: Final = (25_000, 100_000)
GOAL_RATE: Final = 100_000
REQUESTS: Final = 100_000
"""In a run; 1,000,000 in the published benchmark."""
QUICK_REQUESTS: Final = 3_000
ROUNDS: Final = 3

TIMEOUT_MS: Final = 200
REQUEST_BYTES: Final = 100
KEYS, KEYS_EACH = 100, 3
WHEEL_SIZE: Final = 20
KEPT_UP: Final = 0.98
"""Share of the requested rate from which on a rival counts as keeping up."""
BATCH: Final = 64
"""Requests taken in before the clock is looked at again."""

WHEEL, HEAP, LOOP, SORTED = "timing wheel", "heap", "asyncio", "sortedcontainers"


class Request(Ticketed):
    """Completes when it is told to."""

    __slots__ = ("payload",)

    def __init__(self) -> None:
        super().__init__()
        self.payload = bytes(REQUEST_BYTES)

    def try_complete(self) -> bool:
        return False

    def on_complete(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Plan:
    """The same requests for everybody."""

    arrivals: array[float]
    """Arrival times in mean intervals since the start."""
    completions_ms: array[int]
    """After the arrival; some later than the time-out."""
    keys: Sequence[tuple[str, ...]]
    """Taken in turn."""

    @staticmethod
    def of(requests: int, median_ms: int, p75_ms: int) -> Plan:
        """The plan of a setting, the same in every run."""
        dice = random.Random(2015)  # noqa: S311  # Not for secrets.
        mu, sigma = math.log(median_ms), math.log(p75_ms / median_ms) / 0.674490  # 75 % of N(0, 1).
        names = [f"key{number}" for number in range(KEYS)]
        arrivals = array("d", accumulate(dice.expovariate(1) for _ in range(requests)))
        stretch = requests / arrivals[-1]  # So that the rate asked for is the rate to be had.
        return Plan(
            array("d", (arrival * stretch for arrival in arrivals)),
            array("q", (int(dice.lognormvariate(mu, sigma)) for _ in range(requests))),
            [tuple(dice.sample(names, KEYS_EACH)) for _ in range(997)],
        )


@dataclass(frozen=True, slots=True)
class Run:
    """One rival at one rate."""

    rate: float
    """Requests taken in a second, until the last one was."""
    cpu: float
    """Share of a core used until the last request was accepted."""
    cpu_us: float
    """A request, until all have ended."""


def bench_purgatory(*, quick: bool = False) -> Figures:
    """Every rival at every rate in both settings, in turn.

    Args:
        quick: two rates and few requests: shows that it works, and no more.
    """
    rates = QUICK_RATES if quick else RATES
    requests, rounds = (QUICK_REQUESTS, 1) if quick else (REQUESTS, ROUNDS)
    rivals = _rivals()
    figures: Figures = {"requests in each run": requests, "rounds (medians of)": rounds}
    for setting, (median_ms, p75_ms) in SETTINGS.items():
        plan = Plan.of(requests, median_ms, p75_ms)
        runs: dict[tuple[str, int], list[Run]] = {}
        for _ in range(rounds):
            for rate in rates:
                for name, make in rivals.items():
                    runs.setdefault((name, rate), []).append(measure(plan, rate, make))
        medians = {key: _median(of_one) for key, of_one in runs.items()}
        figures |= _figures(setting, medians, tuple(rivals), rates)
    return figures


Make = Callable[[asyncio.AbstractEventLoop, float], Timer]


def _rivals() -> dict[str, Make]:
    def loop_timers(loop: asyncio.AbstractEventLoop, origin_s: float) -> Timer:
        return RivalTimer(lambda on_due: LoopTimers(on_due, loop, origin_s))

    return {
        WHEEL: lambda *_: Timer(0, wheel_size=WHEEL_SIZE),
        HEAP: lambda *_: RivalTimer(LazyHeap),
        LOOP: loop_timers,
        SORTED: lambda *_: RivalTimer(SortedTimers),
    }


def measure(plan: Plan, rate: int, make: Make) -> Run:
    """One run."""
    gc.collect()
    return asyncio.run(_run(plan, rate, make))


async def _run(plan: Plan, rate: int, make: Make) -> Run:
    loop = asyncio.get_running_loop()
    arrivals, completions_ms, keys = plan.arrivals, plan.completions_ms, plan.keys
    requests = len(arrivals)
    completing: dict[int, list[Request]] = {}
    began_cpu = time.process_time()
    origin_s = time_s = loop.time()
    timer = make(loop, origin_s)
    purgatory: Purgatory[str] = Purgatory(timer)
    taken = done_ms = 0

    def tell_time() -> int:
        """Complete what is to complete by now and advance the timer; the time, in ms."""
        nonlocal done_ms
        now_ms = int(1000 * (time_s - origin_s))
        while done_ms < now_ms:
            done_ms += 1
            for request in completing.pop(done_ms, ()):
                request.force_complete()
        timer.advance_to(now_ms)
        return now_ms

    while taken < requests:
        now_ms = tell_time()
        arrived = (time_s - origin_s) * rate
        until = min(taken + BATCH, requests)
        while taken < until and arrivals[taken] <= arrived:
            request = Request()
            purgatory.try_complete_else_watch(request, keys[taken % len(keys)], now_ms + TIMEOUT_MS)
            if completions_ms[taken] < TIMEOUT_MS:
                completing.setdefault(now_ms + completions_ms[taken] + 1, []).append(request)
            taken += 1
        time_s = loop.time()
        if int(1000 * (time_s - origin_s)) > now_ms:
            await asyncio.sleep(0)  # The loop has its turn, and its timers theirs.
        elif taken < until:
            await asyncio.sleep(0.001)
        time_s = loop.time()
    lasted, used = time_s - origin_s, time.process_time() - began_cpu
    while len(timer):
        await asyncio.sleep(0.001)
        time_s = loop.time()
        tell_time()
    cpu_s = time.process_time() - began_cpu
    return Run(requests / lasted, used / lasted, 1e6 * cpu_s / requests)


def _median(runs: list[Run]) -> Run:
    return Run(
        statistics.median(run.rate for run in runs),
        statistics.median(run.cpu for run in runs),
        statistics.median(run.cpu_us for run in runs),
    )


# --- What is shown ------------------------------------------------------------------------------

Medians = dict[tuple[str, int], Run]


def _figures(
    setting: str, medians: Medians, rivals: Sequence[str], rates: Sequence[int]
) -> Figures:
    figures: Figures = {}
    # How much a core could do if it were the benchmark's alone: neighbours do not count.
    per_core = {name: 1e6 / medians[name, rates[-1]].cpu_us for name in rivals}
    for name in rivals:
        figures[f"{setting}: {name}, keeps up with, requests/s"] = _keeps_up(name, medians, rates)
        figures[f"{setting}: {name}, most sustained, requests/s"] = round(
            max(medians[name, rate].rate for rate in rates)
        )
        figures[f"{setting}: {name}, requests a second of CPU"] = round(per_core[name])
    for name in rivals:
        if name != WHEEL:
            ratio = per_core[WHEEL] / per_core[name]
            figures[f"{setting}: {WHEEL}, requests a second of CPU, in those of {name}"] = ratio
    at = f"at {GOAL_RATE:,}/s"
    wheel = medians[WHEEL, GOAL_RATE]
    figures[f"{setting}: {WHEEL} {at}, sustained of that"] = Goal(
        wheel.rate / GOAL_RATE, at_least=KEPT_UP
    )
    figures[f"{setting}: {WHEEL} {at}, % of a core"] = Goal(100 * wheel.cpu, at_most=50)
    for name in rivals:
        run = medians[name, GOAL_RATE]
        if name != WHEEL:
            figures[f"{setting}: {name} {at}, % of a core"] = 100 * run.cpu
        figures[f"{setting}: {name} {at}, CPU a request, us"] = run.cpu_us
    return figures


def _keeps_up(name: str, medians: Medians, rates: Sequence[int]) -> int:
    """The highest rate up to which all are sustained; 0: none is."""
    found = 0
    for rate in rates:
        if medians[name, rate].rate < KEPT_UP * rate:
            break
        found = rate
    return found
