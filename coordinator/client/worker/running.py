"""Running a worker: signals, and what happens at the end of a loop and of the interpreter."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from types import FrameType
from typing import Any, Protocol

EXIT_S = 2.0
"""Time that the interpreter's exit waits for workers that were not stopped."""
LAST_WAIT_S = 1.0
"""Time that coroutines have to end after they were cancelled with their loop."""
SIGNALS = ("SIGINT", "SIGTERM")


class EndNow(KeyboardInterrupt):
    """The second signal: whatever runs in the main thread is left."""


@contextlib.contextmanager
def signals_handled(stop: Callable[[str, int | None, bool], None]) -> Iterator[None]:
    """Have SIGINT and SIGTERM stop a worker, in the main thread only; the second ends it at once.

    A signal that is ignored stays so: a shell without job control starts background jobs with
    SIGINT ignored, so that Ctrl-C does not reach them. The former handlers are put back at the end.

    Args:
        stop: given the reason, the time to finish in milliseconds (None: the usual one), and
            whether to give up a place that is kept.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    count = 0

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal count
        count += 1
        name = signal.Signals(number).name
        if count == 1:
            stop(f"stopped by {name}", None, False)
            return
        stop(f"stopped by a second {name}", 0, True)
        raise EndNow

    before = {
        number: signal.signal(number, handle)
        for number in _numbers()
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            # None: it was not set from Python, and cannot be put back.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _numbers() -> list[signal.Signals]:
    return [getattr(signal, name) for name in SIGNALS if hasattr(signal, name)]


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
            _cancel_tasks(loop)
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            asyncio.set_event_loop(None)
            loop.close()


def _cancel_tasks(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    if not tasks:
        return
    for task in tasks:
        task.cancel()
    loop.run_until_complete(asyncio.wait(tasks, timeout=LAST_WAIT_S))
    for task in tasks:
        if not task.done():
            task._log_destroy_pending = False  # type: ignore[attr-defined]


# --- The interpreter's exit ---


class Stoppable(Protocol):
    """A run of a worker, to those who may only end it."""

    finished: Future[None]

    def stop(self, reason: str, grace_ms: int) -> None:
        """Have the handlers finish, then leave. From any thread."""


class _AtExit:
    """Workers of this process that are told to leave when the interpreter exits."""

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
