"""Rate limit by caller: calls are delayed, and refused when the delay would be too long.

A caller has a virtual queue in which its calls stand one interval apart. A call that is due within
`HOLD_S` is delayed until then, and a client that waits for its answers calls less; a later one is
delayed by `HOLD_S` and then refused, so that being refused is no faster than waiting. A caller that
was idle may make `BURST_S` worth of calls at once.

Source: the generic cell rate algorithm (ITU-T I.371); Kafka's quotas, which hold back too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

HOLD_S = 1.0
BURST_S = 1.0
FORGET_AT = 10_000
"""Number of callers at which idle ones are dropped."""


@dataclass(frozen=True, slots=True)
class Pacing:
    """Decision about a call: a delay, after which it is served or refused.

    retry_after_s: seconds after which a refused call may be retried; 0: it is served.
    """

    wait_s: float
    retry_after_s: float = 0.0

    @property
    def is_refused(self) -> bool:
        """True if the call is to be refused after the delay."""
        return self.retry_after_s > 0


GO = Pacing(0.0)


class Throttle:
    """Rate limiter with a virtual queue for each caller.

    Args:
        per_second: rate of one caller.
        clock: seconds, monotonic.
    """

    def __init__(self, per_second: int, clock: Callable[[], float]) -> None:
        self._interval_s = 1 / per_second
        self._clock = clock
        self._free_at: dict[str, float] = {}
        """Time at which a caller's virtual queue is empty, in seconds of the clock."""

    def take(self, caller: str) -> Pacing:
        """Reserve the next place in the caller's virtual queue, or refuse the call."""
        now = self._clock()
        due = self._next_place(caller, now)
        wait_s = due - now
        if wait_s > HOLD_S:
            return Pacing(HOLD_S, retry_after_s=wait_s - HOLD_S)
        self._free_at[caller] = due
        return GO if wait_s <= 0 else Pacing(wait_s)

    def serve(self, caller: str, most_s: float) -> float:
        """Count a call that is served at once, and return for how long its caller is not heard.

        For transports that can stop to listen to a connection (KIP-219): nothing is refused.

        Args:
            most_s: longest pause, in seconds; the virtual queue is no longer than that.
        """
        now = self._clock()
        due = min(self._next_place(caller, now), now + most_s)
        self._free_at[caller] = due
        return max(0.0, due - now)

    def _next_place(self, caller: str, now: float) -> float:
        free_at = self._free_at.get(caller, 0.0)
        if free_at <= now - BURST_S:
            free_at = now - BURST_S
            if len(self._free_at) >= FORGET_AT:
                self._forget(now)
        return free_at + self._interval_s

    def _forget(self, now: float) -> None:
        self._free_at = {c: at for c, at in self._free_at.items() if at > now - BURST_S}
