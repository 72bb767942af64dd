"""Stories as text: commands to a coordinator on virtual time, and what it said.

    # A purpose, in a sentence.
    join A
    ----
    A waits

    advance 50
    ----
    50 A joined generation 1 as leader of A

Names stand for clients; a client remembers its member id, generation and instance. After
each command everything is printed that was answered, and every change of the group.

    join NAME [key=value ...]        srt, rt, protocols=a,b, instance, metadata, two_phase
    sync NAME [OTHER=bytes ...]      with assignments, from the leader
    beat NAME | leave NAME | cancel NAME
    commit NAME TOPIC/PARTITION=OFFSET ... | fetch
    advance MS | restart | hold | release | fail KIND | set key=value ...

Members of session groups speak as `sessions.py` says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from coordinator.core.values.events import Event, MemberEvicted, RebalanceStarted
from coordinator.testing.virtual import VirtualCall, VirtualCoordinator
from coordinator.v1 import group_pb2 as pb
from coordinator.v1.errors_pb2 import ErrorCode
from tests.protocol.transcripts.sessions import SessionMembers

GROUP = "g"
SEPARATOR = "----"


class Transcript:
    """Runs the commands of one story against one coordinator."""

    def __init__(self, **settings: Any) -> None:  # Any: the settings' own types.
        self._settings = settings
        self._coordinator: VirtualCoordinator | None = None
        self._ids: dict[str, str] = {}
        self._generations: dict[str, int] = {}
        self._instances: dict[str, str] = {}
        self._open: list[tuple[str, VirtualCall]] = []
        self._sessions = SessionMembers(GROUP)
        self._seen_events = 0
        self._state = ""

    def run(self, text: str) -> str:
        """The story again, with what the coordinator says now in place of the old answers."""
        return "\n\n".join(self._block(block) for block in _blocks(text)) + "\n"

    @property
    def coordinator(self) -> VirtualCoordinator:
        """The coordinator, made at the first command that needs it."""
        if self._coordinator is None:
            self._coordinator = VirtualCoordinator(**self._settings)
        return self._coordinator

    def _block(self, block: str) -> str:
        asked = block.split(f"\n{SEPARATOR}", 1)[0]
        lines = [line for line in asked.splitlines() if line and not line.startswith("#")]
        if not lines:
            return asked
        said: list[str] = []
        for line in lines:
            word, *arguments = line.split()
            said += _COMMANDS[word](self, arguments)
            said += self._news()
        return "\n".join([asked, SEPARATOR, *said])

    # --- Commands ---

    def _set(self, arguments: list[str]) -> list[str]:
        self._settings |= {key: int(value) for key, value in _pairs(arguments)}
        return []

    def _join(self, arguments: list[str]) -> list[str]:
        name, options = arguments[0], dict(_pairs(arguments[1:]))
        if "instance" in options:
            self._instances[name] = options["instance"]
        request = pb.JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=int(options.get("srt", 6_000)),
            rebalance_timeout_ms=int(options.get("rt", 6_000)),
            member_id=self._ids.get(name, ""),
            group_instance_id=self._instances.get(name),
            protocol_type="consumer",
            protocols=[
                pb.JoinGroupRequest.Protocol(
                    name=protocol, metadata=options.get("metadata", "").encode()
                )
                for protocol in options.get("protocols", "range").split(",")
            ],
            client_id=name,
            require_known_member_id=options.get("two_phase") == "yes",
        )
        return self._send(name, request)

    def _sync(self, arguments: list[str]) -> list[str]:
        name = arguments[0]
        request = pb.SyncGroupRequest(
            group_id=GROUP,
            generation_id=self._generations.get(name, -1),
            member_id=self._ids.get(name, ""),
            group_instance_id=self._instances.get(name),
            assignments=[
                pb.SyncGroupRequest.Assignment(
                    member_id=self._ids.get(other, other), assignment=share.encode()
                )
                for other, share in _pairs(arguments[1:])
            ],
        )
        return self._send(name, request)

    def _beat(self, arguments: list[str]) -> list[str]:
        (name,) = arguments
        request = pb.HeartbeatRequest(
            group_id=GROUP,
            generation_id=self._generations.get(name, -1),
            member_id=self._ids.get(name, ""),
            group_instance_id=self._instances.get(name),
        )
        return self._send(name, request)

    def _leave(self, arguments: list[str]) -> list[str]:
        name, *kind = arguments
        if kind:
            self._sessions.leave(name, *kind)
            return []
        member = pb.LeaveGroupRequest.MemberIdentity(member_id=self._ids.pop(name, ""))
        return self._send(name, pb.LeaveGroupRequest(group_id=GROUP, members=[member]))

    def _commit(self, arguments: list[str]) -> list[str]:
        name = arguments[0]
        topics = []
        for topic_partition, offset in _pairs(arguments[1:]):
            topic, partition = topic_partition.split("/")
            commit = pb.OffsetCommitRequest.Partition(
                partition_index=int(partition), committed_offset=int(offset)
            )
            topics.append(pb.OffsetCommitRequest.Topic(name=topic, partitions=[commit]))
        request = pb.OffsetCommitRequest(
            group_id=GROUP,
            generation_id=self._generations.get(name, -1),
            member_id=self._ids.get(name, ""),
            topics=topics,
        )
        return self._send(name, request)

    def _fetch(self, arguments: list[str]) -> list[str]:
        return self._send("somebody", pb.OffsetFetchRequest(group_id=GROUP))

    def _cancel(self, arguments: list[str]) -> list[str]:
        for name, call in self._open:
            if name == arguments[0]:
                call.cancel()
        self._open = [(name, call) for name, call in self._open if name != arguments[0]]
        return []

    def _advance(self, arguments: list[str]) -> list[str]:
        self.coordinator.advance(int(arguments[0]))
        return []

    def _restart(self, arguments: list[str]) -> list[str]:
        self._open.clear()
        self.coordinator.restart()
        return []

    def _hold(self, arguments: list[str]) -> list[str]:
        self.coordinator.hold_appends()
        return []

    def _release(self, arguments: list[str]) -> list[str]:
        self.coordinator.release_appends()
        return []

    def _fail(self, arguments: list[str]) -> list[str]:
        self.coordinator.fail_next_append(arguments[0])
        return []

    def _attach(self, arguments: list[str]) -> list[str]:
        self._sessions.attach(self.coordinator, arguments[0], dict(_pairs(arguments[1:])))
        return []

    def _heartbeat(self, arguments: list[str]) -> list[str]:
        self._sessions.heartbeat(*arguments)
        return []

    def _ack(self, arguments: list[str]) -> list[str]:
        name, kind, *partitions = arguments
        self._sessions.ack(name, kind, [int(partition) for partition in partitions])
        return []

    def _cut(self, arguments: list[str]) -> list[str]:
        self._sessions.cut(*arguments)
        return []

    def _stop_reading(self, arguments: list[str]) -> list[str]:
        self._sessions.stop_reading(*arguments)
        return []

    def _restarts(self, arguments: list[str]) -> list[str]:
        self._sessions.restarts(*arguments)
        return []

    # --- What is said ---

    def _send(self, name: str, request: Any) -> list[str]:  # Any: one of the requests above.
        call = self.coordinator.send(request)
        self._open.append((name, call))
        return [] if call.done else [f"{self._now()} {name} waits"]

    def _news(self) -> list[str]:
        said = []
        events = self.coordinator.events
        for at_ms, event in events[self._seen_events :]:
            line = self._event(event)
            if line:
                said.append(f"{at_ms} {line}")
        self._seen_events = len(events)
        still_open = []
        for name, call in self._open:
            if call.done:
                said.append(f"{self._now()} {name} {self._answer(name, call.response)}")
            else:
                still_open.append((name, call))
        self._open = still_open
        said += [f"{self._now()} {line}" for line in self._sessions.news()]
        state = self.coordinator.state(GROUP)
        now = "no group" if state is None else state.value
        if state is not None and not self._sessions.are_there:
            now += f" in generation {self._generation()}"
        if now != self._state:
            said.append(f"{self._now()} the group: {now}")
            self._state = now
        return said

    def _event(self, event: Event) -> str:
        match event:
            case RebalanceStarted():
                return f"a rebalance starts: {event.cause.value}, {event.client_id or 'nobody'}"
            case MemberEvicted():
                return f"{event.client_id} is removed: {event.cause.value}"
            case _:
                return ""

    def _answer(self, name: str, response: Any) -> str:  # Any: the response of a request above.
        error = getattr(response, "error_code", ErrorCode.NONE)
        if isinstance(response, pb.JoinGroupResponse):
            if error in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
                self._ids[name] = response.member_id
        if error != ErrorCode.NONE:
            return f"is told {ErrorCode.Name(error)}"
        match response:
            case pb.JoinGroupResponse():
                self._generations[name] = response.generation_id
                role = "as leader of " + " ".join(
                    sorted(self._name(m.member_id) for m in response.members)
                )
                led = role if response.members else f"led by {self._name(response.leader)}"
                return f"joined generation {response.generation_id} {led}"
            case pb.SyncGroupResponse():
                return f"is assigned {response.assignment.decode() or 'nothing'}"
            case pb.LeaveGroupResponse():
                return f"leaves: {ErrorCode.Name(response.members[0].error_code)}"
            case pb.OffsetCommitResponse():
                codes = [
                    ErrorCode.Name(p.error_code) for t in response.topics for p in t.partitions
                ]
                return f"commits: {' '.join(codes)}"
            case pb.OffsetFetchResponse():
                stored = [
                    f"{t.name}/{p.partition_index}={p.committed_offset}"
                    for t in response.topics
                    for p in t.partitions
                ]
                return f"reads {' '.join(stored) or 'nothing'}"
            case _:
                return "is alive"

    def _name(self, member_id: str) -> str:
        """The client of a member id: ids begin with it, or with the instance id."""
        prefix = member_id.split("-0000", 1)[0]
        return next((n for n, i in self._instances.items() if i == prefix), prefix)

    def _generation(self) -> int:
        return self.coordinator.generation(GROUP)

    def _now(self) -> int:
        return self.coordinator.now_ms


def _blocks(text: str) -> Iterable[str]:
    return (block.strip("\n") for block in text.split("\n\n") if block.strip())


def _pairs(arguments: list[str]) -> list[tuple[str, str]]:
    return [(key, value) for key, _, value in (a.partition("=") for a in arguments)]


_COMMANDS: dict[str, Callable[[Transcript, list[str]], list[str]]] = {
    "set": Transcript._set,
    "join": Transcript._join,
    "sync": Transcript._sync,
    "beat": Transcript._beat,
    "leave": Transcript._leave,
    "commit": Transcript._commit,
    "fetch": Transcript._fetch,
    "cancel": Transcript._cancel,
    "advance": Transcript._advance,
    "restart": Transcript._restart,
    "hold": Transcript._hold,
    "release": Transcript._release,
    "fail": Transcript._fail,
    "attach": Transcript._attach,
    "heartbeat": Transcript._heartbeat,
    "ack": Transcript._ack,
    "cut": Transcript._cut,
    "restarts": Transcript._restarts,
    "stop-reading": Transcript._stop_reading,
}
