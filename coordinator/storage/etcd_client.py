"""etcd's gRPC API over several endpoints, with time limits and a login.

Reads are linearizable and repeated at another endpoint when one does not answer. A write is
sent once: whether it was carried out when no answer comes is for the caller to find out,
who is told `Ambiguous`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import grpc

from coordinator.storage.access import StoreAccess
from coordinator.storage.etcd_api import rpc_pb2 as pb
from coordinator.storage.etcd_api import rpc_pb2_grpc
from coordinator.storage.log import Ambiguous, CannotOpen, LogError, TooLarge, Unavailable

CALL_TIMEOUT_S = 2.0
OPTIONS = (
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.max_receive_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)
_RETRIED = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.INTERNAL,
    }
)


class EtcdClient:
    """Calls to whichever endpoint answered last.

    Args:
        call_timeout_s: after so long another endpoint is asked.
    """

    def __init__(self, access: StoreAccess, *, call_timeout_s: float = CALL_TIMEOUT_S) -> None:
        self._access = access
        self._call_timeout_s = call_timeout_s
        self._current = 0
        # One each, kept: closing one would cancel the calls of others that are under way in it.
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._token = ""

    async def close(self) -> None:
        """Hang up."""
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close()

    async def range(self, request: pb.RangeRequest) -> pb.RangeResponse:
        """A read.

        Raises:
            Unavailable: no endpoint answers.
        """
        response: pb.RangeResponse = await self._repeat("KV", "Range", request)
        return response

    async def repeatable(self, request: pb.TxnRequest) -> pb.TxnResponse:
        """A transaction that may be carried out twice, because it only reads, or sets.

        Raises:
            Unavailable: no endpoint answers.
        """
        response: pb.TxnResponse = await self._repeat("KV", "Txn", request)
        return response

    async def txn(self, request: pb.TxnRequest) -> pb.TxnResponse:
        """A transaction, sent once.

        Raises:
            Ambiguous: it may have been carried out. Unavailable, TooLarge: it was not.
        """
        asked = self._current
        try:
            response: pb.TxnResponse = await self._call("KV", "Txn", request)
        except grpc.aio.AioRpcError as error:
            failure = failure_of(error)
            if isinstance(failure, Ambiguous):
                self._go_on_from(asked)
            raise failure from error
        return response

    async def compact(self, revision: int) -> None:
        """Let go of what was overwritten or deleted before a revision.

        Raises:
            Unavailable: no endpoint answers.
        """
        try:
            await self._repeat("KV", "Compact", pb.CompactionRequest(revision=revision))
        except Unavailable as error:
            # Somebody else was faster.
            if "has been compacted" not in str(error):
                raise

    async def status(self) -> pb.StatusResponse:
        """The endpoint's own size and health.

        Raises:
            Unavailable: no endpoint answers.
        """
        response: pb.StatusResponse = await self._repeat(
            "Maintenance", "Status", pb.StatusRequest()
        )
        return response

    async def alarms(self) -> list[str]:
        """The names of alarms that are raised, NOSPACE among them.

        Raises:
            Unavailable: no endpoint answers.
        """
        request = pb.AlarmRequest(action=pb.AlarmRequest.AlarmAction.GET)
        response: pb.AlarmResponse = await self._repeat("Maintenance", "Alarm", request)
        return [pb.AlarmType.Name(member.alarm) for member in response.alarms]

    async def watch(self, first: bytes, end: bytes) -> AsyncIterator[pb.WatchResponse]:
        """Changes of the keys from one on to before another, once the watch stands.

        Raises:
            grpc.aio.AioRpcError: the watch has broken; what happened since is not told.
        """
        stub: Any = rpc_pb2_grpc.WatchStub(self._connect())
        call = stub.Watch(metadata=await self._metadata())
        create = pb.WatchCreateRequest(key=first, range_end=end)
        try:
            await call.write(pb.WatchRequest(create_request=create))
            async for response in call:
                if response.canceled:
                    return
                yield response
        finally:
            call.cancel()

    # --- Inside ---

    async def _metadata(self) -> Sequence[tuple[str, str]]:
        if not self._access.user:
            return ()
        return (("token", await self._log_in(self._connect())),)

    async def _repeat(self, service: str, method: str, request: Any) -> Any:
        """A call that may be made twice: every endpoint is asked in turn."""
        failure: Exception | None = None
        for _ in range(2 * len(self._access.endpoints)):
            asked = self._current
            try:
                return await self._call(service, method, request)
            except grpc.aio.AioRpcError as error:
                failure = error
                if error.code() not in _RETRIED:
                    break
                self._go_on_from(asked)
        assert isinstance(failure, grpc.aio.AioRpcError)
        raise Unavailable(f"etcd: {failure.details()}") from failure

    async def _call(self, service: str, method: str, request: Any) -> Any:
        try:
            return await self._call_once(service, method, request)
        except grpc.aio.AioRpcError as error:
            # A token runs out, and dies with the endpoint that gave it. Nothing was done.
            stale = "invalid auth token" in (error.details() or "")
            if not self._access.user or not stale:
                raise
            self._token = ""
        return await self._call_once(service, method, request)

    async def _call_once(self, service: str, method: str, request: Any) -> Any:
        channel = self._connect()
        metadata = await self._metadata()
        stub = getattr(rpc_pb2_grpc, f"{service}Stub")(channel)
        return await getattr(stub, method)(request, timeout=self._call_timeout_s, metadata=metadata)

    async def _log_in(self, channel: grpc.aio.Channel) -> str:
        if not self._token:
            request = pb.AuthenticateRequest(name=self._access.user, password=self._access.password)
            stub: Any = rpc_pb2_grpc.AuthStub(channel)
            self._token = (await stub.Authenticate(request, timeout=self._call_timeout_s)).token
        return self._token

    def _connect(self) -> grpc.aio.Channel:
        endpoint = self._access.endpoints[self._current]
        if endpoint not in self._channels:
            if self._access.ca_file is None:
                channel = grpc.aio.insecure_channel(endpoint, options=OPTIONS)
            else:
                credentials = grpc.ssl_channel_credentials(
                    _read(self._access.ca_file),
                    _read(self._access.key_file),
                    _read(self._access.cert_file),
                )
                channel = grpc.aio.secure_channel(endpoint, credentials, options=OPTIONS)
            self._channels[endpoint] = channel
        return self._channels[endpoint]

    def _go_on_from(self, asked: int) -> None:
        """Ask the next endpoint from now on, unless another call has said so already."""
        if self._current == asked:
            self._current = (asked + 1) % len(self._access.endpoints)
            self._token = ""


def failure_of(error: grpc.aio.AioRpcError) -> LogError:
    """Which of the four failures an error of a write is."""
    words = f"etcd: {error.details()}"
    match error.code():
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            # "mvcc: database space exceeded"; requests above etcd's own rate are soon taken.
            return Unavailable(words, is_lasting="space exceeded" in words)
        case grpc.StatusCode.INVALID_ARGUMENT if "too large" in (error.details() or ""):
            return TooLarge(words)
        case grpc.StatusCode.UNAUTHENTICATED | grpc.StatusCode.PERMISSION_DENIED:
            return Unavailable(words, is_lasting=True)
        case _:
            return Ambiguous(words)


def _read(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as error:
        raise CannotOpen(f"{path} cannot be read: {error.strerror}") from error
