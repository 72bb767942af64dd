"""Sleeping until the next deadline, on an asyncio loop.

The owner says when it next wants to be woken; the driver sleeps that long and
calls it. Between the two there is at most one handle in the loop. Deadlines of a
busy owner mostly move back (heartbeats), so a later wish is only stored: the
handle already set goes off too early, finds the wish, and is set again without
bothering the owner. Only an earlier wish replaces the handle. With nothing to
wait for there is no handle and no polling.

Like everything here it belongs to one thread: the loop's.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable

from timer.clock import Clock


class AsyncTimerDriver:
    """Calls `on_deadline(now_ms)` once the wished-for time has come.

    Each wish is good for one call. `on_deadline` usually advances a timer and then
    says when to be woken next:

        def on_deadline(now_ms: int) -> None:
            timer.advance_to(now_ms)
            driver.wake_at(timer.next_expiration_ms())

    Whoever adds to the timer at other moments calls `wake_at` in the same way. An
    exception from `on_deadline` goes to the loop's exception handler; the driver
    then has no wish left, and sleeps until it is given one.

    Args:
        clock: the clock of the deadlines. It has to go at the pace of the loop's.
        on_deadline: called from the loop, never from inside `wake_at`.
        loop: the loop to sleep on; the running one if None.
    Raises:
        RuntimeError: no loop was given and none is running.
    """

    __slots__ = (
        "_clock",
        "_closed",
        "_context",
        "_handle",
        "_handle_ms",
        "_loop",
        "_on_deadline",
        "_wake_ms",
    )

    def __init__(
        self,
        clock: Clock,
        on_deadline: Callable[[int], None],
        *,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._clock = clock
        self._on_deadline = on_deadline
        self._loop = asyncio.get_running_loop() if loop is None else loop
        # Whoever happens to set the handle, what comes of it is not done on his behalf.
        self._context = contextvars.copy_context()
        self._handle: asyncio.TimerHandle | None = None
        self._handle_ms = 0
        self._wake_ms: int | None = None
        self._closed = False

    def wake_at(self, deadline_ms: int | None) -> None:
        """Be called at `deadline_ms`, or as soon as possible after; None: not at all.

        It replaces the wish before. After `close` it does nothing.
        """
        if self._closed:
            return
        self._wake_ms = deadline_ms
        if deadline_ms is None:
            return
        if self._handle is not None:
            if self._handle_ms <= deadline_ms:
                return
            self._handle.cancel()
        self._sleep_until(deadline_ms)

    def close(self) -> None:
        """Stop for good: no call follows, and nothing of this is left in the loop."""
        self._closed = True
        self._wake_ms = None
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _sleep_until(self, deadline_ms: int) -> None:
        delay_ms = max(0, deadline_ms - self._clock.now_ms())
        self._handle_ms = deadline_ms
        self._handle = self._loop.call_later(delay_ms / 1000, self._wake, context=self._context)

    def _wake(self) -> None:
        self._handle = None
        wake_ms = self._wake_ms
        if wake_ms is None:
            return
        now_ms = self._clock.now_ms()
        if now_ms < wake_ms:
            self._sleep_until(wake_ms)  # The wish moved back, or the loop was early.
            return
        self._wake_ms = None
        self._on_deadline(now_ms)
