"""Pauses between attempts that grow, with full jitter, so that a thousand members that lost
their coordinator at once do not come back at once.

Source: Brooker, "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015).
"""

from __future__ import annotations

from collections.abc import Callable

FIRST_S = 0.1
"""Limit of the first pause, in seconds."""


class BackOff:
    """Pauses drawn evenly from 0 to a limit that doubles.

    Args:
        random: a number from 0 to 1, below 1.
        most_s: limit of every pause, in seconds.
    """

    __slots__ = ("_attempts", "_most_s", "_random")

    def __init__(self, random: Callable[[], float], *, most_s: float = 5.0) -> None:
        self._random = random
        self._most_s = most_s
        self._attempts = 0

    def next_s(self) -> float:
        """The next pause, in seconds."""
        limit_s = min(self._most_s, FIRST_S * 2.0 ** min(self._attempts, 30))
        self._attempts += 1
        return limit_s * self._random()

    def next_ms(self) -> int:
        """The next pause, in whole milliseconds."""
        return round(self.next_s() * 1000)

    def reset(self) -> None:
        """It worked: the next pause is a first one again."""
        self._attempts = 0
