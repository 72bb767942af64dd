"""Bugs of ours that a shard has met: how long it is left alone, and what is told of them."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType

from coordinator.shard.effects import Trouble

BACKOFF_MS = 1_000
BACKOFF_MS_MAX = 60_000
"""Also: a shard that has served for so long since its last bug is as good as new."""


class Bugs:
    """In a row, with no long time of service in between."""

    def __init__(self) -> None:
        self._count = 0
        self._told: set[tuple[object, ...]] = set()  # By where they were: once each.

    def forgive(self, served_ms: int) -> None:
        """Begin to count anew, if the shard has served for long."""
        if served_ms >= BACKOFF_MS_MAX:
            self._count = 0
            self._told.clear()

    def add(self, error: Exception) -> Trouble:
        """Count one more. Its traceback is told once, however often it comes back."""
        self._count += 1
        place = (type(error), *_places(error.__traceback__))
        if place not in self._told:
            self._told.add(place)
            return Trouble("the shard is inconsistent and is loaded again", error)
        return Trouble(
            f"the shard is inconsistent for the {self._count}th time in a row and is loaded again "
            f"in {self.backoff_ms() / 1000:g} s: {type(error).__name__}: {error}"
        )

    def backoff_ms(self) -> int:
        """Before the next load; it grows with the bugs in a row."""
        return min(BACKOFF_MS << min(max(0, self._count - 1), 10), BACKOFF_MS_MAX)


def _places(trace: TracebackType | None) -> Iterator[tuple[object, int]]:
    while trace is not None:
        yield trace.tb_frame.f_code, trace.tb_lineno
        trace = trace.tb_next
