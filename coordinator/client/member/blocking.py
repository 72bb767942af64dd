"""`BlockingMember`: a `Member` for code that does not use asyncio.

The members of a process share an event loop in a thread of its own, so that they send heartbeats
while their owners work, and batch them. Nothing happens at import or construction: `start` makes
the thread, the loop and the connections in the process that calls it, which is safe in forked
worker processes.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

from coordinator.client.errors import StaleMember
from coordinator.client.group_address import GroupAddress
from coordinator.client.member.events import MemberEvent
from coordinator.client.member.face import Member, MemberView
from coordinator.client.member.machine import MemberMachine
from coordinator.client.settings.setting import GroupProtocol
from coordinator.client.transport.interrupts import SignalGuard, closing_reason
from coordinator.client.transport.loop_thread import (
    LoopThread,
    check_process,
    is_forked_from,
    run_on,
)
from coordinator.client.transport.process_environment import ProtocolLoop
from coordinator.node_source import Bootstrap

if TYPE_CHECKING:
    from coordinator.client.settings.typed import MemberSettings

P = ParamSpec("P")
T = TypeVar("T")


def _in_plain_code(
    method: Callable[Concatenate[Member, P], Coroutine[Any, Any, T]],
    *,
    refusal: type[Exception] = RuntimeError,
) -> Callable[Concatenate[BlockingMember, P], T]:
    """Make a blocking method of a coroutine method, with its docstring.

    Args:
        refusal: type of the exception once the member is closed.
    """

    @wraps(method)
    def call(self: BlockingMember, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._call(lambda: method(self._member, *args, **kwargs), refusal)

    return call


def _on_loop(
    method: Callable[Concatenate[Member, P], T],
) -> Callable[Concatenate[BlockingMember, P], T]:
    """Make a method for any thread of one for the loop's, with its docstring."""

    @wraps(method)
    def call(self: BlockingMember, /, *args: P.args, **kwargs: P.kwargs) -> T:
        async def work() -> T:
            return method(self._member, *args, **kwargs)

        return self._call(work)

    return call


class BlockingMember(MemberView):
    """A `Member` whose methods block, in either protocol.

    Threads: one thread polls. Others may commit with holdings that it gave them, and use
    everything else, and `close`, which ends the calls of the others with a RuntimeError.
    Processes: a forked child has no membership: `valid` is False there, and other calls raise.

    Signals: `poll`, `commit` and `close` may be interrupted by Ctrl-C; the member can be used, and
    closed, after it. Of a commit that was interrupted it is not known whether it is stored. Inside
    `with` in the main thread, Ctrl-C and SIGTERM end the `with`, unless the program handles them
    itself, so that the member leaves (setting `handle_signals`).

    Args:
        bootstrap, topics, protocol, settings: as for `Member`.
    Raises:
        TypeError, ValueError: an argument is wrong; the message shows the right form.
        RuntimeError: a method is called before `start` or after `close`; `commit` raises
            StaleMember after it.
    """

    def __init__(
        self,
        bootstrap: Bootstrap,
        group_id: str,
        topics: Mapping[str, int],
        *,
        protocol: GroupProtocol = "classic",
        **settings: Unpack[MemberSettings],
    ) -> None:

        def make() -> Member:
            return Member(bootstrap, group_id, topics, protocol=protocol, **settings)

        self._make = make
        self._member = make()
        self._handles_signals = settings.get("handle_signals", True)
        self._guard: SignalGuard | None = None
        self._closing: Future[None] | None = None
        self._has_closed = False
        self._on: ProtocolLoop | None = None
        # Held while a call is put on the loop, so that none comes after the close.
        # Reentrant: a signal handler may close the member in the middle of a call.
        self._lock = threading.RLock()
        self._calls: set[asyncio.Task[Any]] = set()

    def start(self) -> None:
        """Begin to join, in the background."""
        check_process(self._member.pid)
        if self._on is not None:
            return
        self._member = self._make()
        self._on = LoopThread.use()
        self._call(self._member.start)

    def close(
        self,
        reason: str = "closed",
        *,
        leave: bool | None = None,
        return_within_ms: int | None = None,
    ) -> None:
        """Stop, and leave the group; see `Member.close`.

        May be called from any thread, and again after Ctrl-C has interrupted it: it goes on.
        """
        check_process(self._member.pid)
        with self._lock:
            on = self._on
            if on is None:
                return
            if self._closing is None:
                close = partial(
                    self._member.close, reason, leave=leave, return_within_ms=return_within_ms
                )
                self._closing = run_on(on.loop, lambda: self._close(close))
            closing = self._closing
        try:
            on.result_of(closing)
        finally:
            if self._has_closed:
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

    def poll(self, timeout: float | None = 0.0) -> list[MemberEvent]:
        """Return the events since the last call; see `Member.poll`."""
        owners = self._member._owners
        poll = owners.poll_begins()
        events = self._call(lambda: self._member._poll(timeout))
        owners.poll_ends(poll)
        return events

    commit = _in_plain_code(Member.commit, refusal=StaleMember)
    committed = _in_plain_code(Member.committed)
    committed_with_metadata = _in_plain_code(Member.committed_with_metadata)
    subscribe = _in_plain_code(Member.subscribe)
    report = _in_plain_code(Member.report)
    drain = _on_loop(Member.drain)
    ready = _on_loop(Member.ready)
    released = _on_loop(Member.released)
    refuse = _on_loop(Member.refuse)
    set_ready = _on_loop(Member.set_ready)

    @property
    def group_address(self) -> GroupAddress:
        """Address of its group."""
        return self._member.group_address

    @property
    def pid(self) -> int | None:  # type: ignore[override]  # The member's own.
        """Id of the process that has started it; None: none has."""
        return self._member.pid

    @property
    def _machine(self) -> MemberMachine:  # type: ignore[override]  # The member's own.
        return self._member.machine

    @property
    def _clock(self) -> Callable[[], int]:  # type: ignore[override]  # The member's own.
        return self._member._clock

    def lend(self) -> tuple[Member, asyncio.AbstractEventLoop]:
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
            on, self._on, self._closing, self._has_closed = self._on, None, None, False
        if on is not None:  # Another thread may close the member, too.
            on.release()

    async def _close(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Close the member, and cancel calls of other threads, since the loop may stop."""
        try:
            await close()
            for task in self._calls:
                task.cancel()
            await asyncio.gather(*self._calls, return_exceptions=True)
        finally:
            self._has_closed = True

    async def _noted(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        task = asyncio.current_task()
        assert task is not None
        self._calls.add(task)
        try:
            return await work()
        finally:
            self._calls.discard(task)

    def _call(
        self,
        work: Callable[[], Coroutine[Any, Any, T]],
        refusal: type[Exception] = RuntimeError,
    ) -> T:
        check_process(self._member.pid)
        with self._lock:
            on = self._running(refusal)
            future = run_on(on.loop, lambda: self._noted(work))
        try:
            return on.result_of(future)
        except CancelledError:
            raise refusal("the member was closed meanwhile") from None
        except BaseException:
            # Ctrl-C: nobody waits for it any more. Only the loop may touch it before it is done.
            with suppress(RuntimeError):  # Another thread has closed the member, and the loop.
                on.loop.call_soon_threadsafe(future.cancel)
            raise
