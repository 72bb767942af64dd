"""The coordinator of one member, which says what a case has it say; on virtual time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc

from coordinator.assignors import TopicPartition
from coordinator.client import (
    CoordinatorError,
    Granted,
    Holding,
    Lost,
    Member,
    MemberEvent,
    Resumed,
    Revoking,
    Stopping,
    Suspended,
    Warming,
)
from coordinator.testing import VirtualGroup
from coordinator.testing.coordinator import HOST, PORT
from coordinator.testing.engine.channels import SimulatedServer
from coordinator.testing.processes import VirtualProcess
from coordinator.v1 import errors_pb2, group_pb2
from coordinator.v1 import session_pb2 as pb
from tests.protocol.sessions.member_rules.stream import MemberStream, Told, orders_message
from tests.protocol.sessions.trial import TOPIC, Failed, Trial, now_s

GROUP = "g"
SESSION, MEMBER = "5e55" * 8, "member-1"
PARTITIONS = 4
LONG_LEASE_MS = 30_000
MOMENT_S = 0.01
"""Time in which what was sent arrives."""


class MemberTrial(Trial):
    """One run of a case.

    lease_ms: what the member is told. epoch: of the coordinator. commits: what it was asked to
    commit; commit_error: the answer. events: what the member told its owner.
    """

    def __init__(self, group: VirtualGroup, short_lease_ms: int) -> None:
        super().__init__()
        self._group = group
        self.short_lease_ms = short_lease_ms
        self.lease_ms = LONG_LEASE_MS
        self.epoch, self.version = 5, 0
        self.streams: list[MemberStream] = []
        self.finds = 0
        self.commits: list[group_pb2.OffsetCommitRequest] = []
        self.commit_error: int = errors_pb2.NONE
        self.ports: list[int] = []
        self.events: list[dict[str, Any]] = []
        self.process: VirtualProcess | None = None
        self._member: Member | None = None
        self._holdings: dict[int, Holding] = {}
        """The last one that was heard of, by number of partition."""

    @property
    def lease_s(self) -> float:
        """The lease that the member is told."""
        return self.lease_ms / 1_000

    @property
    def now(self) -> MemberStream:
        """The newest stream."""
        return self.streams[-1]

    @property
    def received(self) -> int:
        """Number of messages that the member has sent, on all streams."""
        return sum(len(stream.heard) for stream in self.streams)

    # --- Life ---

    @classmethod
    @contextlib.asynccontextmanager
    async def of(cls, group: VirtualGroup, lease_ms: int) -> AsyncIterator[MemberTrial]:
        """Take the place of a group's coordinator, before one member."""
        await group.advance(0)
        group.coordinator.kill()
        trial = cls(group, lease_ms)
        trial.listen()
        try:
            with trial.told():
                yield trial
        finally:
            if trial.process is not None:
                trial.process.kill()
            for stream in trial.streams:
                stream.end()

    def listen(self) -> int:
        """Listen on one more port."""
        port = PORT + len(self.ports)
        node = self._group.loop.process(f"the scripted coordinator at {port}")
        server = SimulatedServer(node, lambda method, request, response: None)
        server.add_generic_rpc_handlers(_Node(self, port).handlers())
        self._group.addresses.listen(f"{HOST}:{port}", HOST, server)
        self.ports.append(port)
        return port

    def start(self, member_name: str = "") -> None:
        """Start the member, in a process of its own."""
        self.process = self._group.start(self._run, member_name, name="the member")

    async def _run(self, member_name: str) -> None:
        self._member = member = Member(
            f"{HOST}:{self.ports[0]}",
            GROUP,
            {TOPIC: PARTITIONS},
            protocol="session",
            member_name=member_name or None,
        )
        await member.start()
        try:
            async for event in member.events():
                self._receive(event)
            self._say("stopping", reason="it has left")
        except CoordinatorError as error:
            self._say("stopping", reason=str(error))

    def _receive(self, event: MemberEvent) -> None:
        """Note an event. What is lost is released at once: nothing of it runs."""
        if isinstance(event, Stopping):
            return
        for holding in event.holdings:
            self._holdings[holding.partition.partition] = holding
            match event:
                case Granted():
                    self._say("granted", holding, token=holding.token, offset=holding.offset)
                case Warming():
                    self._say("warming", holding, position=holding.position)
                case Revoking():
                    self._say("draining", holding)
                case Lost():
                    self._say("lost", holding)
                    if not event.was_warming:
                        self.member.released(holding)
                case Suspended():
                    self._say("suspended", holding)
                case Resumed():
                    self._say("resumed", holding)

    def _say(self, kind: str, holding: Holding | None = None, **more: Any) -> None:
        where = {} if holding is None else {"partition": holding.partition.partition}
        self.events.append({"event": kind, **where, **more})
        self.transcript.add(f"member     {self.events[-1]}")
        self.news.set()

    # --- Steps of cases ---

    async def attaching(self, number: int = 1) -> MemberStream:
        """The stream of that number, once it has said Attach."""
        await self.until(
            lambda: len(self.streams) >= number and bool(self.streams[number - 1].heard),
            f"the member opens stream {number} and speaks",
        )
        stream = self.streams[number - 1]
        self.check(stream.attach is not None, "the first message of a stream is an Attach")
        return stream

    async def attached(self, tokens: dict[int, int], member_name: str = "") -> MemberStream:
        """Start the member, and grant it partitions under these tokens."""
        self.start(member_name)
        stream = await self.attaching()
        self.answer(stream, [Told(p, token=token) for p, token in tokens.items()])
        for partition, token in tokens.items():
            granted = await self.event("granted", partition)
            self.check(granted.get("token") == token, f"it says the token {token}: {granted}")
        return stream

    def answer(self, stream: MemberStream, orders: list[Told], **fields: Any) -> None:
        """Answer an Attach with the whole."""
        self.version += 1
        stream.renewed_s = stream.heard[0].at_s
        given: dict[str, Any] = {
            "session_id": SESSION,
            "member_id": MEMBER,
            "coordinator_epoch": self.epoch,
            "lease_ms": self.lease_ms,
            "heartbeat_interval_ms": self.lease_ms // 4,
            "orders": orders_message(self.version, orders, epoch=self.epoch),
            **fields,
        }
        stream.send(pb.SessionResponse(attached=pb.Attached(**given)))

    def differ(self, stream: MemberStream, orders: list[Told]) -> None:
        """Say a difference."""
        self.version += 1
        stream.orders(self.version, orders, based_on=self.version - 1)

    def whole(self, stream: MemberStream, orders: list[Told], answers: int | None = None) -> None:
        """Say the whole."""
        self.version += 1
        stream.orders(self.version, orders, answers=answers)

    # --- The member ---

    async def event(self, kind: str, partition: int | None = None) -> dict[str, Any]:
        """The next thing of a kind that the member says; what comes before it is passed over."""

        def position() -> int | None:
            for number, event in enumerate(self.events):
                if _is(event, kind, partition):
                    return number
            return None

        where = "" if partition is None else f" of partition {partition}"
        await self.until(lambda: position() is not None, f"the member says {kind!r}{where}")
        found = position()
        assert found is not None
        return self.events.pop(found)

    def said(self, kind: str, partition: int | None = None) -> bool:
        """True if the member has said such a thing, and no case has asked for it."""
        return any(_is(event, kind, partition) for event in self.events)

    @property
    def member(self) -> Member:
        """The member, once it has started."""
        assert self._member is not None
        return self._member

    def holding(self, partition: int) -> Holding:
        """The holding that the member spoke of last, or one that it never had."""
        return self._holdings.get(partition) or Holding(TopicPartition(TOPIC, partition))

    async def validity(self, partition: int) -> tuple[bool, bool]:
        """Whether effects may leave, and whether new work is taken in, in a moment."""
        await asyncio.sleep(MOMENT_S)
        holding = self.holding(partition)
        return self.member.valid(holding), self.member.takes_work(holding)

    async def is_invalid_in_time(self, partition: int, renewed_s: float) -> None:
        """Wait until nine tenths of the lease after a renewal: it must not be valid any more."""
        await asyncio.sleep(max(0.0, renewed_s + 0.9 * self.lease_s - now_s()))
        valid, takes_work = await self.validity(partition)
        self.check(not valid, "at 0.9 of the lease no effect may leave the process")
        self.check(not takes_work, "nor new work begin")

    async def commit(self, partition: int, offset: int) -> str:
        """Have the member commit; returns NONE, or the name of the exception."""
        holding = self.holding(partition)
        try:
            await self.member.commit({holding.partition: offset}, holdings=holding)
        except CoordinatorError as error:
            return type(error).__name__
        return "NONE"

    def has_ended(self) -> bool:
        """True if the member's process has ended by itself, without an error."""
        process = self.process
        return process is not None and not process.is_running and process.error is None

    def check(self, is_kept: bool, rule: str) -> None:
        """See `Trial`; also that the member has not failed."""
        if self.process is not None and self.process.error is not None:
            raise Failed(f"not kept: {rule}: the member ended with {self.process.error!r}")
        super().check(is_kept, rule)


def _is(event: dict[str, Any], kind: str, partition: int | None) -> bool:
    return event["event"] == kind and partition in (None, event.get("partition"))


class _Node:
    """The RPCs of a member; which group is asked about does not matter."""

    def __init__(self, trial: MemberTrial, port: int) -> None:
        self._trial = trial
        self._port = port

    def handlers(self) -> list[grpc.GenericRpcHandler]:
        """The calls of a member; there are no others."""
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
        port = self._trial.ports[-1]
        return group_pb2.FindCoordinatorResponse(node_id=1, host=HOST, port=port)

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
            for partition in topic.partitions:
                found.partitions.add(
                    partition_index=partition.partition_index,
                    error_code=self._trial.commit_error,
                )
        return answer

    async def Session(self, _: Any, context: Any) -> None:
        trial = self._trial
        stream = MemberStream(self._port, trial.epoch, trial.transcript.add)
        trial.streams.append(stream)
        reader = asyncio.create_task(stream.read(context, trial.news.set))
        try:
            while (response := await stream.written()) is not None:
                await context.write(response)
        finally:
            reader.cancel()
            stream.has_ended = True
            trial.news.set()
