"""The event loop of all BlockingMembers of a process, in a thread of its own.

It runs while any member uses it. A process that was forked meanwhile can use no members, its own
neither: gRPC hangs in it, or ends it by SIGSEGV.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from coordinator.client.transport.process_environment import ENVIRONMENT, ProtocolLoop, follow

T = TypeVar("T")
LAST_WAIT_S = 1.0
"""Time that coroutines have to end after they were cancelled with their loop."""


class LoopThread:
    """A reference-counted event loop. Get it from `use`, and `release` it."""

    _lock = threading.Lock()
    _current: LoopThread | None = None

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._pid = os.getpid()
        self._users = 0
        self._thread = threading.Thread(target=self._run, name="coordinator-members", daemon=True)
        self._thread.start()

    @classmethod
    def use(cls) -> ProtocolLoop:
        """The loop of this process, made if there is none.

        Raises:
            RuntimeError: this is a forked child of a process that uses one.
        """
        environment = ENVIRONMENT.get()
        if environment is not None:
            return environment.protocol_loop()
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

    def _run(self) -> None:
        self.loop.run_forever()
        cancel_tasks(self.loop)  # gRPC has tasks of its own, which end a step after their calls.


def cancel_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """End the tasks of a loop that has stopped; those that swallow it are left."""
    tasks = asyncio.all_tasks(loop)
    if not tasks:
        return
    for task in tasks:
        task.cancel()
    loop.run_until_complete(asyncio.wait(tasks, timeout=LAST_WAIT_S))
    for task in tasks:
        if not task.done():
            task._log_destroy_pending = False  # type: ignore[attr-defined]


class InterruptibleFuture(Future[T]):
    """A future whose result the main thread may await while signals raise exceptions.

    Such an exception may leave the wait of a plain Future with its lock held, since that enters
    and leaves it in Python code, and the loop would wait for the lock without end. This one is
    awaited at a lock that is entered in one step; only the loop may do more with it until its end.
    """

    def __init__(self) -> None:
        super().__init__()
        self._ended = threading.Lock()
        self._ended.acquire()
        self.add_done_callback(lambda _: self._ended.release())

    def result(self, timeout: float | None = None) -> T:
        """See `Future.result`."""
        if timeout is None:
            with self._ended:
                pass
        return super().result(timeout)


def run_on(
    loop: asyncio.AbstractEventLoop, work: Callable[[], Coroutine[Any, Any, T]]
) -> InterruptibleFuture[T]:
    """Run a coroutine on a loop of another thread, as `asyncio.run_coroutine_threadsafe` does.

    It is made on the loop: Ctrl-C may interrupt the calling thread anywhere, and what it has made
    by then would be reported as never awaited.
    """
    future: InterruptibleFuture[T] = InterruptibleFuture()

    def begin() -> None:
        follow(loop.create_task(work()), future, loop.call_soon_threadsafe)

    loop.call_soon_threadsafe(begin)
    return future


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
