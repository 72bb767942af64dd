"""Streams of gRPC without sockets: messages both ways, in order, until one side ends them.

A message that the network loses is repeated by TCP, and those after it wait: nothing passes that
way any more, and neither side hears of it. That is a cut wire; whoever waits has to give up by
itself. A connection that is reset fails at the client, and cancels the handler.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

import grpc

from coordinator.testing.engine.handling import Aborted, Details, HandlerContext

if TYPE_CHECKING:
    from coordinator.testing.engine.channels import SimulatedChannel, SimulatedServer

_END = object()
_NO_METADATA = grpc.aio.Metadata()


def _status(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, _NO_METADATA, _NO_METADATA, details)


class StreamCall:
    """One bidirectional call, on both sides of the network: the part of gRPC's that is used."""

    def __init__(
        self,
        channel: SimulatedChannel,
        method: str,
        number: int,
        metadata: tuple[tuple[str, str], ...],
        messages: AsyncIterator[Any] | None,
        serialize: Callable[[Any], bytes],
        deserialize: Callable[[bytes], Any],
    ) -> None:
        self.channel = channel
        self.method = method
        self.number = number
        self.metadata = metadata
        self.answer = self  # As of a `UnaryCall`: what a closed channel cancels.
        self._serialize, self._deserialize = serialize, deserialize
        self._said: asyncio.Queue[Any] = asyncio.Queue()  # With `write`.
        self._received: asyncio.Queue[Any] = asyncio.Queue()  # At the client.
        self._asked: asyncio.Queue[Any] = asyncio.Queue()  # At the server.
        self._server: SimulatedServer | None = None
        self._handler: asyncio.Task[None] | None = None
        self._code: grpc.StatusCode | None = None
        self._is_over = self._is_out_dead = self._is_back_dead = False
        channel.open_calls.add(self)
        self._pump = asyncio.get_running_loop().create_task(
            self._send_all(self._written() if messages is None else messages)
        )

    # --- The client's side ---

    def __aiter__(self) -> StreamCall:
        return self

    async def __anext__(self) -> Any:
        item = await self._received.get()
        if item is _END:
            self._end(grpc.StatusCode.OK)
            raise StopAsyncIteration
        if isinstance(item, grpc.aio.AioRpcError):
            self._end(item.code())
            raise item
        return self._deserialize(item)

    async def _written(self) -> AsyncIterator[Any]:
        while True:
            yield await self._said.get()

    async def write(self, message: Any) -> None:
        """See `grpc.aio.StreamStreamCall`; for a call that was made without messages.

        Raises:
            InvalidStateError: the call has ended.
        """
        if self._is_over:
            raise asyncio.InvalidStateError("the call has ended")
        self._said.put_nowait(message)

    async def read(self) -> Any:
        """See `grpc.aio.StreamStreamCall`."""
        return await anext(self, grpc.aio.EOF)

    def cancel(self) -> bool:
        """End the call; its server hears of it."""
        if self._is_over:
            return False
        self._received.put_nowait(_status(grpc.StatusCode.CANCELLED, "Locally cancelled"))
        self._end(grpc.StatusCode.CANCELLED)
        self.withdraw()
        return True

    def withdraw(self) -> None:
        """Tell the server that nobody listens any more."""
        self._to_server(self._give_up)

    async def code(self) -> grpc.StatusCode:
        """Status with which the call has ended."""
        assert self._code is not None, "the call has not ended"
        return self._code

    def _end(self, code: grpc.StatusCode) -> None:
        self._is_over, self._code = True, code
        self.channel.open_calls.discard(self)
        if self._pump is not asyncio.current_task():
            self._pump.cancel()

    async def _send_all(self, messages: AsyncIterator[Any]) -> None:
        channel = self.channel
        addresses, network = channel.addresses, channel.addresses.network
        to = addresses.host_of(channel.address)
        server = self._server = addresses.server_at(channel.address)
        if server is None:
            if not addresses.is_silent(channel.address) and not network.is_cut(channel.host, to):
                self.fail(to, _status(grpc.StatusCode.UNAVAILABLE, "failed to connect"))
            return
        self._to_server(self._arrive, server)
        async for message in messages:
            self._to_server(self._asked.put_nowait, self._serialize(message))
            if network.happens(network.weather.reset, "stream reset"):
                self.fail(to, _status(grpc.StatusCode.UNAVAILABLE, "Connection reset by peer"))
                self.withdraw()
        self._to_server(self._asked.put_nowait, _END)

    def _to_server(self, deliver: Callable[..., None], *content: Any) -> None:
        channel, server = self.channel, self._server
        if server is None or self._is_out_dead:
            return
        to = channel.addresses.host_of(channel.address)
        self._is_out_dead = not channel.addresses.network.send(
            channel.host, server.process, to, deliver, *content, order=channel.out
        )

    # --- The server's side ---

    def fail(self, source: str, error: grpc.aio.AioRpcError) -> None:
        """Have the client see an error."""
        self.to_client(source, error)

    def to_client(self, source: str, content: Any) -> None:
        """Have the client hear a message, an error or the end."""
        channel = self.channel
        if not self._is_back_dead:
            self._is_back_dead = not channel.addresses.network.send(
                source, channel.process, channel.host, self._received.put_nowait, content,
                order=channel.back,
            )  # fmt: skip

    def _arrive(self, server: SimulatedServer) -> None:
        host = self.channel.addresses.host_of(self.channel.address)
        if self.channel.addresses.server_at(self.channel.address) is not server:
            self.fail(host, _status(grpc.StatusCode.UNAVAILABLE, "Socket closed"))
            return
        server.calls.add(self)
        self._handler = server.process.run(self._serve(server, host))

    def _give_up(self) -> None:
        if self._handler is not None:
            self._handler.cancel()

    async def _serve(self, server: SimulatedServer, host: str) -> None:
        handler = server.handler(Details(self.method, self.metadata))
        loop = asyncio.get_running_loop()
        try:
            await handler.stream_stream(None, _StreamContext(self, handler, host))
        except Aborted as aborted:
            self.fail(host, aborted.error())
        except Exception as error:  # noqa: BLE001  # gRPC answers UNKNOWN; here it is a bug besides.
            loop.call_exception_handler(
                {"message": f"the handler of {self.method} failed", "exception": error}
            )
            self.fail(host, _status(grpc.StatusCode.UNKNOWN, repr(error)))
        else:
            self.to_client(host, _END)
        finally:
            server.calls.discard(self)

    async def asked(self) -> Any:
        """Bytes of the next message from the client; `grpc.aio.EOF`: it says no more."""
        item = await self._asked.get()
        return grpc.aio.EOF if item is _END else item


class _StreamContext(HandlerContext):
    """Context of a stream for its handler, which is a coroutine that reads and writes."""

    def __init__(self, call: StreamCall, handler: Any, host: str) -> None:
        super().__init__(call.channel.peer, call.metadata)
        self._call = call
        self._handler = handler
        self._host = host

    async def read(self) -> Any:
        """See `grpc.aio.ServicerContext`."""
        item = await self._call.asked()
        return item if item is grpc.aio.EOF else self._handler.request_deserializer(item)

    async def write(self, message: Any) -> None:
        """See `grpc.aio.ServicerContext`."""
        self._call.to_client(self._host, self._handler.response_serializer(message))
