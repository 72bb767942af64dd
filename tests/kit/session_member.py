"""A member of a session group as a test plays it: what it says, and what it has been told.

It has no I/O: each method returns the message that is to be sent on its stream, and `hear` takes in
a message of the coordinator. Partitions are numbers, of one topic.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from coordinator.v1 import session_pb2 as pb
from tests.kit.requests import attach

ACTIVE, WARM, DRAIN, LOST = (
    pb.Orders.ACTIVE, pb.Orders.WARM, pb.Orders.DRAIN, pb.Orders.LOST,
)  # fmt: skip


class Ordered(NamedTuple):
    """An order about a partition. token 0: none. offset -1: unknown."""

    order: pb.Orders.Order.ValueType
    token: int
    handoff_id: int
    remaining_ms: int
    offset: int
    position: int | None

    @property
    def name(self) -> str:
        """Its order in a word."""
        return pb.Orders.Order.Name(self.order)


def orders_of(orders: pb.Orders) -> dict[int, Ordered]:
    """The orders of a message, by partition."""
    found: dict[int, Ordered] = {}
    for topic in orders.topics:
        for some in topic.ranges:
            first, last = some.partitions.first, some.partitions.last
            token, offsets = some.partitions.first_token, some.committed_offsets
            for number, partition in enumerate(range(first, last + 1)):
                found[partition] = Ordered(
                    some.order,
                    token + number if token else 0,
                    some.handoff_id,
                    some.remaining_ms,
                    offsets[number] if number < len(offsets) else -1,
                    some.position if some.HasField("position") else None,
                )
    return found


def held_topics(held: dict[int, int], topic: str = "t") -> list[pb.HeldTopic]:
    """A held set, as messages carry it: tokens by partition."""
    if not held:
        return []
    ranges = [pb.PartitionRange(first=p, last=p, first_token=held[p]) for p in sorted(held)]
    return [pb.HeldTopic(name=topic, partitions=ranges)]


class ScriptedMember:
    """One member of a group.

    Args:
        partitions: that it declares of its topic.
        incarnation: id of its process; empty: its name.
        fields: of its Attach, besides those that every Attach has.
    """

    def __init__(
        self,
        name: str,
        partitions: int = 4,
        *,
        group_id: str = "g",
        topic: str = "t",
        incarnation: bytes = b"",
        **fields: Any,
    ) -> None:
        self.name, self.partitions = name, partitions
        self.group_id, self.topic, self.fields = group_id, topic, fields
        self.incarnation, self.started_at_ms = incarnation or name.encode(), 0
        self.session_id = self.member_id = ""
        self.stream_number = self.number = self.epoch = self.version = 0
        self.orders: dict[int, Ordered] = {}
        self.held: dict[int, int] = {}
        """Tokens of partitions that it has not released."""
        self.releases = self.readies = self.refuses = False
        """Acks that it gives without being told."""
        self._released: set[int] = set()
        """Tokens that it has released: also one whose first order was to drain it."""

    # --- What it says ---

    def attach(self, **fields: Any) -> pb.SessionRequest:
        """Attach on a new stream, with what it holds."""
        self.stream_number = fields.pop("stream_number", self.stream_number + 1)
        known: dict[str, Any] = {
            "incarnation": {"id": self.incarnation, "started_at_ms": self.started_at_ms},
            "session_id": self.session_id,
            "topics": [{"name": self.topic, "partitions": self.partitions}],
            "coordinator_epoch": self.epoch,
            "held": held_topics(self.held, self.topic),
        }
        given = {**known, **self.fields, **fields}
        return attach(self.name, self.group_id, self.stream_number, **given)

    def beat(self, **fields: Any) -> pb.SessionRequest:
        """The next heartbeat."""
        self.number = fields.pop("number", self.number + 1)
        applied = {"applied_epoch": self.epoch, "applied_version": self.version}
        beat = pb.SessionHeartbeat(number=self.number, **{**applied, **fields})
        return pb.SessionRequest(heartbeat=beat)

    def ack(self, kind: str, *partitions: int, **fields: Any) -> pb.SessionRequest:
        """What it has done, by default for the orders that it has."""
        acks = []
        for partition in partitions:
            ordered, given = self.orders.get(partition), fields
            if ordered is not None:
                given = {"token": ordered.token, "handoff_id": ordered.handoff_id, **fields}
            if kind != "READY":
                token = given.get("token", 0)
                self._released.add(token)
                if token == self.held.get(partition):
                    del self.held[partition]
            said = pb.SessionAck.Kind.Value(kind)
            ack = pb.SessionAck.Partition(topic=self.topic, partition=partition, kind=said, **given)
            acks.append(ack)
        return pb.SessionRequest(ack=pb.SessionAck(partitions=acks))

    def leave(self, kind: str, within_ms: int = 0, reason: str = "") -> pb.SessionRequest:
        """Leave: NOW, DRAIN or RETURN."""
        leave = pb.SessionLeave(
            kind=pb.SessionLeave.Kind.Value(kind), within_ms=within_ms, reason=reason
        )
        return pb.SessionRequest(leave=leave)

    # --- What it is told ---

    def hear(self, message: pb.SessionResponse) -> list[pb.SessionRequest]:
        """Take in a message; returns the acks that it gives by itself."""
        if message.HasField("attached"):
            attached = message.attached
            if attached.session_id != self.session_id:
                self.number = 0
            self.session_id, self.member_id = attached.session_id, attached.member_id
            self.epoch = max(self.epoch, attached.coordinator_epoch)
            if attached.HasField("orders"):
                self._take(attached.orders)
        elif message.HasField("orders"):
            self._take(message.orders)
        else:
            return []
        return list(self._answers())

    def with_order(self, order: int) -> list[int]:
        """Partitions with an order."""
        return sorted(p for p, ordered in self.orders.items() if ordered.order == order)

    def _take(self, orders: pb.Orders) -> None:
        self.version = orders.version
        by_partition = orders_of(orders)
        if not orders.HasField("based_on"):
            self.orders.clear()
            self.held = {p: token for p, token in self.held.items() if p in by_partition}
        for partition, ordered in by_partition.items():
            if ordered.order == LOST and not ordered.token:
                self.orders.pop(partition, None)
                self.held.pop(partition, None)
                continue
            self.orders[partition] = ordered
            if ordered.order == ACTIVE:
                self.held[partition] = ordered.token

    def _answers(self) -> Iterator[pb.SessionRequest]:
        for partition, ordered in list(self.orders.items()):
            if ordered.order in (DRAIN, LOST):
                if self.releases and ordered.token not in self._released:
                    yield self.ack("RELEASED", partition)
            elif ordered.order == WARM and self.readies:
                yield self.ack("READY", partition)
            elif ordered.order == WARM and self.refuses:
                yield self.ack("REFUSED", partition, reason="conformance")
