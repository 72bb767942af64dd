"""Base of the members for code that does not use asyncio, whichever protocol they speak.

The members of a process share an event loop in a thread of its own, so that they send heartbeats
while their owners work, and batch them. Nothing happens at import or construction: `start` makes
the thread, the loop and the connections in the process that calls it, which is safe in forked
worker processes.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from coordinator.client.group_address import GroupAddress
from coordinator.client.member.on_loop import LoopMember
from coordinator.client.transport.interrupts import SignalGuard, closing_reason
from coordinator.client.transport.loop_thread import LoopThread, check_process, is_forked_from
from coordinator.client.transport.surroundings import ProtocolLoop

P = ParamSpec("P")
T = TypeVar("T")


M = TypeVar("M", bound=LoopMember[Any])  # Any: the machine is the member's own business.
M_co = TypeVar("M_co", bound=LoopMember[Any], covariant=True)  # Any: as above.


def in_plain_code(
    method: Callable[Concatenate[M, P], Coroutine[Any, Any, T]],
    *,
    refusal: type[Exception] = RuntimeError,
) -> Callable[Concatenate[BlockingCalls[M], P], T]:
    """Make a blocking method of a coroutine method, with its docstring.

    Args:
        refusal: type of the exception once the member is closed.
    """

    @wraps(method)
    def call(self: BlockingCalls[M], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._call(method(self._member, *args, **kwargs), refusal)

    return call


def on_loop(
    method: Callable[Concatenate[M, P], T],
) -> Callable[Concatenate[BlockingCalls[M], P], T]:
    """Make a method for any thread of one for the loop's, with its docstring."""

    @wraps(method)
    def call(self: BlockingCalls[M], /, *args: P.args, **kwargs: P.kwargs) -> T:
        async def work() -> T:
            return method(self._member, *args, **kwargs)

        return self._call(work())

    return call


class BlockingCalls(Generic[M_co]):
    """A member on the loop of its process, for owners in other threads.

    Args:
        make: makes the member, and checks its arguments.
        handles_signals: see `MemberSettings.handle_signals`.
    """

    def __init__(self, make: Callable[[], M_co], *, handles_signals: bool) -> None:
        self._make = make
        self._member = make()
        self._handles_signals = handles_signals
        self._guard: SignalGuard | None = None
        self._closing: Future[None] | None = None
        self._on: ProtocolLoop | None = None
        # Held while a call is put on the loop, so that none comes after the close.
        # Reentrant: a signal handler may close the member in the middle of a call.
        self._lock = threading.RLock()
        self._calls: set[asyncio.Task[Any]] = set()

    @property
    def group_address(self) -> GroupAddress:
        """Address of its group."""
        return self._member.group_address

    def start(self) -> None:
        """Begin to join, in the background."""
        check_process(self._member.pid)
        if self._on is not None:
            return
        self._member = self._make()
        self._on = LoopThread.use()
        self._call(self._member.start())

    def close(self, reason: str = "closed") -> None:
        """Stop, and leave the group. May be called from any thread, and again after Ctrl-C."""
        raise NotImplementedError

    def _close_by(self, close: Callable[[M_co], Coroutine[Any, Any, None]]) -> None:
        check_process(self._member.pid)
        with self._lock:
            on = self._on
            if on is None:
                return
            if self._closing is None:
                self._closing = asyncio.run_coroutine_threadsafe(self._close(close), on.loop)
            closing = self._closing
        try:
            on.result_of(closing)
        finally:
            if closing.done():
                self._release()

    def __enter__(self) -> Self:
        self.start()
        if self._handles_signals:
            self._guard = SignalGuard()
            self._guard.install()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if is_forked_from(self._member.pid):
            return  # The member is the parent's.
        try:
            self.close(closing_reason(error))
        finally:
            if self._guard is not None:
                self._guard.remove()

    def lend(self) -> tuple[M_co, asyncio.AbstractEventLoop]:
        """The member and its loop, for `consume`, which takes the place of polling.

        Raises:
            RuntimeError: it is not started, or is closed.
        """
        with self._lock:
            check_process(self._member.pid)
            return self._member, self._running().loop

    def _running(self, refusal: type[Exception] = RuntimeError) -> ProtocolLoop:
        if self._on is None or self._closing is not None:
            raise refusal("the member is closed, or was never started")
        return self._on

    def _release(self) -> None:
        with self._lock:
            on, self._on, self._closing = self._on, None, None
        if on is not None:  # Another thread may close the member, too.
            on.release()

    async def _close(self, close: Callable[[M_co], Coroutine[Any, Any, None]]) -> None:
        """Close the member, and cancel calls of other threads, since the loop may stop."""
        await close(self._member)
        for task in self._calls:
            task.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)

    async def _noted(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.current_task()
        assert task is not None
        self._calls.add(task)
        try:
            return await work
        finally:
            self._calls.discard(task)

    def _call(self, work: Coroutine[Any, Any, T], refusal: type[Exception] = RuntimeError) -> T:
        if is_forked_from(self._member.pid):
            work.close()
        check_process(self._member.pid)
        with self._lock:
            try:
                on = self._running(refusal)
            except refusal:
                work.close()
                raise
            future: Future[T] = asyncio.run_coroutine_threadsafe(self._noted(work), on.loop)
        try:
            return on.result_of(future)
        except CancelledError:
            raise refusal("the member was closed meanwhile") from None
        except BaseException:
            future.cancel()  # Ctrl-C: nobody waits for it any more.
            raise
