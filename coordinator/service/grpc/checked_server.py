"""gRPC server that puts every call through the pipeline, and maps refusals to statuses.

Handlers are wrapped once. Each is given a `GrpcCall` instead of gRPC's context, after the pipeline
has admitted the call; a `CallRefused` from anywhere ends the call with its status. So a call that
was not admitted reaches no handler, nor one of a library (health, reflection).

It also refuses calls that gRPC itself lets through:

Requests whose bytes are no message of their kind: by itself grpc.aio answers UNKNOWN and logs a
traceback for each, as if the server had failed. Here it is INVALID_ARGUMENT.

Requests with more items than `validation.messages` allows, before anything else has looked at them;
and those to services of libraries (health, reflection) of more than 1 KiB, before they are parsed.

Metadata beyond a limit: gRPC tells clients its limit, and those that ignore it get a megabyte
through. Here it is RESOURCE_EXHAUSTED.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from time import perf_counter
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import DecodeError, Message
from structlog.contextvars import bind_contextvars

from coordinator.service import calls
from coordinator.service.grpc import statuses
from coordinator.service.grpc.accept_queue import OWN_QUEUE
from coordinator.service.grpc.calls import Context, GrpcCall, Method, method_of
from coordinator.service.grpc.serialized import writer
from coordinator.service.pipeline import Pipeline
from coordinator.service.refusals import CallRefused, Malformed
from coordinator.service.validation.messages import MessageLimits

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"  # Any: the messages of any RPC.
Immediate = Mapping[str, Callable[[Any], Any]]  # Any: a request and its response.
REQUEST_ID = "x-request-id"
"""Metadata key of the request id, by which a client finds its call in the node's log."""
REQUEST_ID_MAX = 100
WHAT = "the request is not what this call takes"
OTHERS_BYTES = 1_024
"""Largest message of health and reflection: they hold the name of a service, file or symbol."""
_OURS = "coordinator.v1"


@dataclass(frozen=True, slots=True)
class _Refused:
    """Placeholder for a request that is refused before its caller is authenticated."""

    error: Malformed


class CheckedServer:
    """Puts every service that is added to a gRPC server behind the pipeline.

    It has the two methods that gRPC's generated functions call (`add_*_to_server`).

    Args:
        immediate: by the full names of methods, functions that answer them in the same turn of the
            event loop if the pipeline admits everybody: for the hot path.
    """

    def __init__(
        self, server: grpc.aio.Server, pipeline: Pipeline, immediate: Immediate | None = None
    ) -> None:
        self._server = server
        self._pipeline = pipeline
        self._immediate = (immediate or {}) if pipeline.admits_all else {}
        self._limits = MessageLimits(pipeline.node.settings.limits)

    def add_generic_rpc_handlers(
        self, generic_rpc_handlers: Iterable[grpc.GenericRpcHandler]
    ) -> None:
        """See `grpc.aio.Server`."""
        self._server.add_generic_rpc_handlers(
            tuple(
                _Checked(handler, self._pipeline, self._limits, self._immediate)
                for handler in generic_rpc_handlers
            )
        )

    def add_registered_method_handlers(
        self,
        service_name: str,
        method_handlers: Mapping[str, Handler],
    ) -> None:
        """Give the methods of `OWN_QUEUE` queues of their own; the generic handlers serve them."""
        # Any: None makes gRPC look for a generic handler, which its types do not say.
        own: dict[str, Any] = dict.fromkeys(name for name in method_handlers if name in OWN_QUEUE)
        if own:
            self._server.add_registered_method_handlers(service_name, own)


class _Checked(grpc.GenericRpcHandler):
    """The handlers of one service."""

    def __init__(
        self,
        inner: grpc.GenericRpcHandler,
        pipeline: Pipeline,
        limits: MessageLimits,
        immediate: Immediate,
    ) -> None:
        self._inner = inner
        self._pipeline = pipeline
        self._limits = limits
        self._immediate = immediate
        self._metadata_bytes = pipeline.node.settings.limits.max_metadata_bytes
        self._known: dict[str, Handler] = {}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Handler | None:
        """Return the handler of a method; None: another service has it."""
        name = handler_call_details.method
        handler = self._known.get(name)
        if handler is None:
            inner = self._inner.service(handler_call_details)
            if inner is None:
                return None  # Not cached: clients may send any number of unknown names.
            handler = self._known[name] = self._check(name, inner)
        size = 0
        for key, value in handler_call_details.invocation_metadata or ():
            size += len(key) + len(value)
            if key == REQUEST_ID:
                # Log lines of the task that answers this call have the id.
                bind_contextvars(request_id=str(value)[:REQUEST_ID_MAX])
        return self._too_large(name) if size > self._metadata_bytes else handler

    def _too_large(self, name: str) -> Handler:
        rpc = _Rpc(name, self._pipeline)
        excess = f"more than {self._metadata_bytes} bytes of metadata"

        async def refuse(_: bytes, context: Any) -> None:
            self._pipeline.refused(rpc.call(None, context), Malformed([], excess))
            await statuses.abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, excess)

        behaviour: Any = refuse  # Any: gRPC's types know no aio.
        return grpc.unary_unary_rpc_method_handler(behaviour)

    def _check(self, name: str, inner: Any) -> Handler:  # Any: one of three kinds of handler.
        # The `FromString` of a message: a class method.
        kind: type[Message] = inner.request_deserializer.__self__
        rpc = _Rpc(name, self._pipeline)
        parse, write = self._parser(kind), writer(inner.response_serializer)
        behaviour: Any  # Any: gRPC's types know no aio.
        if inner.unary_unary:
            at_once = self._immediate.get(rpc.name)
            behaviour = rpc.answering(inner.unary_unary)
            if at_once is not None:
                behaviour = rpc.answering_at_once(at_once, otherwise=behaviour)
            # The pipeline measures one heartbeat in 64: their paths are too short.
            if rpc.kind not in (calls.HEARTBEAT, calls.HEARTBEAT_BATCH):
                behaviour = rpc.measuring(behaviour)
            return grpc.unary_unary_rpc_method_handler(behaviour, parse, write)
        if inner.unary_stream:
            assert inspect.isasyncgenfunction(inner.unary_stream), rpc.name
            behaviour = rpc.streaming(inner.unary_stream)
            return grpc.unary_stream_rpc_method_handler(behaviour, parse, write)
        # Our own handlers are coroutines; a library's (reflection) may be a generator.
        converse = inner.stream_stream
        is_ours = inspect.iscoroutinefunction(converse)
        behaviour = rpc.conversing(converse) if is_ours else rpc.generating(converse)
        return grpc.stream_stream_rpc_method_handler(behaviour, parse, write)

    def _parser(self, kind: type[Message]) -> Callable[[bytes], Any]:
        """Make the parser of a kind of message: a bad message becomes a `_Refused`."""
        limits, parse = self._limits, kind.FromString
        is_ours = kind.DESCRIPTOR.file.package == _OURS
        free_bytes = limits.plan(kind.DESCRIPTOR).free_bytes if is_ours else OTHERS_BYTES

        def checked(data: bytes) -> Any:
            is_free = len(data) <= free_bytes  # Always true of heartbeats.
            if not is_free and not is_ours:
                return _Refused(Malformed([], f"more than {OTHERS_BYTES} bytes"))
            try:
                message = parse(data)
            except DecodeError:
                return _Refused(Malformed([], WHAT))
            if not is_free and (wrong := limits.counts(message)):
                return _Refused(Malformed(wrong))
            return message

        return checked


class _Rpc:
    """Wrappers for the handlers of one RPC. Any: its requests and responses."""

    def __init__(self, name: str, pipeline: Pipeline) -> None:
        self.name = name
        self._has_checks = not pipeline.admits_all
        self._method: Method = method_of(name)
        self.kind = self._method.kind
        self._pipeline = pipeline

    def call(self, request: Any, context: Context) -> GrpcCall:
        """Make the call of a request; None: the request is refused, or the RPC takes a stream."""
        return GrpcCall(self.name, self._method, request, context)

    def answering(self, inner: Any) -> Any:
        async def behaviour(request: Any, context: Context) -> Any:
            call = self.call(None if type(request) is _Refused else request, context)
            try:
                if type(request) is _Refused or self._has_checks:
                    await self._admit(call, request)
                return await inner(request, call)
            except CallRefused as error:
                await self._end(call, error)

        return behaviour

    def measuring(self, behaviour: Any) -> Any:
        """Measure calls until they are answered or refused, or their clients give up."""
        latency = self._pipeline.latency(self.kind)

        async def measured(request: Any, context: Context) -> Any:
            began_s = perf_counter()
            try:
                return await behaviour(request, context)
            finally:
                latency.observe(perf_counter() - began_s)

        return measured

    def answering_at_once(self, at_once: Callable[[Any], Any], *, otherwise: Any) -> Any:
        """Wrap the hot path: it makes no `GrpcCall` and awaits nothing."""

        async def behaviour(request: Any, context: Context) -> Any:
            if type(request) is _Refused:
                return await otherwise(request, context)
            try:
                return at_once(request)
            except CallRefused as error:
                await self._end(self.call(request, context), error)

        return behaviour

    def streaming(self, inner: Any) -> Any:
        async def behaviour(request: Any, context: Context) -> AsyncIterator[Any]:
            call = self.call(None if type(request) is _Refused else request, context)
            try:
                await self._admit(call, request)
                async with aclosing(inner(request, call)) as messages:
                    async for message in messages:
                        yield message
            except CallRefused as error:
                await self._end(call, error)

        return behaviour

    def conversing(self, inner: Any) -> Any:
        async def behaviour(_: AsyncIterator[Any], context: Context) -> None:
            call = self.call(None, context)
            try:
                await self._pipeline.admit(call)
                await inner(_Conversation(self, call), call)
            except CallRefused as error:
                await self._end(call, error)

        return behaviour

    def generating(self, inner: Any) -> Any:
        async def behaviour(requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
            call = self.call(None, context)
            try:
                await self._pipeline.admit(call)
                async with aclosing(inner(self._each(requests, call), call)) as messages:
                    async for message in messages:
                        yield message
            except CallRefused as error:
                await self._end(call, error)

        return behaviour

    # --- Inside ---

    async def _each(self, requests: AsyncIterator[Any], call: GrpcCall) -> AsyncIterator[Any]:
        async for request in requests:
            yield await self.admitted(request, call)

    async def admitted(self, request: Any, call: GrpcCall) -> Any:
        """Return a message of a stream if it is admitted.

        Raises:
            CallRefused: it is not.
        """
        if type(request) is _Refused:
            raise request.error
        call.request = request
        await self._pipeline.admit_message(call)
        return request

    async def _admit(self, call: GrpcCall, request: Any) -> None:
        if type(request) is _Refused:
            raise request.error
        await self._pipeline.admit(call)

    async def _end(self, call: GrpcCall, error: CallRefused) -> None:
        self._pipeline.refused(call, error)
        await statuses.end(call.context, error)


class _Conversation:
    """See `Conversation`. It has no state: a stream keeps it as long as it lives."""

    __slots__ = ("_call", "_rpc")

    def __init__(self, rpc: _Rpc, call: GrpcCall) -> None:
        self._rpc = rpc
        self._call = call

    async def read(self) -> Any:
        request = await self._call.context.read()
        if request is grpc.aio.EOF:
            return None
        return await self._rpc.admitted(request, self._call)

    async def write(self, message: Any) -> None:
        await self._call.context.write(message)
