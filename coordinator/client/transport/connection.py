"""The connection of a member: one channel to its coordinator, over which calls are made.

It makes the machine's calls and returns their results. The machine decides when to look for the
coordinator and when to hang up.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc

from coordinator.client.errors import CoordinatorError
from coordinator.client.member.calls import (
    Beat,
    BrokenCall,
    CallUnanswered,
    FindCoordinator,
    Found,
    MemberCall,
    Result,
)
from coordinator.client.transport.heartbeats import (
    BatchedMember,
    HeartbeatBatcher,
    batcher,
    closed_meanwhile,
)
from coordinator.client.transport.process_environment import opener
from coordinator.client.transport.tracing import trace_context
from coordinator.client.transport.wire import METHODS, decode, encode, failure_of
from coordinator.dial import Credentials
from coordinator.v1 import group_pb2_grpc, session_pb2_grpc

LOGGER = logging.getLogger(__name__)

CHANNEL_OPTIONS = (
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # gRPC's own pauses between connection attempts, below ours. With its jitter the longest is well
    # below the 1.8 s in which members under the shortest profile have to be back after a restart.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)


class CoordinatorConnection:
    """Connection to the coordinator of one group: at most one channel.

    Args:
        credentials: the member's token or certificate, and the authorities it trusts.
        interval_s: between two heartbeats.
        beat_now: makes the member send its heartbeat now, so that it is batched with others.
        random: from 0 to 1, below 1.
    """

    def __init__(
        self,
        credentials: Credentials,
        interval_s: float,
        beat_now: Callable[[], object],
        random: Callable[[], float],
    ) -> None:
        self._given = self._credentials = opener(credentials)
        self._member = BatchedMember(self, interval_s, beat_now)
        # Prefix of the request ids, by which a call is found in the coordinator's log.
        self._name = f"{int(random() * 16**8):08x}"
        self._numbers = itertools.count(1)
        self._tls_failure = ""
        self._is_looking = False
        self._batcher: HeartbeatBatcher | None = None
        self._channel: grpc.aio.Channel | None = None
        self._stub: Any = None  # Any: the stub's calls are awaitable only on grpc.aio channels.

    async def carry_out(self, call: MemberCall) -> Result:
        """Make one attempt at a call."""
        request, timeout_s = call.request, call.timeout_ms / 1000
        try:
            if isinstance(request, FindCoordinator):
                return await self._find(request, timeout_s)
            message = encode(request)
            if isinstance(request, Beat) and self._batcher is not None:
                return decode(await self._batcher.beat(self._member, message, timeout_s))
            return decode(await self.call(METHODS[type(request)], message, timeout_s))
        except grpc.aio.AioRpcError as error:
            return failure_of(error, self._why(error))
        except CoordinatorError as error:  # No node was found.
            return CallUnanswered(str(error))
        except Exception as error:  # noqa: BLE001  # The machine decides who hears of it.
            return BrokenCall(error)

    async def call(self, method: str, message: Any, timeout_s: float) -> Any:
        """Make one attempt over the current channel.

        Args:
            method: name of the stub's method. message: its request.
        Raises:
            grpc.aio.AioRpcError: the call failed; UNAVAILABLE if the channel was closed meanwhile.
        """
        stub = self._stub
        if stub is None:
            raise closed_meanwhile()
        metadata = (*(self._credentials.metadata() or ()), *trace_context())
        if not method.startswith("Heartbeat"):
            metadata += (("x-request-id", f"{self._name}-{next(self._numbers)}"),)
        try:
            return await getattr(stub, method)(
                message, timeout=timeout_s, metadata=metadata or None
            )
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # The channel was closed, since another call of this member found the coordinator gone.
            raise closed_meanwhile() from None

    async def stream(self, messages: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Open the stream of a session member; see `Link`."""
        channel = self._channel
        if channel is None:
            yield failure_of(closed_meanwhile())
            return
        call = None
        try:
            metadata = (*(self._credentials.metadata() or ()), *trace_context())
            name = ("x-request-id", f"{self._name}-{next(self._numbers)}")
            stub: Any = session_pb2_grpc.GroupSessionsStub(channel)  # Any: as `_stub`.
            call = stub.Session(messages, metadata=(*metadata, name))
            async for message in call:
                yield message
        except grpc.aio.AioRpcError as error:
            yield failure_of(error, self._why(error))
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            yield failure_of(closed_meanwhile())
        except Exception as error:  # noqa: BLE001  # The machine decides who hears of it.
            yield BrokenCall(error)
        finally:
            if call is not None:
                call.cancel()
                await call.code()  # Its own tasks end with it, before the loop may stop.

    async def close(self) -> None:
        """Close the channel; calls under way fail."""
        if self._batcher is not None:
            self._batcher.leave(self._member)
        channel, self._channel, self._stub = self._channel, None, None
        if channel is not None:
            await channel.close()

    # --- Discovery ---

    async def _find(self, request: FindCoordinator, timeout_s: float) -> Found:
        """Ask one address, and connect to the coordinator that it names."""
        address = request.address
        if address == str(self._given.nodes):  # Of a node that was named, the token is known.
            dialed = await asyncio.to_thread(self._given.dialed, address, timeout_s)
            address, self._credentials = dialed
        channel = self._credentials.open_aio(address, CHANNEL_OPTIONS)
        try:
            response = await group_pb2_grpc.GroupCoordinatorStub(channel).FindCoordinator(
                encode(request), timeout=timeout_s, metadata=self._credentials.metadata()
            )
        except BaseException as error:
            await channel.close()
            if isinstance(error, grpc.aio.AioRpcError):
                if error.code() is grpc.StatusCode.UNAVAILABLE:
                    self._probe_tls(address)
            raise
        reply = decode(response, address)
        assert isinstance(reply, Found)
        if reply.address != address:
            await channel.close()
            channel = self._credentials.open_aio(reply.address, CHANNEL_OPTIONS)
        self._channel = channel
        self._stub = group_pb2_grpc.GroupCoordinatorStub(channel)
        self._batcher = batcher((reply.address, self._credentials))
        return reply

    def _why(self, error: grpc.aio.AioRpcError) -> str:
        """Reason of an error beyond what gRPC says; empty: there is none."""
        through = self._credentials.through
        return self._tls_failure or (through and f"{error.details()},{through}")

    def _probe_tls(self, address: str) -> None:
        """Log once what is wrong with TLS; in a thread, so that no call waits for it."""
        may_look = self._credentials.is_tls and not self._credentials.proxy
        if may_look and not self._tls_failure and not self._is_looking:
            self._is_looking = True
            threading.Thread(target=self._probe, args=(address,), daemon=True).start()

    def _probe(self, address: str) -> None:
        from coordinator.handshake import tls_failure

        self._tls_failure = tls_failure(address, self._credentials)
        if self._tls_failure:
            LOGGER.warning("%s cannot be reached: %s", address, self._tls_failure)
        self._is_looking = False
