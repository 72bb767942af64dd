"""The event loop of the members in plain code: one for a process, in a thread of its own.

It is there as long as anybody uses it. A process that was forked off has none: the thread stayed
behind, and a new one is made.
"""

from __future__ import annotations

import asyncio
import os
import threading


class LoopThread:
    """A loop that several use. Get it from `use`, and `release` it."""

    _lock = threading.Lock()
    _current: LoopThread | None = None

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._pid = os.getpid()
        self._users = 0
        self._thread = threading.Thread(
            target=self.loop.run_forever, name="coordinator-members", daemon=True
        )
        self._thread.start()

    @classmethod
    def use(cls) -> LoopThread:
        """This process's."""
        with cls._lock:
            current = cls._current
            if current is None or current._pid != os.getpid():
                current = cls._current = LoopThread()
            current._users += 1
            return current

    def release(self) -> None:
        """Use it no more; the last one ends it."""
        with self._lock:
            self._users -= 1
            if self._users:
                return
            if LoopThread._current is self:
                LoopThread._current = None
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()
