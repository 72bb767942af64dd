"""Histograms of the time that operations wait in their purgatory."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from coordinator.shard.stats import BOUNDS_MS, WaitStats
from timer.operation import DelayedOperation


class Waits:
    """Counts the waits of one purgatory.

    Args:
        now_ms: the time of the step.
    """

    __slots__ = ("_counts", "_expired", "_total_ms", "now_ms")

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.now_ms = now_ms
        self._counts = [0] * (len(BOUNDS_MS) + 1)
        self._total_ms = 0
        self._expired = 0

    def ended(self, began_ms: int) -> None:
        waited_ms = self.now_ms() - began_ms
        self._counts[bisect_left(BOUNDS_MS, waited_ms)] += 1
        self._total_ms += waited_ms

    def expired(self) -> None:
        """Count a time-out."""
        self._expired += 1

    def stats(self) -> WaitStats:
        """Return the counts so far."""
        return WaitStats(tuple(self._counts), self._total_ms, self._expired)


class Wait(DelayedOperation):
    """An operation whose wait is counted, unless it completes at once."""

    __slots__ = ("_began_ms", "_waits")

    def __init__(self, waits: Waits) -> None:
        super().__init__()
        self._waits = waits
        self._began_ms = waits.now_ms()

    def force_complete(self) -> bool:
        has_waited = self.armed_by is not None
        completed = super().force_complete()
        if completed and has_waited:
            self._waits.ended(self._began_ms)
        return completed

    def on_expiration(self) -> None:
        self._waits.expired()
