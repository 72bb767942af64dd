"""Members of session groups in stories: what they say, and what they are told.

    attach NAME [partitions=3] [lease=10000] [mode=SIMPLE|WARM|COPY]
    heartbeat NAME | cut NAME | restarts NAME | stop-reading NAME
    ack NAME RELEASED|READY|REFUSED PARTITION ...
    leave NAME NOW|DRAIN|RETURN

An attach of a name that has a session resumes it, on a stream with the next number; after
`restarts` it is another process under that name.
"""

from __future__ import annotations

from coordinator.testing.virtual import VirtualCoordinator
from coordinator.testing.virtual_session import VirtualSession
from coordinator.v1 import session_pb2 as pb
from coordinator.v1.errors_pb2 import ErrorCode
from tests.kit.session_member import ScriptedMember, orders_of

TOPIC = "t"


class _Member(ScriptedMember):
    """A member and its streams: the newest is the last. heard: of each stream, the number of
    messages that the story has told. process: number of its process under its name."""

    def __init__(self, name: str, group_id: str, process: int = 1) -> None:
        incarnation = f"{name}-{process}".encode()
        super().__init__(name, group_id=group_id, topic=TOPIC, incarnation=incarnation)
        self.started_at_ms = self.process = process
        self.streams: list[VirtualSession] = []
        self.heard: list[int] = []

    def say(self, request: pb.SessionRequest) -> None:
        self.streams[-1].send(request)


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
        member = self._members.setdefault(name, _Member(name, self._group))
        member.streams.append(c.open_session())
        member.heard.append(0)
        member.partitions = int(options.get("partitions", 3))
        wishes = pb.GroupPolicy(
            lease_ms=int(options.get("lease", 10_000)),
            mode=pb.GroupPolicy.Mode.Value(options.get("mode", "SIMPLE")),
            join_quiet_ms=0,
            initial_delay_ms=0,
        )
        member.say(member.attach(wishes=wishes))

    def heartbeat(self, name: str) -> None:
        """Say that the member is alive."""
        member = self._members[name]
        member.say(member.beat())

    def ack(self, name: str, kind: str, partitions: list[int]) -> None:
        """Say what has become of orders."""
        member = self._members[name]
        member.say(member.ack(kind, *partitions))

    def leave(self, name: str, kind: str) -> None:
        """Leave."""
        member = self._members[name]
        member.say(member.leave(kind, within_ms=60_000))

    def cut(self, name: str) -> None:
        """End the stream, as when the connection is lost."""
        self._members[name].streams[-1].cut()

    def stop_reading(self, name: str) -> None:
        """Take nothing from the stream any more."""
        self._members[name].streams[-1].stop_reading()

    def restarts(self, name: str) -> None:
        """The process has ended, and another one begins under its name."""
        self.cut(name)
        process = self._members[name].process + 1
        self._members[name] = _Member(name, self._group, process)

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
        member.hear(message)
        match message.WhichOneof("message"):
            case "attached":
                told = message.attached
                standing = pb.Attached.Standing.Name(told.standing)
                return f"is attached as {standing}: {_spelled(told.orders)}"
            case "orders":
                return f"is told {_spelled(message.orders)}"
            case "heartbeat_ack":
                return "is alive"
            case "go_away":
                return f"has to go: {pb.GoAway.Reason.Name(message.go_away.reason)}"
            case _:
                return f"is refused: {ErrorCode.Name(message.refused.error_code)}"


def _spelled(orders: pb.Orders) -> str:
    """Orders as `ACTIVE 0 under 1`; those under no token have none."""
    said = [
        f"{ordered.name} {partition}" + (f" under {ordered.token}" if ordered.token else "")
        for partition, ordered in orders_of(orders).items()
    ]
    return ", ".join(said) or f"nothing ({orders.why or 'as before'})"
