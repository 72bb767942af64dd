"""The clock of members: epoch milliseconds of a clock that is never set."""

from __future__ import annotations

import time

from coordinator.client.transport.surroundings import SURROUNDINGS


def epoch_ms() -> int:
    """Milliseconds since the epoch; monotonic within a process."""
    surroundings = SURROUNDINGS.get()
    if surroundings is not None:
        return surroundings.now_ms()
    return _EPOCH_OFFSET_MS + _steady_ns() // 1_000_000


def _steady_ns() -> int:
    """Nanoseconds on a clock that is never set, and goes on while the machine sleeps."""
    return time.clock_gettime_ns(_STEADY) if _STEADY is not None else time.monotonic_ns()


# A session or a lease goes on at the coordinator while this machine sleeps.
_STEADY: int | None = getattr(time, "CLOCK_BOOTTIME", None)
_EPOCH_OFFSET_MS = (time.time_ns() - _steady_ns()) // 1_000_000
