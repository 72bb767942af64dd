"""The kit as the coordinator of one client: a gRPC server that says what a case has it say."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc

from coordinator.testing.conformance.client.process import ClientProcess
from coordinator.testing.conformance.client.stream import ClientStream, Told, wanted_of
from coordinator.testing.conformance.trial import Failed, Trial
from coordinator.testing.conformance.wire import TOPIC
from coordinator.v1 import errors_pb2, group_pb2
from coordinator.v1 import session_pb2 as pb

GROUP = "conformance"
SESSION, MEMBER = "5e55" * 8, "member-1"
PARTITIONS = 4
LONG_LEASE_MS = 30_000


class ClientTrial(Trial):
    """One run of a case.

    lease_ms: what the client is told. epoch: of the coordinator. commits: what it was asked to
    commit; commit_error: the answer.
    """

    def __init__(self, command: str, lease_ms: int) -> None:
        super().__init__()
        self.client = ClientProcess(command, self.transcript, self.news.set)
        self.short_lease_ms = lease_ms
        self.lease_ms = LONG_LEASE_MS
        self.epoch, self.version = 5, 0
        self.streams: list[ClientStream] = []
        self.finds = 0
        self.commits: list[group_pb2.OffsetCommitRequest] = []
        self.commit_error: int = errors_pb2.NONE
        self._servers: list[grpc.aio.Server] = []
        self.ports: list[int] = []

    @property
    def lease_s(self) -> float:
        """The lease that the client is told."""
        return self.lease_ms / 1_000

    @property
    def now(self) -> ClientStream:
        """The newest stream."""
        return self.streams[-1]

    @property
    def heard(self) -> int:
        """Number of messages that the client has sent, on all streams."""
        return sum(len(stream.heard) for stream in self.streams)

    # --- Life ---

    async def listen(self) -> int:
        """Listen on a port of loopback."""
        server = grpc.aio.server()
        at = _Node(self)
        server.add_generic_rpc_handlers(at.handlers())
        at.port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        self._servers.append(server)
        self.ports.append(at.port)
        return at.port

    async def start(self, member_name: str = "") -> None:
        """Start the client."""
        environment = {
            "BOOTSTRAP": f"127.0.0.1:{self.ports[0]}",
            "GROUP": GROUP,
            "TOPIC": TOPIC,
            "PARTITIONS": str(PARTITIONS),
            "MEMBER_NAME": member_name,
        }
        await self.client.start(environment)

    async def close(self) -> None:
        """End everything."""
        await self.client.kill()
        for stream in self.streams:
            stream.end()
        for server in self._servers:
            await server.stop(0)

    # --- Steps of cases ---

    async def attaching(self, number: int = 1) -> ClientStream:
        """The stream of that number, once it has said Attach."""
        await self.until(
            lambda: len(self.streams) >= number and bool(self.streams[number - 1].heard),
            f"the client opens stream {number} and speaks",
        )
        stream = self.streams[number - 1]
        self.check(stream.attach is not None, "the first message of a stream is an Attach")
        return stream

    async def attached(self, tokens: dict[int, int], member_name: str = "") -> ClientStream:
        """Start the client, and grant it partitions under these tokens."""
        await self.start(member_name)
        stream = await self.attaching()
        self.answer(stream, [Told(p, token=token) for p, token in tokens.items()])
        for partition, token in tokens.items():
            granted = await self.event("granted", partition)
            self.check(granted.get("token") == token, f"it says the token {token}: {granted}")
        return stream

    def answer(self, stream: ClientStream, told: list[Told], **fields: Any) -> None:
        """Answer an Attach with the whole."""
        self.version += 1
        stream.renewed_s = stream.heard[0].at_s
        given: dict[str, Any] = {
            "session_id": SESSION,
            "member_id": MEMBER,
            "coordinator_epoch": self.epoch,
            "lease_ms": self.lease_ms,
            "heartbeat_interval_ms": self.lease_ms // 4,
            "wanted": wanted_of(self.version, told, epoch=self.epoch),
            **fields,
        }
        stream.send(pb.SessionResponse(attached=pb.Attached(**given)))

    def differ(self, stream: ClientStream, told: list[Told]) -> None:
        """Say a difference."""
        self.version += 1
        stream.wanted(self.version, told, based_on=self.version - 1)

    def whole(self, stream: ClientStream, told: list[Told], answers: int | None = None) -> None:
        """Say the whole."""
        self.version += 1
        stream.wanted(self.version, told, answers=answers)

    # --- The client ---

    async def event(self, kind: str, partition: int | None = None) -> dict[str, Any]:
        """The next thing of a kind that the client says; what comes before it is passed over."""

        def position() -> int | None:
            for number, event in enumerate(self.client.events):
                if _is(event, kind, partition):
                    return number
            return None

        where = "" if partition is None else f" of partition {partition}"
        await self.until(lambda: position() is not None, f"the client says {kind!r}{where}")
        found = position()
        assert found is not None
        return self.client.events.pop(found)

    def said(self, kind: str, partition: int | None = None) -> bool:
        """True if the client has said such a thing, and no case has asked for it."""
        return any(_is(event, kind, partition) for event in self.client.events)

    async def tell(self, do: str, **fields: Any) -> None:
        """Tell the client what to do."""
        await self.client.send({"do": do, **fields})

    async def ask_valid(self, partition: int) -> tuple[bool, bool, float]:
        """Whether effects may leave, whether new work is taken in, and when that was asked."""
        asked_s = time.monotonic()
        await self.tell("valid", partition=partition)
        event = await self.event("valid", partition)
        return bool(event.get("valid")), bool(event.get("takes_work")), asked_s

    async def is_invalid_in_time(self, partition: int, renewed_s: float) -> None:
        """Wait until nine tenths of the lease after a renewal; from then on it must not be valid.

        The client sent what was acknowledged before the kit had it, so its own clock is ahead.
        """
        await asyncio.sleep(max(0.0, renewed_s + 0.9 * self.lease_s + 0.005 - time.monotonic()))
        valid, takes_work, _ = await self.ask_valid(partition)
        self.check(not valid, "at 0.9 of the lease no effect may leave the process")
        self.check(not takes_work, "nor new work begin")

    async def commit(self, partition: int, offset: int) -> str:
        """Have the client commit; returns what it says came of it."""
        await self.tell("commit", partition=partition, offset=offset)
        event = await self.event("committed", partition)
        return str(event.get("error"))

    def check(self, is_kept: bool, rule: str) -> None:
        """See `Trial`; also that the client speaks as it should."""
        if self.client.problem is not None:
            raise Failed(self.client.problem)
        if self.client.status not in (None, 0):
            raise Failed(f"not kept: {rule}: the client has ended with {self.client.status}")
        super().check(is_kept, rule)


def _is(event: dict[str, Any], kind: str, partition: int | None) -> bool:
    return event["event"] == kind and partition in (None, event.get("partition"))


class _Node:
    """The RPCs of a client; which group is asked about does not matter."""

    def __init__(self, trial: ClientTrial) -> None:
        self._trial = trial
        self.port = 0

    def handlers(self) -> list[grpc.GenericRpcHandler]:
        """The calls of a client; there are no others."""
        pb2 = group_pb2
        calls = {
            name: grpc.unary_unary_rpc_method_handler(
                call,
                request_deserializer=request.FromString,
                response_serializer=response.SerializeToString,
            )
            for name, call, request, response in (
                ("FindCoordinator", self.FindCoordinator, pb2.FindCoordinatorRequest,
                 pb2.FindCoordinatorResponse),
                ("OffsetFetch", self.OffsetFetch, pb2.OffsetFetchRequest, pb2.OffsetFetchResponse),
                ("OffsetCommit", self.OffsetCommit, pb2.OffsetCommitRequest,
                 pb2.OffsetCommitResponse),
            )
        }  # fmt: skip
        session = grpc.stream_stream_rpc_method_handler(
            self.Session,
            request_deserializer=pb.SessionRequest.FromString,
            response_serializer=pb.SessionResponse.SerializeToString,
        )
        handler = grpc.method_handlers_generic_handler
        return [
            handler("coordinator.v1.GroupCoordinator", calls),
            handler("coordinator.v1.GroupSessions", {"Session": session}),
        ]

    async def FindCoordinator(self, request: Any, context: Any) -> Any:
        self._trial.finds += 1
        self._trial.news.set()
        port = self._trial.ports[0]
        return group_pb2.FindCoordinatorResponse(node_id=1, host="127.0.0.1", port=port)

    async def OffsetFetch(self, request: Any, context: Any) -> Any:
        answer = group_pb2.OffsetFetchResponse()
        for topic in request.topics:
            found = answer.topics.add(name=topic.name)
            for partition in topic.partition_indexes:
                found.partitions.add(partition_index=partition, committed_offset=-1)
        return answer

    async def OffsetCommit(self, request: Any, context: Any) -> Any:
        self._trial.commits.append(request)
        self._trial.news.set()
        answer = group_pb2.OffsetCommitResponse()
        for topic in request.topics:
            found = answer.topics.add(name=topic.name)
            for each in topic.partitions:
                found.partitions.add(
                    partition_index=each.partition_index,
                    error_code=self._trial.commit_error,
                )
        return answer

    async def Session(self, requests: Any, context: Any) -> AsyncIterator[pb.SessionResponse]:
        trial = self._trial
        stream = ClientStream(self.port, trial.epoch, trial.transcript.add)
        trial.streams.append(stream)
        reader = asyncio.create_task(stream.read(requests, trial.news.set))
        try:
            while (response := await stream.written()) is not None:
                yield response
        finally:
            reader.cancel()
            stream.has_ended = True
            trial.news.set()


class ClientUnderTest:
    """A command; it is started anew for each case."""

    def __init__(self, command: str, lease_ms: int) -> None:
        self._command, self._lease_ms = command, lease_ms

    @contextlib.asynccontextmanager
    async def trial(self, case: str, attempt: int) -> AsyncIterator[ClientTrial]:
        """A coordinator for one start of the client."""
        trial = ClientTrial(self._command, attempt * self._lease_ms)
        trial.transcript.add(case)
        await trial.listen()
        try:
            yield trial
        finally:
            await trial.close()
