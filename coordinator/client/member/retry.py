"""Exponential back-off with full jitter: members that lose their coordinator together do not all
retry together.

Source: Brooker, "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015).
"""

from __future__ import annotations

from collections.abc import Callable

FIRST_S = 0.1
"""Limit of the first pause, in seconds."""
MOST_S = 5.0
"""Default of the limit of every pause, in seconds."""


class BackOff:
    """Pauses, uniformly distributed from 0 to a limit that doubles each time.

    Args:
        random: returns a number in [0, 1).
        most_s: limit of every pause, in seconds.
    """

    __slots__ = ("_attempts", "_most_s", "_random")

    def __init__(self, random: Callable[[], float], *, most_s: float = MOST_S) -> None:
        self._random = random
        self._most_s = most_s
        self._attempts = 0

    def next_ms(self) -> int:
        """Draw the next pause, in whole milliseconds."""
        limit_s = min(self._most_s, FIRST_S * 2.0 ** min(self._attempts, 30))
        self._attempts += 1
        return round(limit_s * self._random() * 1000)

    def reset(self) -> None:
        """Start again with the first limit, after a success."""
        self._attempts = 0
