"""Sleeping until the next deadline, on an asyncio loop.

The owner requests a wake-up; the driver sleeps until then and calls it. At most one
handle is scheduled in the loop. Deadlines of a busy owner mostly move to later times
(heartbeats), so a later request is only stored: the scheduled handle fires too early,
finds the request, and is scheduled again without calling the owner. Only an earlier
request replaces the handle. Without a request there is no handle and no polling.

A driver belongs to one thread: the loop's.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable

from timer.clock import Clock


class AsyncTimerDriver:
    """Calls `on_deadline(now_ms)` at the requested time.

    Each request causes one call. `on_deadline` usually advances a timer and then
    requests the next wake-up:

        def on_deadline(now_ms: int) -> None:
            timer.advance_to(now_ms)
            driver.wake_at(timer.next_expiration_ms())

    Code that adds to the timer at other moments calls `wake_at` in the same way. An
    exception from `on_deadline` goes to the loop's exception handler; the driver
    then has no request left, and sleeps until the next one.

    Args:
        clock: the clock of the deadlines. It has to run at the speed of the loop's clock.
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
        # The handle uses this context, so that it does not inherit a caller's contextvars.
        self._context = contextvars.copy_context()
        self._handle: asyncio.TimerHandle | None = None
        self._handle_ms = 0
        self._wake_ms: int | None = None
        self._closed = False

    def wake_at(self, deadline_ms: int | None) -> None:
        """Request a call at `deadline_ms`, or as soon as possible after; None: no call.

        It replaces the previous request. After `close` it does nothing.
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
        """Stop: no call follows, and no handle is left in the loop."""
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
            self._sleep_until(wake_ms)  # The request moved to a later time, or the loop was early.
            return
        self._wake_ms = None
        self._on_deadline(now_ms)
