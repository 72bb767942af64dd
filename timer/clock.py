"""Clocks: the machine's monotonic clock, and a virtual one for tests.

A timer reads no clock: its owner reads a `Clock` and tells it the time. The virtual
clock moves only when asked, and then not in one jump: it stops at every moment at
which the timer has something to do, so a handler that re-arms does so from its own
deadline. With one jump to the end, a timer of every 10 ms would run once in 100 ms
and start again from there.
"""

from __future__ import annotations

import time
from typing import Final, Protocol

# Far more than a correct handler needs; beyond it a test fails instead of hanging.
STEPS_AT_ONE_TIME_MAX: Final = 100_000


class Clock(Protocol):
    """A source of the current time."""

    def now_ms(self) -> int:
        """Milliseconds since a fixed but unspecified moment; never decreases."""
        ...


class Timed(Protocol):
    """Interface of objects that are told the time, such as a `Timer`."""

    def next_expiration_ms(self) -> int | None:
        """Return the next time to call `advance_to`; None if there is none."""
        ...

    def advance_to(self, now_ms: int, /) -> object:
        """Run everything that is due by `now_ms`."""
        ...


class MonotonicClock:
    """The machine's monotonic clock."""

    __slots__ = ()

    def now_ms(self) -> int:
        """Milliseconds, rounded down, since an unspecified moment."""
        return time.monotonic_ns() // 1_000_000


class VirtualClock:
    """A clock for tests and simulations, which stands still until it is moved.

    Args:
        now_ms: initial time, in milliseconds.
    """

    __slots__ = ("_now_ms",)

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """Current virtual time, in milliseconds."""
        return self._now_ms

    def advance(self, delta_ms: int, timer: Timed) -> None:
        """Advance by `delta_ms`, stopping whenever `timer` has something to do.

        At each stop the clock shows that moment and the timer is advanced to it.

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
