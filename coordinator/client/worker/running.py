"""Running a worker: its loop, and what happens at the end of that and of the interpreter."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import time
import weakref
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Protocol

from coordinator.client.transport.loop_thread import cancel_tasks

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
