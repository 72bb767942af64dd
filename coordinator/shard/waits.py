"""How long operations wait in their purgatory: plain numbers, read when somebody asks."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

from timer.operation import DelayedOperation

BOUNDS_MS = (
    1,
    2,
    5,
    10,
    25,
    50,
    100,
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    30_000,
    60_000,
    300_000,
)
"""Upper bounds of the counts, inclusive."""


@dataclass(frozen=True, slots=True)
class WaitStats:
    """The waits that have ended, in one purgatory."""

    counts: tuple[int, ...] = (0,) * (len(BOUNDS_MS) + 1)
    """By the bounds; the last one holds what is longer than all."""
    total_ms: int = 0
    expired: int = 0
    """Those that ended because their time was over."""

    @property
    def bounds_ms(self) -> tuple[int, ...]:
        """What the counts are counted by."""
        return BOUNDS_MS


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
        """An operation has completed that waited since then."""
        waited_ms = self.now_ms() - began_ms
        self._counts[bisect_left(BOUNDS_MS, waited_ms)] += 1
        self._total_ms += waited_ms

    def expired(self) -> None:
        """It was its time that completed it."""
        self._expired += 1

    def stats(self) -> WaitStats:
        """The numbers now."""
        return WaitStats(tuple(self._counts), self._total_ms, self._expired)


class Wait(DelayedOperation):
    """An operation whose time in the purgatory counts. One that never had to wait does not."""

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
