"""A gRPC server that refuses what gRPC itself lets through.

Requests whose bytes are no message of their kind: by itself grpc.aio answers UNKNOWN and logs a
traceback, as if the server had failed, for every such call that anybody cares to send. Here it is
INVALID_ARGUMENT.

Requests that hold more than `message_limits` lets them: their items are counted before they are
parsed, and nothing else has looked at them. Only a caller that may not make the call at all is
told so instead, where what is wrong with the message is the length of a text.

Metadata beyond a limit: gRPC tells its limit to clients, and those that do not care get a megabyte
through. Here it is RESOURCE_EXHAUSTED.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

import grpc
from google.protobuf.message import DecodeError, Message
from grpc_status import rpc_status
from structlog.contextvars import bind_contextvars

from coordinator.service.grpc import statuses, wire_counts
from coordinator.service.grpc.accept_queue import OWN_QUEUE
from coordinator.service.grpc.message_limits import MessageLimits
from coordinator.service.grpc.serialized import writer
from coordinator.service.malformed import Malformed

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"  # Any: the messages of any RPC.
RefusalSink = Callable[[str, str, str], None]
"""Told of a refused call: the RPC's name, the peer, what is wrong."""
REQUEST_ID = "x-request-id"
"""Metadata by which a client finds its call in our log."""
REQUEST_ID_MAX = 100
WHAT = "the request is not what this call takes"
Admit = Callable[[str, Message, Any], Awaitable[None]]  # Any: the context of any RPC.
"""Ends a call that its caller may not make: the method's full name, the request, the context."""


class _Undecodable:
    """Stands for a request that could not be parsed."""


@dataclass(frozen=True, slots=True)
class _Excessive:
    """Stands for a request beyond its limits. `message`: the request, if it was parsed."""

    error: Malformed
    message: Message | None = None


class CheckedServer(grpc.aio.Server):
    """`server`, with every service that is added to this one checked.

    Args:
        metadata_bytes: names and values, of all metadata of a call together.
        limits: what a request may hold.
    """

    def __init__(
        self,
        server: grpc.aio.Server,
        refused: RefusalSink,
        *,
        metadata_bytes: int,
        limits: MessageLimits,
    ) -> None:
        self._server = server
        self._checks = _Checks(refused, metadata_bytes, limits)

    def ask_first(self, admit: Admit) -> None:
        """Have a gate asked before anybody is told what is too long in a request."""
        self._checks.admit = admit

    def add_generic_rpc_handlers(
        self, generic_rpc_handlers: Iterable[grpc.GenericRpcHandler]
    ) -> None:
        """See `grpc.aio.Server`."""
        self._server.add_generic_rpc_handlers(
            tuple(_Checked(handler, self._checks) for handler in generic_rpc_handlers)
        )

    def add_registered_method_handlers(
        self,
        service_name: str,
        method_handlers: Mapping[str, Handler],
    ) -> None:
        """Give some methods queues of their own. Their handlers are the generic ones, checked."""
        # Any: gRPC's types have no None here, with which it looks among the generic ones.
        own: dict[str, Any] = dict.fromkeys(name for name in method_handlers if name in OWN_QUEUE)
        if own:
            self._server.add_registered_method_handlers(service_name, own)

    def add_insecure_port(self, address: str) -> int:
        """See `grpc.aio.Server`."""
        return self._server.add_insecure_port(address)

    def add_secure_port(self, address: str, server_credentials: grpc.ServerCredentials) -> int:
        """See `grpc.aio.Server`."""
        return self._server.add_secure_port(address, server_credentials)

    async def start(self) -> None:
        """See `grpc.aio.Server`."""
        await self._server.start()

    async def stop(self, grace: float | None) -> None:
        """See `grpc.aio.Server`."""
        await self._server.stop(grace)

    async def wait_for_termination(
        self,
        timeout: float | None = None,  # noqa: ASYNC109  # gRPC's face.
    ) -> bool:
        """See `grpc.aio.Server`."""
        return await self._server.wait_for_termination(timeout)


class _Checked(grpc.GenericRpcHandler):
    """The handlers of one service."""

    def __init__(self, inner: grpc.GenericRpcHandler, checks: _Checks) -> None:
        self._inner = inner
        self._checks = checks
        self._known: dict[str, Handler] = {}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Handler | None:
        """The handler of a method; None: it is another service's."""
        method = handler_call_details.method
        metadata = handler_call_details.invocation_metadata or ()
        size = 0
        for name, value in metadata:
            size += len(name) + len(value)
            if name == REQUEST_ID:
                # What is logged of this call, in the task that answers it, has the id.
                bind_contextvars(request_id=str(value)[:REQUEST_ID_MAX])
        if size > self._checks.metadata_bytes:
            return self._too_large(method)
        if method in self._known:
            return self._known[method]
        inner = self._inner.service(handler_call_details)
        if inner is None:
            return None  # Not remembered: names of methods that do not exist have no end.
        checked = self._known[method] = self._check(method, inner)
        return checked

    def _too_large(self, method: str) -> Handler:
        what = f"more than {self._checks.metadata_bytes} bytes of metadata"

        async def refuse(_: bytes, context: Any) -> None:
            self._checks.refused(method, context.peer(), what)
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, what)

        behaviour: Any = refuse  # Any: gRPC's types know no aio.
        return grpc.unary_unary_rpc_method_handler(behaviour)

    def _check(self, method: str, inner: Any) -> Handler:  # Any: one of three kinds of handler.
        async def refuse(request: Any, context: Any) -> None:
            await self._checks.refuse(method, request, context)

        async def each(requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
            async for request in requests:
                if isinstance(request, _REFUSED):
                    await refuse(request, context)
                yield request

        async def answer(request: Any, context: Any) -> Any:
            if isinstance(request, _REFUSED):  # A beat passes here: nothing is awaited.
                await refuse(request, context)
            return await (inner.unary_unary or inner.unary_stream)(request, context)

        async def answers(request: Any, context: Any) -> AsyncIterator[Any]:
            if isinstance(request, _REFUSED):
                await refuse(request, context)
            async for message in inner.unary_stream(request, context):
                yield message

        async def converse(requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
            async for message in inner.stream_stream(each(requests, context), context):
                yield message

        parse = self._checks.parser(inner.request_deserializer)
        write = writer(inner.response_serializer)
        if inner.unary_unary:
            return grpc.unary_unary_rpc_method_handler(answer, parse, write)
        if inner.unary_stream:
            # A stream is written by a generator, or by a coroutine that has the context do it.
            is_generator = inspect.isasyncgenfunction(inner.unary_stream)
            behaviour: Any = answers if is_generator else answer  # Any: gRPC's types know no aio.
            return grpc.unary_stream_rpc_method_handler(behaviour, parse, write)
        assert inner.stream_stream, f"{method} answers a stream once: there is no such call here"
        both: Any = converse  # Any: as above.
        return grpc.stream_stream_rpc_method_handler(both, parse, write)


_REFUSED = (_Undecodable, _Excessive)


class _Checks:
    """What is asked of every request, and how it is refused."""

    def __init__(self, refused: RefusalSink, metadata_bytes: int, limits: MessageLimits) -> None:
        self.refused = refused
        self.metadata_bytes = metadata_bytes
        self.admit: Admit | None = None
        self._limits = limits

    def parser(self, parse: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
        """As `parse`, the `FromString` of a message; what may not be becomes a stand-in."""
        kind: type[Message] = parse.__self__  # type: ignore[attr-defined]  # A class method.
        limits, plan = self._limits, self._limits.plan(kind.DESCRIPTOR)

        def checked(data: bytes) -> Any:
            size = len(data)
            if size > wire_counts.SMALL_BYTES and (found := wire_counts.excess(data, plan)):
                return _Excessive(Malformed([found]))
            try:
                message = parse(data)
            except DecodeError:
                return _Undecodable()
            if size <= plan.free_bytes:  # As nearly all heartbeats.
                return message
            if wrong := limits.counts(message):
                return _Excessive(Malformed(wrong))
            if wrong := limits.texts(message):
                return _Excessive(Malformed(wrong), message)
            return message

        return checked

    async def refuse(self, method: str, request: Any, context: Any) -> NoReturn:
        """End a call for its request."""
        if isinstance(request, _Undecodable):
            self.refused(method, context.peer(), WHAT)
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, WHAT)
            raise AssertionError("abort raises")
        if request.message is not None and self.admit is not None:
            await self.admit(method, request.message, context)
        self.refused(method, context.peer(), str(request.error))
        await context.abort_with_status(rpc_status.to_status(statuses.malformed(request.error)))
        raise AssertionError("abort_with_status raises")
