"""The event loop of all BlockingMembers of a process, in a thread of its own.

It runs while any member uses it. A process that was forked meanwhile can use no members, its own
neither: gRPC hangs in it, or ends it by SIGSEGV.
"""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import Future
from typing import TypeVar

from coordinator.client.transport.surroundings import SURROUNDINGS, ProtocolLoop

T = TypeVar("T")


class LoopThread:
    """A reference-counted event loop. Get it from `use`, and `release` it."""

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
    def use(cls) -> ProtocolLoop:
        """The loop of this process, made if there is none.

        Raises:
            RuntimeError: this is a forked child of a process that uses one.
        """
        surroundings = SURROUNDINGS.get()
        if surroundings is not None:
            return surroundings.protocol_loop()
        with cls._lock:
            current = cls._current
            if current is None:
                current = cls._current = LoopThread()
            check_process(current._pid)
            current._users += 1
            return current

    def result_of(self, future: Future[T]) -> T:
        """Block the calling thread until a future of the loop is done; its result."""
        return future.result()

    def release(self) -> None:
        """Give up one use; the last one stops the loop."""
        with self._lock:
            self._users -= 1
            if self._users:
                return
            if LoopThread._current is self:
                LoopThread._current = None
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


def is_forked_from(pid: int | None) -> bool:
    """True in a forked child of the process; None: there is no such process."""
    return pid is not None and pid != os.getpid()


def check_process(pid: int | None) -> None:
    """Refuse the use of members in a forked child of the process that started one.

    Raises:
        RuntimeError: this is a child.
    """
    if is_forked_from(pid):
        raise RuntimeError(
            f"process {pid} has started a member, and this is a forked child of it, process "
            f"{os.getpid()}, in which gRPC does not work: fork before the first member is started, "
            "or start processes by multiprocessing's 'spawn'"
        )
