"""Results of benchmarks: values, goals, machine, and method (in turn, in one run).

A figure is a number, a word, or a number with the goal it is held to.
"""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

ROUNDS = 15
"""Odd, so that the median is one of them."""


@dataclass(frozen=True, slots=True)
class Goal:
    """A measured value and what it should be; give one of the two bounds."""

    value: float
    at_most: float | None = None
    at_least: float | None = None

    def __post_init__(self) -> None:
        assert (self.at_most is None) != (self.at_least is None), "one bound, not none or two"

    @property
    def is_met(self) -> bool:
        """Not by rounding: the value itself."""
        if self.at_most is not None:
            return self.value <= self.at_most
        assert self.at_least is not None
        return self.value >= self.at_least

    @property
    def text(self) -> str:
        """The bound, as people write it."""
        if self.at_most is not None:
            return f"{shown(self.at_most)} at most"
        assert self.at_least is not None
        return f"{shown(self.at_least)} at least"


class CannotMeasure(Exception):
    """Something that a benchmark needs is not there, or failed. The message says what."""


Figure = float | int | str | Goal
Figures = dict[str, Figure]


def shown(value: float | int | str) -> str:
    """A value for people: three digits behind the point if they say something."""
    if isinstance(value, float):
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    return f"{value:,}" if isinstance(value, int) else value


def machine() -> Figures:
    """The machine of a measurement."""
    import grpc

    from coordinator import __version__

    return {
        "coordinator": __version__,
        "python": platform.python_version(),
        "grpcio": grpc.__version__,
        "processor": _processor(),
        "cores": os.cpu_count() or 0,
        "system": platform.platform(),
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass  # Not Linux: what the platform says will do.
    return platform.processor() or platform.machine()


def percentile(values: Sequence[float], percent: float) -> float:
    """The value below which so many percent of them are; 0 if there is none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] if ordered else 0.0


def median_of(
    loops: Mapping[str, Callable[[], object]], *, each: int = 1, rounds: int = ROUNDS
) -> dict[str, float]:
    """Nanoseconds an operation, the median of several rounds taken in turn.

    Args:
        each: operations in one call of a loop.
    """
    times: dict[str, list[float]] = {name: [] for name in loops}
    for _ in range(rounds):
        for name, run in loops.items():
            began = time.perf_counter_ns()
            run()
            times[name].append((time.perf_counter_ns() - began) / each)
    return {name: statistics.median(of_one) for name, of_one in times.items()}
