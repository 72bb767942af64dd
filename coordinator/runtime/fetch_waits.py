"""Fetches of Kafka's clients that wait for rows, of which there are none, until their time is over.

One timer serves them all, so that waiting costs a node nothing but memory, and one handle in the
event loop. A fetch ends early when its connection does, and when the node stops.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import coordinator.shard  # noqa: F401  # It names a user's `timer.py` that is in the way.
from timer import DelayedOperation, Timer
from timer.aio import AsyncTimerDriver

AT_ONCE = 1_000
"""Fetches that end in one turn of the event loop."""
MOST_BYTES = 64 * 1024 * 1024
"""Size of the requests of all fetches that wait; beyond it those end that have waited longest. A
request takes some five times its size in memory, and may wait for days."""


class WaitingFetch(DelayedOperation):
    """A fetch that waits. Source: Kafka `DelayedFetch`."""

    __slots__ = ("ended",)

    def __init__(self, ended: asyncio.Future[None]) -> None:
        super().__init__()
        self.ended = ended

    def on_complete(self) -> None:
        """See `DelayedOperation`."""
        if not self.ended.done():
            self.ended.set_result(None)


class FetchWaits:
    """The waiting fetches of a listener."""

    def __init__(self) -> None:
        self._clock = _LoopClock()
        self._timer = Timer(self._clock.now_ms())
        self._driver = AsyncTimerDriver(self._clock, self._advance)
        self._waiting: dict[WaitingFetch, int] = {}
        self._bytes = 0
        self._is_closed = False

    @property
    def count(self) -> int:
        return len(self._waiting)

    async def wait(self, max_wait_ms: int, size_bytes: int = 0) -> None:
        """Return after so long, or when the node stops, or has no room for so many.

        Args:
            size_bytes: of the request that waits.
        """
        if self._is_closed or max_wait_ms <= 0:
            return
        fetch = WaitingFetch(asyncio.get_running_loop().create_future())
        now_ms = self._clock.now_ms()
        self._timer.advance_to(now_ms)
        self._timer.add(fetch, now_ms + max_wait_ms)
        self._driver.wake_at(self._timer.next_expiration_ms())
        self._waiting[fetch] = size_bytes
        self._bytes += size_bytes
        try:
            self._make_room()
            await fetch.ended
        finally:
            self._forget(fetch)
            self._timer.cancel(fetch)

    def close(self) -> None:
        """End all waits, now and later."""
        self._is_closed = True
        for fetch in list(self._waiting):
            fetch.force_complete()
        self._driver.close()

    def _make_room(self) -> None:
        while self._bytes > MOST_BYTES:
            longest = next(iter(self._waiting))
            self._forget(longest)
            longest.force_complete()

    def _forget(self, fetch: WaitingFetch) -> None:
        self._bytes -= self._waiting.pop(fetch, 0)

    def _advance(self, now_ms: int) -> None:
        self._timer.advance_to(now_ms, limit=AT_ONCE)
        self._driver.wake_at(self._timer.next_expiration_ms())


class _LoopClock:
    """Milliseconds of the event loop's clock."""

    def __init__(self) -> None:
        self._now_s: Callable[[], float] = asyncio.get_running_loop().time

    def now_ms(self) -> int:
        """See `timer.Clock`."""
        return int(self._now_s() * 1000)
