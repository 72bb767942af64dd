"""A stream of the member, and the messages that a case sends on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import grpc

from coordinator.testing.coordinator import HOST
from coordinator.v1 import session_pb2 as pb
from tests.kit.session_member import ACTIVE
from tests.protocol.sessions.trial import TOPIC, brief, now_s


@dataclass(frozen=True, slots=True)
class Told:
    """One partition as the member is told of it."""

    partition: int
    order: pb.Orders.Order.ValueType = ACTIVE
    token: int = 0
    handoff_id: int = 0
    remaining_ms: int = 0
    offset: int = -1
    position: int | None = None


@dataclass(frozen=True, slots=True)
class HeardRequest:
    """A message of the member, and when it came."""

    at_s: float
    request: pb.SessionRequest


class MemberStream:
    """One stream. acks: whether its heartbeats are acknowledged; expiring: what they list."""

    def __init__(self, port: int, epoch: int, tell: Callable[[str], None]) -> None:
        self.port, self.epoch = port, epoch
        self._tell = tell
        self._out: asyncio.Queue[pb.SessionResponse | None] = asyncio.Queue()
        self.heard: list[HeardRequest] = []
        self.acks = True
        self.expiring: list[int] = []
        self.has_ended = False
        self.renewed_s = 0.0
        """Time at which the newest acknowledged message came."""

    # --- What was heard ---

    @property
    def attach(self) -> pb.Attach | None:
        """Its first message, if it is an Attach."""
        if not self.heard or self.heard[0].request.WhichOneof("message") != "attach":
            return None
        return self.heard[0].request.attach

    @property
    def heartbeats(self) -> list[pb.SessionHeartbeat]:
        """Its heartbeats, oldest first."""
        return [
            message.request.heartbeat
            for message in self.heard
            if message.request.HasField("heartbeat")
        ]

    @property
    def acked(self) -> list[pb.SessionAck.Partition]:
        """Acks of single partitions, oldest first."""
        return [
            partition
            for message in self.heard
            if message.request.HasField("ack")
            for partition in message.request.ack.partitions
        ]

    @property
    def leave(self) -> pb.SessionLeave | None:
        """Its Leave."""
        found = [
            message.request.leave for message in self.heard if message.request.HasField("leave")
        ]
        return found[0] if found else None

    def count(self, kind: pb.SessionAck.Kind.ValueType, partition: int, **fields: int) -> int:
        """Number of acks of a kind for a partition, with these fields."""
        return sum(
            ack.kind == kind
            and ack.partition == partition
            and all(getattr(ack, name) == value for name, value in fields.items())
            for ack in self.acked
        )

    # --- What is said ---

    def send(self, response: pb.SessionResponse) -> None:
        """Say something."""
        self._tell(f"case   ->  {brief(response)}")
        self._out.put_nowait(response)

    def end(self) -> None:
        """End the stream, without a word."""
        self._out.put_nowait(None)

    def orders(
        self,
        version: int,
        orders: Iterable[Told],
        *,
        based_on: int | None = None,
        answers: int | None = None,
        epoch: int | None = None,
        is_part: bool = False,
    ) -> None:
        """Send orders."""
        message = orders_message(version, orders, epoch=self.epoch if epoch is None else epoch)
        message.is_part = is_part
        if based_on is not None:
            message.based_on = based_on
        if answers is not None:
            message.answers = answers
        self.send(pb.SessionResponse(orders=message))

    def acknowledge(self, number: int, *, epoch: int | None = None) -> None:
        """Acknowledge a heartbeat."""
        ack = pb.SessionHeartbeatAck(
            number=number, coordinator_epoch=self.epoch if epoch is None else epoch
        )
        if self.expiring:
            ranges = [pb.PartitionRange(first=p, last=p) for p in self.expiring]
            ack.expiring.add(name=TOPIC, partitions=ranges)
        self.send(pb.SessionResponse(heartbeat_ack=ack))

    def go_away(self, reason: pb.GoAway.Reason.ValueType, port: int = 0) -> None:
        """Say GoAway, and end the stream."""
        host = HOST if port else ""
        self.send(pb.SessionResponse(go_away=pb.GoAway(reason=reason, host=host, port=port)))
        self.end()

    def refuse(self, code: int, retry_after_ms: int = 0) -> None:
        """Say Refused, and end the stream."""
        refused = pb.SessionRefused(
            error_code=code,  # type: ignore[arg-type]  # An enum of protobuf is a number.
            error_message="of the case",
            retry_after_ms=retry_after_ms,
        )
        self.send(pb.SessionResponse(refused=refused))
        self.end()

    # --- The RPC ---

    async def read(self, context: Any, tell: Callable[[], None]) -> None:
        """Hear everything, to the end of the stream."""
        try:
            while (request := await context.read()) is not grpc.aio.EOF:
                at_s = now_s()
                self._tell(f"case   <-  {brief(request)}")
                self.heard.append(HeardRequest(at_s, request))
                if request.HasField("heartbeat") and self.acks:
                    self.renewed_s = at_s
                    self.acknowledge(request.heartbeat.number)
                tell()
        finally:
            self.has_ended = True
            self.end()
            tell()

    async def written(self) -> pb.SessionResponse | None:
        """The next message to send; None: the stream ends."""
        return await self._out.get()


def orders_message(version: int, orders: Iterable[Told], *, epoch: int) -> pb.Orders:
    """Orders in full."""
    message = pb.Orders(coordinator_epoch=epoch, version=version)
    ranges = []
    for event in orders:
        ordered = pb.Orders.Range(
            partitions=pb.PartitionRange(
                first=event.partition, last=event.partition, first_token=event.token
            ),
            order=event.order,
            handoff_id=event.handoff_id,
            remaining_ms=event.remaining_ms,
            committed_offsets=[event.offset],
        )
        if event.position is not None:
            ordered.position = event.position
        ranges.append(ordered)
    if ranges:
        message.topics.add(name=TOPIC, ranges=ranges)
    else:
        message.why = "window"
    return message
