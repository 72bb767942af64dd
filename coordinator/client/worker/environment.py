"""The seam of a worker to the outside: clock, chance, loop of the protocol, connections, threads.

`Environment` is the real one. A test gives a worker another one before it starts
(`worker.environment`), or sets a `ProcessEnvironment` in the context that it starts in. Then all of
a worker can run on one loop whose clock jumps, against a coordinator in memory: handlers
(`async def`) run on the loop that calls `worker.serve()`, which may be the same one that `acquire`
returns.

| method | called from | real environment |
|---|---|---|
| `now_ms`, `random` | any thread | epoch milliseconds; `random.random` |
| `acquire`, `release` | the thread that starts the worker; that in which it ends | `LoopThread` |
| `post` | any thread | `call_soon_threadsafe` of the protocol's loop |
| `connect` | the protocol's loop | `CoordinatorConnection` over gRPC |
| `start_thread` | the protocol's loop | a daemon thread |
| `result_of` | threads that run `def` handlers | `Future.result` |
| `failed` | any thread | nothing |
| `runs` | the thread that calls `worker.run()` | False: `run` makes a loop, and handles signals |

`result_of` is the only place where a thread of a handler waits for the library: for a commit, for
`revoking.wait`. Timers of such waits are on the protocol's loop, so they count its time.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import random as random_module
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from coordinator.client.transport.connection import CoordinatorConnection
from coordinator.client.transport.driver import Link
from coordinator.client.transport.loop_thread import LoopThread, cancel_tasks
from coordinator.client.transport.process_environment import ENVIRONMENT, ProtocolLoop, epoch_ms
from coordinator.dial import Credentials

T = TypeVar("T")


class Environment:
    """The real environment. One instance serves one worker, once."""

    is_virtual = False
    """True if handlers and protocol share one loop; no loop is then watched for being blocked."""

    def __init__(self) -> None:
        self._loop_thread: ProtocolLoop | None = None

    def now_ms(self) -> int:
        """Epoch milliseconds; monotonic."""
        return epoch_ms()

    def random(self) -> float:
        """A number in [0, 1)."""
        return random_module.random()  # noqa: S311  # Pauses, no secrets.

    def acquire(self) -> asyncio.AbstractEventLoop:
        """The loop on which the protocol runs; it runs until `release`."""
        self._loop_thread = LoopThread.use()
        return self._loop_thread.loop

    def release(self) -> None:
        """Give the protocol's loop up. Not called on that loop."""
        loop_thread, self._loop_thread = self._loop_thread, None
        if loop_thread is not None:
            loop_thread.release()

    def post(self, callback: Callable[..., object], *args: Any) -> bool:
        """Run a callback on the protocol's loop, in the order of calls; False: it has ended."""
        loop_thread = self._loop_thread
        if loop_thread is None:
            return False
        try:
            loop_thread.loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:  # The loop is closed.
            return False
        return True

    def connect(
        self, credentials: Credentials, interval_s: float, beat_now: Callable[[], object]
    ) -> Link:
        """A connection to the coordinator; arguments as those of `CoordinatorConnection`."""
        return CoordinatorConnection(credentials, interval_s, beat_now, self.random)

    def start_thread(self, work: Callable[[], None], name: str) -> threading.Thread:
        """Run `work` in a thread that does not keep the interpreter from exiting."""
        thread = threading.Thread(target=work, name=name, daemon=True)
        thread.start()
        return thread

    def runs(
        self,
        serve: Callable[[], Coroutine[Any, Any, None]],
        stop: Callable[[str, int | None], None],
    ) -> bool:
        """Run `worker.run()` for it; False: the worker runs itself, as in production.

        Args:
            stop: what a signal is to call: with the reason, and the time to finish.
        """
        return False

    def failed(self, name: str, error: BaseException) -> None:
        """Called when a call of a handler or hook failed, before the error policy decides."""

    def result_of(self, future: Future[T]) -> T:
        """Block the calling thread until the future is done, and return its result."""
        return future.result()


def environment_here() -> Environment:
    """The environment of this context: a test's, or a new one that is real."""
    environment: object = ENVIRONMENT.get()
    return environment if isinstance(environment, Environment) else Environment()


EXIT_S = 2.0
"""Time that the interpreter's exit waits for workers that were not stopped."""


def refuse_running_loop(message: str) -> None:
    """Raise RuntimeError with a message if an event loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(message)


def run_on_new_loop(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine on a loop of its own, as `asyncio.run`, but never wait for tasks that swallow
    their cancellation. Raises what the coroutine raises, and EndNow."""
    loop = asyncio.new_event_loop()
    try:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(work)
    finally:
        try:
            cancel_tasks(loop)
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            asyncio.set_event_loop(None)
            loop.close()


# --- The interpreter's exit ---


class Stoppable(Protocol):
    """A worker that runs, to those who may only end it."""

    finished: Future[None]

    def stop(self, reason: str, grace_ms: int) -> None:
        """Have the handlers finish, then leave. From any thread."""


class _AtExit:
    """Workers of this process that are asked to leave when the interpreter exits."""

    def __init__(self) -> None:
        self._runs: weakref.WeakSet[Stoppable] = weakref.WeakSet()
        self._pid = 0

    def add(self, run: Stoppable) -> None:
        if self._pid != os.getpid():
            # The first one, or the first in a forked child: the others are its parent's.
            if not self._pid:
                atexit.register(self._leave_all)
            self._pid = os.getpid()
            self._runs.clear()
        self._runs.add(run)

    def _leave_all(self) -> None:
        if self._pid != os.getpid():
            return
        runs = [run for run in self._runs if not run.finished.done()]
        for run in runs:
            run.stop("the interpreter exits", 0)
        ends_s = time.monotonic() + EXIT_S
        for run in runs:
            with contextlib.suppress(TimeoutError):
                run.finished.result(max(0.0, ends_s - time.monotonic()))


AT_EXIT = _AtExit()
"""Workers that run in this process."""
