"""Client of etcd's gRPC API over several endpoints, with time limits and a login.

Reads are linearizable and repeated at another endpoint when one does not answer. A write is sent
once: without an answer it raises `Ambiguous`, and the caller finds out whether it was carried out.
A write whose second answer tells what the first did may be sent twice (`resolvable`).

etcd drops calls that are under way when its leader dies, and answers them after seconds or never,
though it has a new leader after one. So calls that may be sent twice are hedged: when no call has
been answered for a while, the next endpoint is asked as well, and the first answer counts. While
other calls are answered, a slow call is not repeated: an overloaded store is not given more to do.

Source: https://etcd.io/docs/v3.5/dev-guide/api_reference_v3/
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import grpc

from coordinator.storage.access import StoreAccess
from coordinator.storage.etcd_api import rpc_pb2 as pb
from coordinator.storage.etcd_api import rpc_pb2_grpc
from coordinator.storage.log import Ambiguous, CannotOpen, LogError, LogUnavailable, TooLarge

CALL_TIMEOUT_S = 2.0
OPTIONS = (
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.max_receive_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.enable_http_proxy", 0),  # gRPC obeys `http_proxy` otherwise.
)
SILENCES = 6
"""Parts of a call's time limit; after one part without any answer another endpoint is asked too."""
_RETRIED = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.INTERNAL,
    }
)


class _NoAnswer(Exception):
    """All calls have failed. `is_open`: other calls were still under way."""

    def __init__(self, failures: Sequence[grpc.aio.AioRpcError], is_open: bool) -> None:
        super().__init__(failures[-1].details())
        self.failures = failures
        self._is_open = is_open

    def verdict(self) -> LogError:
        """Failure of a write: `Ambiguous` if any of the calls may have been carried out."""
        errors = [failure_of(failure) for failure in self.failures]
        in_doubt = next((failure for failure in errors if isinstance(failure, Ambiguous)), None)
        if in_doubt is None and self._is_open:
            in_doubt = Ambiguous(str(self))
        return in_doubt or errors[-1]


class EtcdClient:
    """Calls etcd, at the endpoint that answered last.

    Args:
        call_timeout_s: time limit of a call.
    """

    def __init__(self, access: StoreAccess, *, call_timeout_s: float = CALL_TIMEOUT_S) -> None:
        self._access = access
        self._call_timeout_s = call_timeout_s
        self._silence_s = call_timeout_s / SILENCES
        self._answered_at = time.monotonic()
        self._current = 0
        # One channel an endpoint, kept: closing it would cancel other calls that are under way.
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._token = ""

    async def close(self) -> None:
        """Close all connections."""
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close()

    async def range(self, request: pb.RangeRequest) -> pb.RangeResponse:
        """Read keys.

        Raises:
            LogUnavailable: no endpoint answers.
        """
        response: pb.RangeResponse = await self._repeat("KV", "Range", request)
        return response

    async def repeatable(self, request: pb.TxnRequest) -> pb.TxnResponse:
        """Send a transaction that only reads, so it may be carried out twice.

        Raises:
            LogUnavailable: no endpoint answers.
        """
        response: pb.TxnResponse = await self._repeat("KV", "Txn", request)
        return response

    async def resolvable(self, request: pb.TxnRequest) -> pb.TxnResponse:
        """Send a transaction that compares the keys it changes, so it may be sent several times.

        If an earlier attempt was carried out, the answer says that it did not succeed.

        Raises:
            Ambiguous: it may have been carried out. Unavailable, TooLarge: it was not.
        """
        try:
            response: pb.TxnResponse = await self._request_any("KV", "Txn", request)
        except _NoAnswer as error:
            raise error.verdict() from error
        return response

    async def txn(self, request: pb.TxnRequest) -> pb.TxnResponse:
        """Send a transaction once.

        Raises:
            Ambiguous: it may have been carried out. Unavailable, TooLarge: it was not.
        """
        endpoint = self._current
        try:
            response: pb.TxnResponse = await self._call("KV", "Txn", request)
        except grpc.aio.AioRpcError as error:
            failure = failure_of(error)
            if isinstance(failure, Ambiguous):
                self._go_on_from(endpoint)
            raise failure from error
        return response

    async def compact(self, revision: int) -> None:
        """Compact: drop values that were overwritten or deleted before a revision.

        Raises:
            LogUnavailable: no endpoint answers.
        """
        try:
            await self._repeat("KV", "Compact", pb.CompactionRequest(revision=revision))
        except LogUnavailable as error:
            # Another node was faster.
            if "has been compacted" not in str(error):
                raise

    async def status(self) -> pb.StatusResponse:
        """Size and revision of the endpoint asked.

        Raises:
            LogUnavailable: no endpoint answers.
        """
        response: pb.StatusResponse = await self._repeat(
            "Maintenance", "Status", pb.StatusRequest()
        )
        return response

    async def watch(self, first: bytes, end: bytes) -> AsyncIterator[pb.WatchResponse]:
        """Yield changes of the keys in [first, end), and an empty response once the watch stands.

        Raises:
            grpc.aio.AioRpcError: the watch has broken; later changes are missed.
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
        if not self._token:
            request = pb.AuthenticateRequest(name=self._access.user, password=self._access.password)
            stub: Any = rpc_pb2_grpc.AuthStub(self._connect())
            self._token = (await stub.Authenticate(request, timeout=self._call_timeout_s)).token
        return (("token", self._token),)

    async def _repeat(self, service: str, method: str, request: Any) -> Any:
        """Call a method that is idempotent."""
        try:
            return await self._request_any(service, method, request)
        except _NoAnswer as error:
            raise LogUnavailable(f"etcd: {error.failures[-1].details()}") from error

    async def _request_any(self, service: str, method: str, request: Any) -> Any:
        """Return the first answer of any endpoint; `_NoAnswer` after two failures of each."""
        calls: set[asyncio.Task[Any]] = set()
        made: list[asyncio.Task[Any]] = []
        failures: list[grpc.aio.AioRpcError] = []
        most = 2 * len(self._access.endpoints)
        endpoint, is_due, is_refused = self._current, True, False
        try:
            while len(failures) < most and (calls or not is_refused):
                if is_due:
                    endpoint = self._current
                    made.append(asyncio.create_task(self._call(service, method, request)))
                    calls.add(made[-1])
                done, calls = await asyncio.wait(
                    calls, timeout=self._silence_s, return_when=asyncio.FIRST_COMPLETED
                )
                for call in done:
                    failure = call.exception()
                    if failure is None:
                        return call.result()
                    if not isinstance(failure, grpc.aio.AioRpcError):
                        raise failure
                    failures.append(failure)
                    # Calls under way at other endpoints may still be carried out.
                    is_refused = is_refused or failure.code() not in _RETRIED
                is_due = not is_refused and (bool(done) or self._is_silent(endpoint))
                if is_due:
                    self._go_on_from(endpoint)
        finally:
            for call in made:
                call.cancel()
                call.add_done_callback(_disregard)
        raise _NoAnswer(failures, bool(calls))

    def _is_silent(self, endpoint: int) -> bool:
        """True after a while without answers, or if other calls have moved to another endpoint."""
        return endpoint != self._current or time.monotonic() - self._answered_at >= self._silence_s

    async def _call(self, service: str, method: str, request: Any) -> Any:
        try:
            return await self._call_once(service, method, request)
        except grpc.aio.AioRpcError as error:
            # A token expires, and is lost with the endpoint that gave it. Nothing was done.
            stale = "invalid auth token" in (error.details() or "")
            if not self._access.user or not stale:
                raise
            self._token = ""
        return await self._call_once(service, method, request)

    async def _call_once(self, service: str, method: str, request: Any) -> Any:
        channel = self._connect()
        metadata = await self._metadata()
        stub = getattr(rpc_pb2_grpc, f"{service}Stub")(channel)
        call = getattr(stub, method)
        answer = await call(request, timeout=self._call_timeout_s, metadata=metadata)
        self._answered_at = time.monotonic()
        return answer

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

    def _go_on_from(self, endpoint: int) -> None:
        """Ask the next endpoint from now on, unless another call has moved on already."""
        if self._current == endpoint:
            self._current = (endpoint + 1) % len(self._access.endpoints)
            self._token = ""


def _disregard(call: asyncio.Task[Any]) -> None:
    """Retrieve the exception of a call that lost the race, or asyncio logs it."""
    if not call.cancelled():
        call.exception()


def failure_of(error: grpc.aio.AioRpcError) -> LogError:
    """Classify an error of a write as one of the four failures of a log."""
    reason = f"etcd: {error.details()}"
    match error.code():
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            # "mvcc: database space exceeded"; requests above etcd's own rate are soon taken.
            return LogUnavailable(reason, is_lasting="space exceeded" in reason)
        case grpc.StatusCode.INVALID_ARGUMENT if "too large" in (error.details() or ""):
            return TooLarge(reason)
        case grpc.StatusCode.UNAUTHENTICATED | grpc.StatusCode.PERMISSION_DENIED:
            return LogUnavailable(reason, is_lasting=True)
        case _:
            return Ambiguous(reason)


def _read(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as error:
        raise CannotOpen(f"{path} cannot be read: {error.strerror}") from error
