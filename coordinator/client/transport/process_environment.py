"""The environment of the client library in its process: clock, channels, threads, loop.

In production it is not set, and a member takes the machine's clock, sockets and a thread for its
loop. Tests on virtual time (`coordinator.testing`) run many processes on one loop, and set one for
the context of each; it holds for whatever is made in that context.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol, TypeVar

from coordinator.dial import Credentials

T = TypeVar("T")


class ProtocolLoop(Protocol):
    """A loop that runs the protocol of the members of a process, for owners in other threads."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop, for `call_soon_threadsafe` and tasks."""

    def result_of(self, future: Future[T]) -> T:
        """Block the calling thread until a future of the loop is done; its result."""

    def release(self) -> None:
        """Give up one use."""


class ProcessEnvironment(Protocol):
    """See the top of this file."""

    def now_ms(self) -> int:
        """Epoch milliseconds; monotonic."""

    def credentials(self, given: Credentials) -> Credentials:
        """Return what opens channels in the place of `given`."""

    def protocol_loop(self) -> ProtocolLoop:
        """The loop for members whose owners are threads."""

    def own(self, context: contextvars.Context) -> None:
        """Have what runs in a context belong to the library, not to its caller."""


ENVIRONMENT: contextvars.ContextVar[ProcessEnvironment | None] = contextvars.ContextVar(
    "environment", default=None
)


def epoch_ms() -> int:
    """Milliseconds since the epoch; monotonic within a process."""
    environment = ENVIRONMENT.get()
    if environment is not None:
        return environment.now_ms()
    return _EPOCH_OFFSET_MS + _steady_ns() // 1_000_000


def _steady_ns() -> int:
    """Nanoseconds on a clock that is never set, and goes on while the machine sleeps."""
    return time.clock_gettime_ns(_STEADY) if _STEADY is not None else time.monotonic_ns()


# A session or a lease goes on at the coordinator while this machine sleeps.
_STEADY: int | None = getattr(time, "CLOCK_BOOTTIME", None)
_EPOCH_OFFSET_MS = (time.time_ns() - _steady_ns()) // 1_000_000


def copy_outcome(source: Future[T] | asyncio.Future[T], target: Future[T]) -> None:
    """Give a future the result of another one, which is done."""
    if source.cancelled():
        target.cancel()
    elif (error := source.exception()) is not None:
        target.set_exception(error)
    else:
        target.set_result(source.result())


def follow(
    task: asyncio.Task[T], future: Future[T], post: Callable[[Callable[[], object]], object]
) -> None:
    """Have a future of another thread end as a task does, and cancel the task if it is cancelled.

    Args:
        post: puts a callback on the loop of the task, from any thread.
    """

    def tell(task: asyncio.Task[T]) -> None:
        if task.cancelled():
            future.cancel()
        elif future.set_running_or_notify_cancel():
            copy_outcome(task, future)
        else:
            task.exception()  # Nobody waits any more; asyncio would log what is not retrieved.

    def withdraw(future: Future[T]) -> None:
        # A future that has a result is its reader's: Ctrl-C may have left it with its lock held.
        if not task.done() and future.cancelled():
            post(task.cancel)

    task.add_done_callback(tell)
    future.add_done_callback(withdraw)


def opener(given: Credentials) -> Credentials:
    """Return the credentials, or what the environment opens channels with instead."""
    environment = ENVIRONMENT.get()
    return given if environment is None else environment.credentials(given)


def library_context() -> contextvars.Context:
    """A copy of the context, for work of the library."""
    context = contextvars.copy_context()
    environment = ENVIRONMENT.get()
    if environment is not None:
        environment.own(context)
    return context
