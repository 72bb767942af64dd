"""Who calls too often: calls are spread out, and refused when that takes too long.

A caller has a virtual line in which its calls stand one interval apart. A call whose turn is
within `HOLD_S` waits for it, and a client that waits for its answers calls less; one further
back is held for as long and then refused, so that being refused is no faster than waiting.
A caller that was quiet may call `BURST_S` worth of calls at once.

Source: the generic cell rate algorithm (ITU-T I.371); Kafka's quotas, which hold back too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

HOLD_S = 1.0
BURST_S = 1.0
FORGET_AT = 10_000
"""Callers that are remembered before those that are quiet are forgotten."""


@dataclass(frozen=True, slots=True)
class Admission:
    """What becomes of a call: it waits, and then it is served or refused.

    retry_after_s: when it is refused, after which it would be served; else 0.
    """

    wait_s: float
    retry_after_s: float = 0.0

    @property
    def is_refused(self) -> bool:
        """True if it is to be refused after the wait."""
        return self.retry_after_s > 0


GO = Admission(0.0)


class Throttle:
    """Lines of callers.

    Args:
        per_second: calls of one caller.
        clock: seconds, monotonic.
    """

    def __init__(self, per_second: int, clock: Callable[[], float]) -> None:
        self._interval_s = 1 / per_second
        self._clock = clock
        self._free_at: dict[str, float] = {}
        """When a caller's line is empty."""

    def take(self, caller: str) -> Admission:
        """A place in the caller's line, or none."""
        now = self._clock()
        free_at = self._free_at.get(caller, 0.0)
        if free_at <= now - BURST_S:
            free_at = now - BURST_S
            if len(self._free_at) >= FORGET_AT:
                self._forget(now)
        wait_s = free_at + self._interval_s - now
        if wait_s > HOLD_S:
            return Admission(HOLD_S, retry_after_s=wait_s - HOLD_S)
        self._free_at[caller] = free_at + self._interval_s
        return GO if wait_s <= 0 else Admission(wait_s)

    def _forget(self, now: float) -> None:
        self._free_at = {c: at for c, at in self._free_at.items() if at > now - BURST_S}
