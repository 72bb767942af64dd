"""Latencies of calls by kind: plain counts for a collector.

Counting one takes 0.5 us. A child of prometheus-client's `Histogram` takes a lock for each of its
buckets' values, and is looked up by its labels first: 3 us.
"""

from __future__ import annotations

from bisect import bisect_left

LATENCIES_S = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0,
    300.0,
)  # fmt: skip
"""Upper bounds in seconds, the same for every call, so that calls of several kinds can be added up:
those that are answered at once, and those that are parked until a rebalance goes on."""


class Latency:
    """Histogram of the latencies of one kind of call."""

    __slots__ = ("counts", "total_s")
    bounds_s = LATENCIES_S

    def __init__(self) -> None:
        self.counts = [0] * (len(LATENCIES_S) + 1)
        """Calls by `LATENCIES_S`; the last counts calls above the highest bound."""
        self.total_s = 0.0

    def observe(self, seconds: float) -> None:
        """Count one call."""
        self.counts[bisect_left(LATENCIES_S, seconds)] += 1
        self.total_s += seconds
