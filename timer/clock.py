"""Where time comes from: the machine's monotonic clock, or a test's own.

A timer is told the time. Who tells it reads a `Clock`, and there are two. The
real one never goes back. The virtual one moves only when asked, and then not in
one jump: it stops at every moment the timer has something to do, so a handler
that re-arms does so from its own deadline. With one jump to the end, a timer of
every 10 ms would run once in 100 ms and start again from there.
"""

from __future__ import annotations

import time
from typing import Final, Protocol

# Far more than any honest handler needs; a test then fails and does not hang.
STEPS_AT_ONE_TIME_MAX: Final = 100_000


class Clock(Protocol):
    """Something that knows the time."""

    def now_ms(self) -> int:
        """Milliseconds since a fixed but unspecified moment; never decreases."""
        ...


class Timed(Protocol):
    """Something that is told the time, such as a `Timer`."""

    def next_expiration_ms(self) -> int | None:
        """When it next has something to do; None: nothing is due."""
        ...

    def advance_to(self, now_ms: int, /) -> object:
        """Do what is due by then."""
        ...


class MonotonicClock:
    """The machine's monotonic clock."""

    __slots__ = ()

    def now_ms(self) -> int:
        """Whole milliseconds, rounded down, since a moment the machine chose."""
        return time.monotonic_ns() // 1_000_000


class VirtualClock:
    """A clock for tests and simulations, which stands still until it is moved.

    Args:
        now_ms: where it starts, in milliseconds.
    """

    __slots__ = ("_now_ms",)

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """The time it stands at, in milliseconds."""
        return self._now_ms

    def advance(self, delta_ms: int, timer: Timed) -> None:
        """Move `delta_ms` on, stopping wherever `timer` has something to do.

        At each stop the clock reads that moment and the timer is advanced to it.
        At the end the clock reads the target.

        Raises:
            ValueError: `delta_ms` is negative.
            RuntimeError: time stands still: handlers keep arming timers for the
                present.
        """
        if delta_ms < 0:
            raise ValueError(f"delta_ms is {delta_ms}; time does not go back")
        target_ms = self._now_ms + delta_ms
        steps = 0
        while (expiration_ms := timer.next_expiration_ms()) is not None:
            if expiration_ms > target_ms:
                break
            if expiration_ms > self._now_ms:
                self._now_ms = expiration_ms
                steps = 0
            steps += 1
            if steps > STEPS_AT_ONE_TIME_MAX:
                raise RuntimeError(
                    f"time stands still at {self._now_ms} ms: after {steps} steps the timer "
                    "still has something to do; is a handler arming for the present?"
                )
            timer.advance_to(self._now_ms)
        self._now_ms = target_ms
