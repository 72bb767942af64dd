"""A periodic timer task."""

from __future__ import annotations

from collections.abc import Callable

from timer.task import TimerTask
from timer.timer import Timer


class Recurring(TimerTask):
    """Periodic action. The shard arms it again at the end of the step in which it ran."""

    __slots__ = ("_action", "_interval_ms", "_timer", "has_run")

    def __init__(self, timer: Timer, interval_ms: int, action: Callable[[], None]) -> None:
        super().__init__()
        self._timer = timer
        self._interval_ms = interval_ms
        self._action = action
        self.has_run = False

    def arm(self, now_ms: int) -> None:
        """Schedule the next run, one interval from now."""
        self.has_run = False
        self._timer.add(self, now_ms + self._interval_ms)

    def run(self) -> None:
        self.has_run = True
        self._action()
