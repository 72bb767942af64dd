"""The way to a group's coordinator: found through any bootstrap address, found again when lost."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

import grpc

from coordinator.client.beats import BatchedMember, HeartbeatBatcher, heartbeat_batcher
from coordinator.client.errors import CommitFailed, Unavailable
from coordinator.client.retry import BackOff, room_after_s
from coordinator.client.tracing import trace_context
from coordinator.dial import Credentials
from coordinator.handshake import tls_trouble
from coordinator.v1 import group_pb2 as pb
from coordinator.v1 import group_pb2_grpc
from coordinator.v1.errors_pb2 import ErrorCode

LOGGER = logging.getLogger(__name__)
CALL_TIMEOUT_S = 10.0
GIVE_UP_S = 30.0
"""How long an answer is asked for, again and again."""

CHANNEL_OPTIONS = (
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # gRPC's own pauses between connection attempts, below ours.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)

TURNED_AWAY = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
    }
)
"""What no other node would answer otherwise."""

DROPPED = grpc.StatusCode.CANCELLED
"""A coordinator with too much to do dropped the call, or stops: it is there, and is to be asked
again after a pause. Looking for it elsewhere would give it more to do."""

ANSWERED = TURNED_AWAY | {grpc.StatusCode.RESOURCE_EXHAUSTED}
"""The coordinator is there, and has said no."""

_ELSEWHERE = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
_RETRIABLE = _ELSEWHERE | {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


class Connection:
    """At most one channel, to the coordinator of one group.

    Args:
        credentials: what the member shows, and whom it trusts.
        find_timeout_s: how long one address may take to say where the coordinator is.
        clock: epoch milliseconds. random: from 0 to 1, below 1.
    """

    def __init__(
        self,
        bootstrap: Sequence[str],
        group_id: str,
        *,
        credentials: Credentials,
        find_timeout_s: float,
        clock: Callable[[], int],
        random: Callable[[], float],
    ) -> None:
        self._bootstrap = list(bootstrap)
        self._credentials = credentials
        self._find_timeout_s = find_timeout_s
        self._group_id = group_id
        self._clock = clock
        self._random = random
        # By which a call is found in the coordinator's log.
        self._name = f"{int(random() * 16**8):08x}"
        self._numbers = itertools.count(1)
        self._finding = asyncio.Lock()
        self._target = ""
        self._tls_trouble = ""
        self._is_looking = False
        self._batcher: HeartbeatBatcher | None = None
        self._batched: BatchedMember | None = None
        self._channel: grpc.aio.Channel | None = None
        self._stub: Any = None  # Any: the stub's calls are awaitable only on grpc.aio channels.

    @property
    def is_open(self) -> bool:
        """True if a coordinator was found and not lost since."""
        return self._stub is not None

    async def call(self, method: str, request: Any, timeout_s: float) -> Any:
        """One attempt at the group's coordinator. One that fails looks for it anew the next time.

        Args:
            method: the stub's.
        Raises:
            grpc.aio.AioRpcError: as gRPC says, or UNAVAILABLE if somebody hung up meanwhile.
        """
        async with self._finding:
            stub = await self._found()
        try:
            metadata = (*(self._credentials.metadata() or ()), *trace_context())
            if not method.startswith("Heartbeat"):
                metadata += (("x-request-id", f"{self._name}-{next(self._numbers)}"),)
            return await getattr(stub, method)(
                request, timeout=timeout_s, metadata=metadata or None
            )
        except grpc.aio.AioRpcError as error:
            if stub is self._stub and error.code() not in ANSWERED | {DROPPED}:
                await self.close()
            raise
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if stub is self._stub or (task is not None and task.cancelling()):
                raise
            # Another call of this member found the coordinator gone, and hung up.
            nothing = grpc.aio.Metadata()
            raise grpc.aio.AioRpcError(
                grpc.StatusCode.UNAVAILABLE, nothing, nothing, "the connection was closed meanwhile"
            ) from None

    async def beat(
        self, batched: BatchedMember, request: pb.HeartbeatRequest, timeout_s: float
    ) -> pb.HeartbeatResponse:
        """A heartbeat, in one call with those of others on this loop.

        Raises:
            grpc.aio.AioRpcError: as gRPC says.
        """
        async with self._finding:
            await self._found()
        self._batcher = heartbeat_batcher((self._target, self._credentials))
        self._batched = batched
        return await self._batcher.beat(batched, request, timeout_s)

    async def _found(self) -> Any:
        if self._stub is not None:
            return self._stub
        failure: grpc.aio.AioRpcError | None = None
        for address in tuple(self._bootstrap):
            channel = self._credentials.open_aio(address, CHANNEL_OPTIONS)
            try:
                found = await group_pb2_grpc.GroupCoordinatorStub(channel).FindCoordinator(
                    pb.FindCoordinatorRequest(group_id=self._group_id),
                    timeout=self._find_timeout_s,
                    metadata=self._credentials.metadata(),
                )
            except grpc.aio.AioRpcError as error:
                failure = error
                # Asked last from now on: it may hang for as long as anybody waits.
                self._bootstrap.remove(address)
                self._bootstrap.append(address)
                await channel.close()
                if error.code() is grpc.StatusCode.UNAVAILABLE:
                    self._look_into_tls(address)
                continue
            target = f"{found.host}:{found.port}"
            if found.host and found.port > 0 and target != address:
                await channel.close()
                channel = self._credentials.open_aio(target, CHANNEL_OPTIONS)
            else:
                target = address
            self._target = target
            self._channel = channel
            self._stub = group_pb2_grpc.GroupCoordinatorStub(channel)
            return self._stub
        assert failure is not None, "there is no bootstrap address"
        raise failure

    def _look_into_tls(self, address: str) -> None:
        """Log once what is wrong with TLS. In a thread: nobody has to wait for it."""
        if self._credentials.is_tls and not self._tls_trouble and not self._is_looking:
            self._is_looking = True
            threading.Thread(target=self._look, args=(address,), daemon=True).start()

    def _look(self, address: str) -> None:
        self._tls_trouble = tls_trouble(address, self._credentials)
        if self._tls_trouble:
            LOGGER.warning("%s cannot be reached: %s", address, self._tls_trouble)
        self._is_looking = False

    async def close(self) -> None:
        """Hang up; the next `stub` looks for the coordinator again."""
        if self._batcher is not None and self._batched is not None:
            self._batcher.leave(self._batched)
        channel, self._channel, self._stub = self._channel, None, None
        if channel is not None:
            await channel.close()

    async def ask(
        self, method: str, make_request: Callable[[], Any], codes_of: Callable[[Any], set[int]]
    ) -> tuple[Any, bool]:
        """An answer that is final, however often the coordinator moves or is away meanwhile.

        Args:
            method: the stub's.
            make_request: called for each attempt; what it raises ends the asking.
            codes_of: the error codes in an answer.
        Returns:
            The answer, and whether an earlier attempt may have arrived too.
        Raises:
            CommitFailed: the request is malformed, or this member may not make it.
            Unavailable: nobody answered for 30 s.
        """
        pause = BackOff(self._random)
        give_up_ms = self._clock() + int(GIVE_UP_S * 1000)
        repeated = False
        while True:
            request = make_request()
            try:
                response = await self.call(method, request, CALL_TIMEOUT_S)
            except grpc.aio.AioRpcError as error:
                room_s = room_after_s(error)
                if error.code() in ANSWERED and room_s is None:
                    raise CommitFailed(error.details() or "", error.code().name) from error
                if self._clock() >= give_up_ms:
                    what = self._tls_trouble or error.details()
                    raise Unavailable(f"no coordinator answered: {what}") from error
                if room_s is None:
                    repeated = True
                else:
                    await asyncio.sleep(room_s)
            else:
                codes = codes_of(response)
                if not codes & _RETRIABLE:
                    return response, repeated
                if self._clock() >= give_up_ms:
                    raise Unavailable(response.error_message)
                # A write that the coordinator gave up waiting for may be durable yet.
                repeated = True
                if codes & _ELSEWHERE:
                    await self.close()
            await asyncio.sleep(pause.next_s())
