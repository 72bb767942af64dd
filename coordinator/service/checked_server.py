"""A gRPC server that refuses what gRPC itself lets through.

Requests whose bytes are no message of their kind: by itself grpc.aio answers UNKNOWN and logs a
traceback, as if the server had failed, for every such call that anybody cares to send. Here it is
INVALID_ARGUMENT.

Metadata beyond a limit: gRPC tells its limit to clients, and those that do not care get a megabyte
through. Here it is RESOURCE_EXHAUSTED.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import DecodeError
from structlog.contextvars import bind_contextvars

from coordinator.service.accept_queue import OWN_QUEUE

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"  # Any: the messages of any RPC.
RefusalSink = Callable[[str, str, str], None]
"""Told of a refused call: the RPC's name, the peer, what is wrong."""
REQUEST_ID = "x-request-id"
"""Metadata by which a client finds its call in our log."""
REQUEST_ID_MAX = 100
WHAT = "the request is not what this call takes"


class _Undecodable:
    """Stands for a request that could not be parsed."""


class CheckedServer(grpc.aio.Server):
    """`server`, with every service that is added to this one checked.

    Args:
        metadata_bytes: names and values, of all metadata of a call together.
    """

    def __init__(
        self, server: grpc.aio.Server, refused: RefusalSink, *, metadata_bytes: int
    ) -> None:
        self._server = server
        self._refused = refused
        self._metadata_bytes = metadata_bytes

    def add_generic_rpc_handlers(
        self, generic_rpc_handlers: Iterable[grpc.GenericRpcHandler]
    ) -> None:
        """See `grpc.aio.Server`."""
        self._server.add_generic_rpc_handlers(
            tuple(
                _Checked(handler, self._refused, self._metadata_bytes)
                for handler in generic_rpc_handlers
            )
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

    def __init__(
        self, inner: grpc.GenericRpcHandler, refused: RefusalSink, metadata_bytes: int
    ) -> None:
        self._inner = inner
        self._refused = refused
        self._metadata_bytes = metadata_bytes
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
        if size > self._metadata_bytes:
            return self._too_large(method)
        if method in self._known:
            return self._known[method]
        inner = self._inner.service(handler_call_details)
        if inner is None:
            return None  # Not remembered: names of methods that do not exist have no end.
        checked = self._known[method] = self._check(method, inner)
        return checked

    def _too_large(self, method: str) -> Handler:
        what = f"more than {self._metadata_bytes} bytes of metadata"

        async def refuse(_: bytes, context: Any) -> None:
            self._refused(method, context.peer(), what)
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, what)

        behaviour: Any = refuse  # Any: gRPC's types know no aio.
        return grpc.unary_unary_rpc_method_handler(behaviour)

    def _check(self, method: str, inner: Any) -> Handler:  # Any: one of three kinds of handler.
        async def refuse(context: Any) -> None:
            self._refused(method, context.peer(), WHAT)
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, WHAT)

        async def each(requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
            async for request in requests:
                if isinstance(request, _Undecodable):
                    await refuse(context)
                yield request

        async def answer(request: Any, context: Any) -> Any:
            if isinstance(request, _Undecodable):  # A beat passes here: nothing is awaited.
                await refuse(context)
            return await (inner.unary_unary or inner.unary_stream)(request, context)

        async def answers(request: Any, context: Any) -> AsyncIterator[Any]:
            if isinstance(request, _Undecodable):
                await refuse(context)
            async for message in inner.unary_stream(request, context):
                yield message

        async def converse(requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
            async for message in inner.stream_stream(each(requests, context), context):
                yield message

        parse, write = _forgiving(inner.request_deserializer), inner.response_serializer
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


def _forgiving(parse: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def forgiving(data: bytes) -> Any:
        try:
            return parse(data)
        except DecodeError:
            return _Undecodable()

    return forgiving
