"""Members of session groups in stories: what they say, and what they are told.

    attach NAME [partitions=3] [lease=10000] [mode=SIMPLE|WARM|COPY]
    heartbeat NAME | cut NAME | restarts NAME | stop-reading NAME
    ack NAME RELEASED|READY|REFUSED PARTITION ...
    leave NAME NOW|DRAIN|RETURN

An attach of a name that has a session resumes it, on a stream with the next number; after
`restarts` it is another process under that name.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from coordinator.testing.virtual import VirtualCoordinator
from coordinator.testing.virtual_session import VirtualSession
from coordinator.v1 import session_pb2 as pb
from coordinator.v1.errors_pb2 import ErrorCode

TOPIC = "t"


@dataclass
class _Member:
    """A member, and what it knows. streams: the newest is the last; heard: of each stream, the
    number of messages that the story has told."""

    streams: list[VirtualSession] = field(default_factory=list)
    heard: list[int] = field(default_factory=list)
    process: int = 1
    stream_number: int = 0
    heartbeat: int = 0
    session_id: str = ""
    held: dict[int, int] = field(default_factory=dict)
    handoffs: dict[int, int] = field(default_factory=dict)

    @property
    def stream(self) -> VirtualSession:
        return self.streams[-1]


class SessionMembers:
    """The session members of one story.

    Args:
        group: name of their group.
    """

    def __init__(self, group: str) -> None:
        self._group = group
        self._members: dict[str, _Member] = {}

    @property
    def are_there(self) -> bool:
        """Whether the story has session members."""
        return bool(self._members)

    # --- Commands ---

    def attach(self, c: VirtualCoordinator, name: str, options: dict[str, str]) -> None:
        """Attach on a new stream, with what the member holds."""
        member = self._members.setdefault(name, _Member())
        member.streams.append(c.open_session())
        member.heard.append(0)
        member.stream_number += 1
        wishes = pb.GroupPolicy(
            lease_ms=int(options.get("lease", 10_000)),
            mode=pb.GroupPolicy.Mode.Value(options.get("mode", "SIMPLE")),
            join_quiet_ms=0,
            initial_delay_ms=0,
        )
        held = [
            pb.PartitionRange(first=p, last=p, first_token=token)
            for p, token in sorted(member.held.items())
        ]
        attach = pb.Attach(
            group_id=self._group,
            member_name=name,
            incarnation=pb.Attach.Incarnation(
                id=f"{name}-{member.process}".encode(), started_at_ms=member.process
            ),
            session_id=member.session_id,
            stream_number=member.stream_number,
            topics=[pb.Attach.Topic(name=TOPIC, partitions=int(options.get("partitions", 3)))],
            held=[pb.HeldTopic(name=TOPIC, partitions=held)] if held else [],
            wishes=wishes,
        )
        member.stream.send(pb.SessionRequest(attach=attach))

    def heartbeat(self, name: str) -> None:
        """Say that the member is alive."""
        member = self._members[name]
        member.heartbeat += 1
        beat = pb.SessionHeartbeat(number=member.heartbeat)
        member.stream.send(pb.SessionRequest(heartbeat=beat))

    def ack(self, name: str, kind: str, partitions: list[int]) -> None:
        """Say what has become of orders."""
        member = self._members[name]
        told = [
            pb.SessionAck.Partition(
                topic=TOPIC,
                partition=p,
                kind=pb.SessionAck.Kind.Value(kind),
                token=member.held.get(p, 0),
                handoff_id=member.handoffs.get(p, 0),
            )
            for p in partitions
        ]
        if kind == "RELEASED":
            for p in partitions:
                member.held.pop(p, None)
        member.stream.send(pb.SessionRequest(ack=pb.SessionAck(partitions=told)))

    def leave(self, name: str, kind: str) -> None:
        """Leave."""
        member = self._members[name]
        leave = pb.SessionLeave(kind=pb.SessionLeave.Kind.Value(kind), within_ms=60_000)
        member.stream.send(pb.SessionRequest(leave=leave))

    def cut(self, name: str) -> None:
        """End the stream, as when the connection is lost."""
        self._members[name].stream.cut()

    def stop_reading(self, name: str) -> None:
        """Take nothing from the stream any more."""
        self._members[name].stream.stop_reading()

    def restarts(self, name: str) -> None:
        """The process has ended, and another one begins under its name."""
        self.cut(name)
        self._members[name] = _Member(process=self._members[name].process + 1)

    # --- What they are told ---

    def news(self) -> list[str]:
        """Lines about messages that members were sent since the last call."""
        said: list[str] = []
        for name, member in self._members.items():
            for number, stream in enumerate(member.streams):
                new = stream.received[member.heard[number] :]
                member.heard[number] += len(new)
                said += [f"{name} {self._told(member, message)}" for message in new]
        return said

    def _told(self, member: _Member, message: pb.SessionResponse) -> str:
        match message.WhichOneof("message"):
            case "attached":
                told = message.attached
                if told.session_id != member.session_id:
                    member.session_id, member.heartbeat = told.session_id, 0
                standing = pb.Attached.Standing.Name(told.standing)
                return f"is attached as {standing}: {self._orders(member, told.orders)}"
            case "orders":
                return f"is told {self._orders(member, message.orders)}"
            case "heartbeat_ack":
                return "is alive"
            case "go_away":
                return f"has to go: {pb.GoAway.Reason.Name(message.go_away.reason)}"
            case _:
                return f"is refused: {ErrorCode.Name(message.refused.error_code)}"

    def _orders(self, member: _Member, orders: pb.Orders) -> str:
        """Orders as `ACTIVE 0 under 1`; those under no token have none."""
        said = []
        for topic in orders.topics:
            for each in topic.ranges:
                partitions, order = each.partitions, pb.Orders.Order.Name(each.order)
                for p in range(partitions.first, partitions.last + 1):
                    token = partitions.first_token and partitions.first_token + p - partitions.first
                    member.handoffs[p] = each.handoff_id
                    if each.order == pb.Orders.ACTIVE:
                        member.held[p] = token
                    said.append(f"{order} {p}" + (f" under {token}" if token else ""))
        return ", ".join(said) or f"nothing ({orders.why or 'as before'})"
