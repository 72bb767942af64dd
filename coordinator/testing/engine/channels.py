"""gRPC without sockets: channels and servers whose calls travel over a world's network.

`SimulatedCredentials` opens the channels, so client and follower run as they are shipped. A server
takes the handlers that the services register, and requests and responses cross as bytes. Clients
get real `grpc.aio.AioRpcError`s with the codes that gRPC gives:

| what happens | code |
|---|---|
| nobody listens at the address, or the process dies during the call | UNAVAILABLE |
| the connection breaks | UNAVAILABLE; the request may have been carried out |
| no answer in time: the message is lost, the process stands still | DEADLINE_EXCEEDED |
| the handler aborts | what it says |
| the client closes the channel | the call is cancelled |

A handler whose client went away, or whose deadline has passed, is cancelled, as `grpc.aio` does.

Streams of members are in `streams.py`. Not simulated: other streams (the client library makes
none), flow control, limits of connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Protocol, Self

import grpc

from coordinator.dial import Credentials, Metadata, Options
from coordinator.testing.engine.handling import Aborted, Details, HandlerContext
from coordinator.testing.engine.network import MessageOrder, Network
from coordinator.testing.engine.process import Process
from coordinator.testing.engine.story import Story
from coordinator.testing.engine.streams import StreamCall
from coordinator.v1.errors_pb2 import ErrorCode


class Observer(Protocol):
    """Told of every call that a process makes."""

    def began(self, request: Any) -> int:
        """A call begins; its number."""

    def ended(self, number: int, response: Any) -> None:
        """It has ended with a response, or with None. One whose process dies never ends."""


_NO_METADATA = grpc.aio.Metadata()


def unavailable(details: str) -> grpc.aio.AioRpcError:
    """Return the error of a call that was refused, or lost its connection."""
    return grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, _NO_METADATA, _NO_METADATA, details)


def outcome_of(response: Any) -> str:
    """A response in a few words: its error codes, and the generation if it has one."""
    messages = [response, *getattr(response, "heartbeats", ())]
    messages += [p for topic in getattr(response, "topics", ()) for p in topic.partitions]
    codes = [ErrorCode.Name(one.error_code) for one in messages if hasattr(one, "error_code")]
    reason = ", ".join(dict.fromkeys(codes)) or "answered"
    generation = getattr(response, "generation_id", None)
    return reason if generation is None else f"{reason}, generation {generation}"


class SimulatedServer:
    """Replacement of `grpc.aio.Server`, to which services are added; it listens in one process.

    Args:
        answered: called with method, request and response, in the turn that made the response.
    """

    def __init__(self, process: Process, answered: Callable[[str, Any, Any], None]) -> None:
        self.process = process
        self.answered = answered
        self._generic: list[grpc.GenericRpcHandler] = []
        self.calls: set[UnaryCall | StreamCall] = set()

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        """See `grpc.aio.Server`."""
        self._generic += handlers

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """See `grpc.aio.Server`. The generic handlers serve them too."""

    def handler(self, details: grpc.HandlerCallDetails) -> Any:
        """The handler of a method; None: there is none."""
        for generic in self._generic:
            handler = generic.service(details)
            if handler is not None:
                return handler
        return None


class Addresses:
    """Servers by address. A host that is down does not even refuse connections."""

    def __init__(self, network: Network, story: Story) -> None:
        self.network = network
        self.story = story
        self._servers: dict[str, tuple[str, SimulatedServer | None]] = {}
        self._silent: set[str] = set()

    def listen(self, address: str, host: str, server: SimulatedServer) -> None:
        """Let a server listen at an address."""
        self._servers[address] = (host, server)
        self._silent.discard(address)

    def hang_up(self, address: str, *, silently: bool = False) -> None:
        """End listening at an address; clients see their connections end.

        Args:
            silently: the machine has died with the process, and clients see nothing.
        """
        host, server = self._servers[address]
        self._servers[address] = (host, None)
        if silently:
            self._silent.add(address)
        elif server is not None:
            for call in sorted(server.calls, key=lambda call: call.number):
                call.fail(host, unavailable("Socket closed"))

    def host_of(self, address: str) -> str:
        """Host behind an address; the address itself if no server ever listened there."""
        return self._servers.get(address, (address, None))[0]

    def server_at(self, address: str) -> SimulatedServer | None:
        """Server that listens at an address; None: there is none."""
        return self._servers.get(address, ("", None))[1]

    def is_silent(self, address: str) -> bool:
        """True if connections to it are not refused but ignored."""
        return address in self._silent


class SimulatedCredentials(Credentials):
    """Opens channels over a world's network for one process, instead of sockets.

    Equal to itself alone: processes share nothing, though they share the loop.
    """

    addresses: Addresses
    process: Process
    host: str
    peer: str
    observe: Observer | None
    finds: int
    """FindCoordinator calls that were answered."""

    @classmethod
    def of(
        cls,
        addresses: Addresses,
        process: Process,
        host: str,
        peer: str,
        observe: Observer | None = None,
    ) -> Self:
        """Make credentials for a process on a host, which servers see as `peer`."""
        made = cls()
        for name, value in (
            ("addresses", addresses), ("process", process), ("host", host), ("peer", peer),
            ("observe", observe), ("finds", 0),
        ):  # fmt: skip
            object.__setattr__(made, name, value)  # The class above is frozen.
        return made

    def found(self) -> None:
        """A coordinator was found; counted if it is not the first."""
        if self.finds:
            self.addresses.story.count("client re-discovery")
        object.__setattr__(self, "finds", self.finds + 1)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def metadata(self) -> Metadata | None:
        return None

    def open_aio(self, address: str, options: Options | None = None) -> grpc.aio.Channel:
        channel: Any = SimulatedChannel(self, address)  # Any: it is a channel by its methods.
        return channel  # type: ignore[no-any-return]


class SimulatedChannel:
    """A connection to one address: the part of `grpc.aio.Channel` that stubs use."""

    def __init__(self, credentials: SimulatedCredentials, address: str) -> None:
        self.addresses = credentials.addresses
        self.process = credentials.process
        self.host = credentials.host
        self.peer = credentials.peer
        self.observe = credentials.observe
        self.credentials = credentials
        self.address = address
        self.out, self.back = MessageOrder(), MessageOrder()
        self.open_calls: set[UnaryCall | StreamCall] = set()
        self._numbers = iter(range(1, 1 << 62))

    def unary_unary(
        self,
        method: str,
        request_serializer: Callable[[Any], bytes],
        response_deserializer: Callable[[bytes], Any],
        _registered_method: bool | None = None,
    ) -> Callable[..., Any]:
        """See `grpc.aio.Channel`."""

        async def invoke(
            request: Any,
            *,
            timeout: float | None = None,  # noqa: ASYNC109  # gRPC's face.
            metadata: Sequence[tuple[str, str]] | None = None,
            wait_for_ready: bool | None = None,  # A server that listens is ready.
        ) -> Any:
            call = UnaryCall(self, method, next(self._numbers), timeout, tuple(metadata or ()))
            data, response = request_serializer(request), None
            number = self.observe.began(request) if self.observe is not None else 0
            outcome = "cancelled"
            try:
                response = response_deserializer(await call.run(data))
                if method.endswith("/FindCoordinator"):
                    self.credentials.found()
                outcome = outcome_of(response) if self.addresses.story.is_told else ""
                return response
            except grpc.aio.AioRpcError as error:
                outcome = error.code().name
                raise
            finally:
                if self.observe is not None:
                    self.observe.ended(number, response)
                self.addresses.story.tell(
                    self.host, f"{method.rpartition('/')[2]} to {self.address}: {outcome}"
                )

        return invoke

    def unary_stream(self, *_: Any, **__: Any) -> None:
        """See `grpc.aio.Channel`. Streams of this kind are not simulated."""

    stream_unary = unary_stream

    def stream_stream(
        self,
        method: str,
        request_serializer: Callable[[Any], bytes],
        response_deserializer: Callable[[bytes], Any],
        _registered_method: bool | None = None,
    ) -> Callable[..., StreamCall]:
        """See `grpc.aio.Channel`."""

        def invoke(
            requests: AsyncIterator[Any] | None = None,
            *,
            metadata: Sequence[tuple[str, str]] | None = None,
        ) -> StreamCall:
            return StreamCall(
                self, method, next(self._numbers), tuple(metadata or ()), requests,
                request_serializer, response_deserializer,
            )  # fmt: skip

        return invoke

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self, grace: float | None = None) -> None:
        """Hang up: calls under way are cancelled."""
        for call in sorted(self.open_calls, key=lambda call: call.number):
            call.answer.cancel()

    def break_off(self) -> None:
        """End the connection for its server: the client's process has died, its machine lives."""
        for call in sorted(self.open_calls, key=lambda call: call.number):
            call.withdraw()


class UnaryCall:
    """One call, on both sides of the network."""

    def __init__(
        self,
        channel: SimulatedChannel,
        method: str,
        number: int,
        timeout_s: float | None,
        metadata: tuple[tuple[str, str], ...],
    ) -> None:
        self.channel = channel
        self.method = method
        self.number = number
        self.metadata = metadata
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._timeout_s = timeout_s
        self._handlers: list[asyncio.Task[None]] = []
        self._server: SimulatedServer | None = None

    # --- The client's side ---

    async def run(self, request: bytes) -> bytes:
        """Send the request, and wait for the answer or the deadline.

        Raises:
            grpc.aio.AioRpcError: see the table above.
        """
        channel, deadline = self.channel, None
        if self._timeout_s is not None:
            loop = asyncio.get_running_loop()
            deadline = loop.call_later(self._timeout_s, self._time_out)
        channel.open_calls.add(self)
        self._send(request)
        try:
            return await self.answer
        except asyncio.CancelledError:
            self.withdraw()
            raise
        finally:
            channel.open_calls.discard(self)
            if deadline is not None:
                deadline.cancel()

    def _send(self, request: bytes) -> None:
        channel = self.channel
        addresses, network = channel.addresses, channel.addresses.network
        to = addresses.host_of(channel.address)
        server = self._server = addresses.server_at(channel.address)
        if server is None:
            if not addresses.is_silent(channel.address) and not network.is_cut(channel.host, to):
                self.fail(to, unavailable("failed to connect to all addresses"))
            return
        if not network.send(
            channel.host, server.process, to, self._arrive, server, request, order=channel.out
        ):
            return
        weather = network.weather
        if network.happens(weather.doubled, "request doubled"):
            network.send(
                channel.host, server.process, to, self._arrive, server, request, order=channel.out
            )
        elif network.happens(weather.reset, "connection reset"):
            self.fail(to, unavailable("recvmsg: Connection reset by peer"))

    def _time_out(self) -> None:
        if not self.answer.done():
            self.answer.set_exception(
                grpc.aio.AioRpcError(
                    grpc.StatusCode.DEADLINE_EXCEEDED, _NO_METADATA, _NO_METADATA,
                    "Deadline Exceeded",
                )
            )  # fmt: skip
            self.withdraw()

    def withdraw(self) -> None:
        """Tell the server that nobody waits any more."""
        channel, server = self.channel, self._server
        if server is not None:
            to = channel.addresses.host_of(channel.address)
            network = channel.addresses.network
            network.send(channel.host, server.process, to, self._give_up, order=channel.out)

    def _answered(self, response: bytes) -> None:
        if not self.answer.done():
            self.answer.set_result(response)

    def _failed(self, error: grpc.aio.AioRpcError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)

    # --- The server's side ---

    def fail(self, source: str, error: grpc.aio.AioRpcError) -> None:
        """Have the client see an error."""
        channel = self.channel
        channel.addresses.network.send(
            source, channel.process, channel.host, self._failed, error, order=channel.back
        )

    def _arrive(self, server: SimulatedServer, request: bytes) -> None:
        host = self.channel.addresses.host_of(self.channel.address)
        if self.channel.addresses.server_at(self.channel.address) is not server:
            self.fail(host, unavailable("Socket closed"))
            return
        server.calls.add(self)
        task = server.process.run(self._serve(server, host, request))
        self._handlers.append(task)
        if self._timeout_s is not None:
            loop = asyncio.get_running_loop()
            deadline = loop.call_later(self._timeout_s, task.cancel)
            task.add_done_callback(lambda _: deadline.cancel())

    def _give_up(self) -> None:
        for handler in self._handlers:
            handler.cancel()

    async def _serve(self, server: SimulatedServer, host: str, request: bytes) -> None:
        channel = self.channel
        loop = asyncio.get_running_loop()
        ends_at = None if self._timeout_s is None else loop.time() + self._timeout_s
        details = Details(self.method, self.metadata)
        handler = server.handler(details)
        try:
            if handler is None:
                raise Aborted(grpc.StatusCode.UNIMPLEMENTED, "Method not found!", _NO_METADATA)
            message = handler.request_deserializer(request)
            response = await handler.unary_unary(
                message, HandlerContext(self.channel.peer, self.metadata, ends_at)
            )
            server.answered(self.method.rpartition("/")[2], message, response)
            data = handler.response_serializer(response)
        except Aborted as aborted:
            self.fail(host, aborted.error())
            return
        except Exception as error:  # noqa: BLE001  # gRPC answers UNKNOWN; here it is a bug besides.
            loop.call_exception_handler(
                {"message": f"the handler of {self.method} failed", "exception": error}
            )
            self.fail(host, Aborted(grpc.StatusCode.UNKNOWN, repr(error), _NO_METADATA).error())
            return
        finally:
            server.calls.discard(self)
        channel.addresses.network.send(
            host, channel.process, channel.host, self._answered, data, order=channel.back
        )
