"""The stream of a session member, told the time, the messages that it hears, and its events.

Tests compare events partition by partition: `Granted(P, 9)` is here what the owner is told of P.
"""

from __future__ import annotations

from typing import NamedTuple

from coordinator.assignors import TopicPartition
from coordinator.client.member.ledger import Holding, Ledger
from coordinator.client.member.session.stream import SessionStream
from coordinator.v1 import session_pb2 as pb
from tests.kit.session_member import ACTIVE

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)


class Granted(NamedTuple):
    partition: TopicPartition
    token: int


class Warming(NamedTuple):
    partition: TopicPartition
    handoff_id: int


class Revoking(NamedTuple):
    partition: TopicPartition
    token: int
    deadline_ms: int | None


class Lost(NamedTuple):
    partition: TopicPartition
    token: int
    reason: str
    was_warming: bool


class Suspended(NamedTuple):
    partition: TopicPartition
    token: int


class Resumed(NamedTuple):
    partition: TopicPartition
    token: int


def one_by_one(event) -> list:
    """Events of single partitions, as tests compare them."""
    found = []
    for held in event.holdings:
        match type(event).__name__:
            case "Warming":
                found.append(Warming(held.partition, held.handoff_id))
            case "Revoking":
                found.append(Revoking(held.partition, held.token, event.deadline_ms))
            case "Lost":
                told = (held.token, event.reason, event.was_warming)
                found.append(Lost(held.partition, *told))
            case name:
                kind = {"Granted": Granted, "Suspended": Suspended, "Resumed": Resumed}[name]
                found.append(kind(held.partition, held.token))
    return found


def orders_message(
    version, *orders, based_on=None, answers=None, epoch=8, is_part=False, remaining_ms=30_000
):
    """`orders`: (partition, order, token, hand-off id)."""
    message = pb.Orders(coordinator_epoch=epoch, version=version, is_part=is_part)
    if based_on is not None:
        message.based_on = based_on
    if answers is not None:
        message.answers = answers
    for partition, order, token, *handoff in orders:
        if not message.topics:
            message.topics.add(name="t")
        message.topics[0].ranges.add(
            partitions=pb.PartitionRange(first=partition, last=partition, first_token=token),
            order=order,
            handoff_id=handoff[0] if handoff else 0,
            remaining_ms=remaining_ms,
        )
    return message


class Played:
    """A machine with L = 10,000 that has attached at 1,000 and holds P and Q."""

    def __init__(self, *, attach_ms=1_000, lease_ms=10_000):
        attach = pb.Attach(group_id="g", incarnation=pb.Attach.Incarnation(id=b"1"))
        self.ledger = Ledger()
        self.machine = SessionStream(attach, lambda: 0.0, self.ledger, lambda *line: None)
        self._told = []
        self._holdings = {}
        self.attach(attach_ms, lease_ms=lease_ms)

    def attach(self, now_ms, *orders, session_id="s", epoch=8, version=1, answered_ms=None, **more):
        """A stream is opened, and its Attach answered."""
        self.machine.opened(now_ms)
        [first] = self.take()
        lease_ms = more.pop("lease_ms", 10_000)
        attached = pb.Attached(
            session_id=session_id,
            member_id="m",
            coordinator_epoch=epoch,
            lease_ms=lease_ms,
            heartbeat_interval_ms=lease_ms // 4,
            orders=orders_message(
                version, *(orders or ((0, ACTIVE, 1), (1, ACTIVE, 2))), epoch=epoch
            ),
            **more,
        )
        answered_ms = now_ms if answered_ms is None else answered_ms
        self.receive(pb.SessionResponse(attached=attached), answered_ms)
        return first.attach

    def receive(self, message, now_ms):
        if isinstance(message, pb.Orders):
            message = pb.SessionResponse(orders=message)
        self.machine.pass_time(now_ms)
        self._note()
        self.machine.handle(message, now_ms)
        self._note()
        self.check(now_ms)
        return self

    def _note(self):
        """Take in what the owner is told."""
        for event in self.machine.partitions.drain_events():
            for held in event.holdings:
                self._holdings[held.partition, held.token or held.handoff_id] = held
            self._told += one_by_one(event)
        partitions = self.machine.partitions
        for partition, held in partitions.held.items():
            assert (held.state.value == "lost") is not self.ledger.lasts(held.holding), partition

    def holding(self, partition, number):
        """The holding under a token, or the warming one of a hand-off."""
        return self._holdings.get((partition, number)) or Holding(partition, token=number)

    def release(self, partition, token, position=-1, refused=""):
        self._note()
        self.machine.partitions.released(self.holding(partition, token), position, refused)

    def ready(self, partition, handoff_id):
        self._note()
        self.machine.partitions.ready(self.holding(partition, handoff_id))

    def refuse(self, partition, handoff_id, reason):
        self._note()
        self.machine.partitions.refuse(self.holding(partition, handoff_id), reason)

    def is_valid(self, partition, token, now_ms):
        return now_ms < self.machine.partitions.ends_ms(self.holding(partition, token))

    def check(self, now_ms):
        """The machine asks for time before anything that is valid ends."""
        ends = [
            self.machine.partitions.ends_ms(held.holding)
            for held in self.machine.partitions.held.values()
        ]
        first_ms = min((at for at in ends if at > now_ms), default=None)
        assert first_ms is None or self.machine.next_deadline() <= first_ms

    def ack(self, number, now_ms, *expiring, epoch=8):
        topics = [
            pb.HeldTopic(name="t", partitions=[pb.PartitionRange(first=p, last=p)])
            for p in expiring
        ]
        ack = pb.SessionHeartbeatAck(number=number, coordinator_epoch=epoch, expiring=topics)
        self.receive(pb.SessionResponse(heartbeat_ack=ack), now_ms)

    def take(self):
        """Messages that are to be sent."""
        return list(iter(self.machine.next_message, None))

    def acks(self):
        """Acknowledgements that are to be sent: (kind, partition, token, hand-off id)."""
        return [
            (
                pb.SessionAck.Kind.Name(partition.kind),
                partition.partition,
                partition.token,
                partition.handoff_id,
            )
            for message in self.take()
            for partition in message.ack.partitions
        ]

    def at(self, now_ms):
        self.machine.pass_time(now_ms)
        self.check(now_ms)
        return self.take()

    def changes(self):
        self._note()
        found, self._told = self._told, []
        return found

    def valid(self, partition, now_ms):
        partitions = self.machine.partitions
        return now_ms < partitions.ends_ms(partitions.held[partition].holding)

    def takes(self, partition, now_ms):
        partitions = self.machine.partitions
        return partitions.takes_work(partitions.held[partition].holding, now_ms)
