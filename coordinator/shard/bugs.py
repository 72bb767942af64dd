"""Back-off after internal errors of a shard, and the log lines about them."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType

from coordinator.shard.effects import Problem

BACKOFF_MS = 1_000
BACKOFF_MS_MAX = 60_000
"""Longest back-off. A shard that has served for this long starts again at the shortest one."""


class Bugs:
    """Counter of consecutive internal errors; a long time of service resets it."""

    def __init__(self) -> None:
        self._count = 0
        self._logged: set[tuple[object, ...]] = (
            set()
        )  # Type and stack of each error already reported.

    def forgive(self, served_ms: int) -> None:
        """Reset the counter if the shard has served for `BACKOFF_MS_MAX`."""
        if served_ms >= BACKOFF_MS_MAX:
            self._count = 0
            self._logged.clear()

    def add(self, error: Exception) -> Problem:
        """Count an error; the result carries its traceback the first time that stack is seen."""
        self._count += 1
        fingerprint = (type(error), *_locations(error.__traceback__))
        if fingerprint not in self._logged:
            self._logged.add(fingerprint)
            return Problem("the shard is inconsistent and is loaded again", error)
        return Problem(
            f"the shard is inconsistent for the {self._count}th time in a row and is loaded again "
            f"in {self.backoff_ms() / 1000:g} s: {type(error).__name__}: {error}"
        )

    def backoff_ms(self) -> int:
        """Return the delay before the next load: doubled with each error in a row."""
        return min(BACKOFF_MS << min(max(0, self._count - 1), 10), BACKOFF_MS_MAX)


def _locations(trace: TracebackType | None) -> Iterator[tuple[object, int]]:
    while trace is not None:
        yield trace.tb_frame.f_code, trace.tb_lineno
        trace = trace.tb_next
