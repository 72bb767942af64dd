"""The driver: carries out the actions of a member's machine on asyncio.

It makes the machine's calls, each in a task of its own, hands the answers in, and
asks again at the machine's next deadline. It decides nothing and knows no protocol.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Protocol, TypeVar

from coordinator.client.member import calls
from coordinator.client.member.machine import MemberMachine
from coordinator.client.member.operations import MemberOperation
from coordinator.client.transport.process_environment import library_context

T = TypeVar("T")
LOGGER = logging.getLogger("coordinator.client")


class Link(Protocol):
    """Connection to a coordinator; over gRPC it is a `Connection`."""

    async def carry_out(self, call: calls.MemberCall) -> calls.Result:
        """Make one attempt at a call."""

    def stream(self, messages: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Open the stream of a session member.

        Args:
            messages: to send; the stream ends with them.
        Returns:
            What is received; the last one is a `Failure`, or there is none.
        """

    async def close(self) -> None:
        """Close the channel; calls under way fail."""


class Driver:
    """Drives one machine on the running event loop.

    Args:
        clock: epoch milliseconds.
        on_change: called after each turn, when the machine may have events.
    """

    def __init__(
        self,
        machine: MemberMachine,
        connection: Link,
        clock: Callable[[], int],
        on_change: Callable[[], None],
    ) -> None:
        self._machine = machine
        self._connection = connection
        self._clock = clock
        self._on_change = on_change
        self._calls: dict[calls.MemberCall, asyncio.Task[None]] = {}
        self._streams: dict[calls.OpenStream, _Stream] = {}
        self._hanging_up: set[asyncio.Task[None]] = set()
        self._waiting: dict[MemberOperation, asyncio.Future[None]] = {}
        # Calls of an operation use its caller's contextvars, which hold the caller's trace. All
        # others use this context, so they do not inherit the trace of an unrelated caller.
        self._contexts: dict[object, contextvars.Context] = {}
        self._context = library_context()
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_at_ms: int | None = None
        self._closed = asyncio.Event()

    def step(self, now_ms: int | None = None) -> None:
        """Carry out all pending actions. To be called after each input of the machine."""
        now_ms = self._clock() if now_ms is None else now_ms
        try:
            while (action := self._machine.next_action(now_ms)) is not None:
                self._carry_out(action)
        except Exception as error:  # noqa: BLE001  # A bug or an assignor: the owner is notified.
            self._machine.fail(error)
        self._set_timer()
        for operation in [one for one in self._waiting if one.is_done]:
            future = self._waiting.pop(operation)
            if not future.done():
                future.set_result(None)
        if self._machine.is_closed:
            self._closed.set()
        self._on_change()

    async def result_of(self, operation: MemberOperation) -> None:
        """Wait for the end of an operation; cancelling the wait abandons it.

        Raises:
            Exception: the operation's error.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[operation] = future
        self._contexts[operation] = library_context()
        self.step()
        try:
            await future
        except asyncio.CancelledError:
            self._waiting.pop(operation, None)
            self._machine.abandon(operation)
            self.step()
            raise
        finally:
            del self._contexts[operation]
        if operation.error is not None:
            raise operation.error

    async def until_closed(self) -> None:
        """Wait until the machine, which is closing, has nothing more to do."""
        self.step()
        await self._closed.wait()
        ending = [task for task in self._calls.values() if task.cancelling()]
        ending += [stream.task for stream in self._streams.values() if stream.task is not None]
        await asyncio.gather(*ending, *self._hanging_up, return_exceptions=True)

    # --- Inside ---

    def _carry_out(self, action: calls.MemberAction) -> None:
        match action:
            case calls.MemberCall():
                context = self._contexts.get(action.requester, self._context)
                task = self._calls[action] = self._create_task(self._call(action), context)
                task.add_done_callback(lambda _: self._calls.pop(action))
            case calls.Cancel(call):
                if call in self._calls:
                    self._calls[call].cancel()
            case calls.LogMessage(level, text, group_id, member_id):
                fields = {"group": group_id, "member": member_id}
                LOGGER.log(level, "%s", text, extra=fields)
            case calls.OpenStream():
                self._open(action)
            case calls.Send(stream, message):
                if stream in self._streams:
                    self._streams[stream].outgoing.put_nowait(message)
            case calls.CloseStream(stream):
                if stream in self._streams:
                    self._streams[stream].close()
            case calls.HangUp():
                task = self._create_task(self._connection.close(), self._context)
                self._hanging_up.add(task)
                task.add_done_callback(self._hanging_up.discard)

    def _create_task(
        self, work: Coroutine[Any, Any, None], context: contextvars.Context
    ) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(work, context=context.copy())

    async def _call(self, call: calls.MemberCall) -> None:
        began_ms = self._clock()
        result = await self._connection.carry_out(call)
        if LOGGER.isEnabledFor(logging.DEBUG):
            reason, took_ms = _described(call.request), self._clock() - began_ms
            LOGGER.debug(
                "%s: %s in %d ms: %s", self._machine.name, reason, took_ms, _described(result)
            )
        self._hand_in(self._machine.handle, calls.Answer(call, result))

    def _hand_in(self, handle: Callable[[T, int], None], value: T) -> None:
        try:
            handle(value, self._clock())
        except Exception as error:  # noqa: BLE001  # A bug: the owner is notified.
            self._machine.fail(error)
        self.step()

    def _open(self, action: calls.OpenStream) -> None:
        stream = _Stream()
        self._streams[action] = stream
        stream.task = self._create_task(self._listen(action, stream), self._context)
        stream.task.add_done_callback(lambda _: self._streams.pop(action, None))

    async def _listen(self, action: calls.OpenStream, stream: _Stream) -> None:
        """Hand in what a stream says, to its end."""
        failure: calls.Failure = calls.CallUnanswered("the coordinator has ended the stream")
        async for message in self._connection.stream(stream.messages()):
            if isinstance(message, calls.Failure):
                failure = message
            elif not stream.is_closed:
                self._hand_in(self._machine.received, calls.Received(action, message))
        if not stream.is_closed:
            self._hand_in(self._machine.received, calls.StreamClosed(action, failure))

    def _set_timer(self) -> None:
        deadline_ms = self._machine.next_deadline()
        if deadline_ms == self._wakes_at_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._wakes_at_ms = None, deadline_ms
        if deadline_ms is not None:
            loop = asyncio.get_running_loop()
            seconds = max(0, deadline_ms - self._clock()) / 1000
            self._timer = loop.call_at(loop.time() + seconds, self._wake, context=self._context)

    def _wake(self) -> None:
        deadline_ms = self._wakes_at_ms
        assert deadline_ms is not None
        self._timer = self._wakes_at_ms = None
        # Clocks round: never report a time before the deadline.
        self.step(max(self._clock(), deadline_ms))


class _Stream:
    """A stream that is open: what is to be sent on it, and the task that receives from it."""

    def __init__(self) -> None:
        # Bounded by the machine: a heartbeat an interval, an answer an order; and it gives a stream
        # up whose heartbeats have no answer.
        self.outgoing: asyncio.Queue[object] = asyncio.Queue()
        self.task: asyncio.Task[None] | None = None
        self.is_closed = False

    def close(self) -> None:
        """Send what is left, and hear nothing more."""
        self.is_closed = True
        self.outgoing.put_nowait(None)

    async def messages(self) -> AsyncIterator[object]:
        """Messages to send, until the stream is closed."""
        while (message := await self.outgoing.get()) is not None:
            yield message


def _described(message: calls.Request | calls.Result) -> str:
    """A request, or the result of one, for the log: what it is, and how it went."""
    kind = type(message).__name__
    match message:
        case calls.FindCoordinator(address=address) | calls.Found(address):
            return f"{kind} {address}"
        case calls.Acknowledged(code=code):
            return f"{kind} {code}"
        case calls.Committed(codes=codes):
            return f"{kind} {' '.join(codes)}"
        case (
            calls.CallUnanswered(detail)
            | calls.Dropped(detail)
            | calls.Overloaded(detail)
            | calls.RefusedCall(detail)
        ):
            return f"{kind} {detail}"
    return kind
