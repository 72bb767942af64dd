"""The protocol of session groups, for one member: one stream, and the calls beside it.

| file | decides |
|---|---|
| `stream.py` | what is sent on the stream, and what the messages of the coordinator mean |
| `partitions.py` | what becomes of each partition by orders, acknowledgements and the time |
| `leases.py` | until when the member may act without hearing from the coordinator |
| `orders.py` | how messages spell partitions |

A release is sent to the coordinator when no commit of the holding is under way any more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict
from typing import Any, cast

from coordinator.assignors import TopicPartition
from coordinator.assignors.partitions import spelled
from coordinator.client.codes import code_name
from coordinator.client.errors import FatalError
from coordinator.client.member import calls
from coordinator.client.member.calls import Level, Next
from coordinator.client.member.events import (
    Granted,
    HoldingEvent,
    Lost,
    MemberEvent,
    Revoking,
    Stopping,
    Suspended,
)
from coordinator.client.member.ledger import MEMBERSHIP, UNKNOWN_OFFSET, Holding
from coordinator.client.member.part import (
    CommitRules,
    Leaving,
    PartContext,
    ProtocolPart,
    Status,
)
from coordinator.client.member.retry import MOST_S
from coordinator.client.member.session.stream import SessionStream
from coordinator.client.settings.configs import GroupWishes, SessionConfig
from coordinator.v1 import session_pb2 as pb

WINDOW = "window"
"""Reason for which a member holds nothing until the next plan."""
NO_SESSIONS = (
    "the coordinator has no session groups ({}): it runs an older version. "
    'Either update all nodes, or write protocol="classic"'
)
CALL_TIMEOUT_MS = 10_000
FINDS_A_LEASE = 10
"""Addresses that may fail to answer, one after the other, before the lease ends."""
FIND_MS = 500
"""Shortest time to wait for the answer to a FindCoordinator."""


class SessionPart(ProtocolPart):
    """The protocol of session groups, for one member.

    Args:
        random: from 0 to 1, below 1.
    """

    def __init__(
        self, config: SessionConfig, machine: PartContext, random: Callable[[], float]
    ) -> None:
        self._config, self._machine = config, machine
        self.stream = SessionStream(attach_of(config), random, machine.ledger, machine.log)
        self.partitions = self.holdings = self.stream.partitions
        self.commits = SessionCommits(config.group_id, self.stream)
        self.progress = self.stream
        self._awaits_connection = False
        self._open: calls.OpenStream | None = None
        self._releases: dict[Holding, tuple[int, str]] = {}
        """Holdings that are released once their commits are answered: position, why refused."""
        self._to_give_back: list[Holding] = []
        """Holdings that were reported to the owner as revoked or lost."""
        self._stop_is_sent = self._is_returning = self._gives_up_place = False

    def status(self) -> Status:
        """See `Status`. Who is assigned nothing by the group's plan knows it."""
        config, stream = self._config, self.stream
        is_member = bool(stream.session_id) and not stream.is_waiting
        has_nothing = is_member and stream.why != WINDOW and not self.partitions.held
        return Status(
            ids=(config.member_name, stream.member_id, config.client_id),
            failure=stream.why,
            member_id=stream.member_id,
            generation=-1,
            is_leader=False,
            is_assigned=self._machine.ledger.has_any or has_nothing,
            is_between_assignments=not stream.member_id,
            is_waiting=stream.is_waiting,
        )

    def state(self) -> str:
        stream = self.stream
        if stream.is_stopped:
            return "stopped"
        if self._open is None:
            return "connecting"
        if not stream.session_id or stream.is_waiting:
            return "joining"
        return "revoking" if self.partitions.draining else "stable"

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return self._machine.ledger.held

    # --- Time and messages ---

    def start(self, now_ms: int) -> None:
        """See `ProtocolPart`: the first step attaches."""

    def pass_time(self, now_ms: int) -> None:
        stream = self.stream
        stream.pass_time(now_ms)
        if self._open is not None and stream.is_silent(now_ms):
            silence = calls.CallUnanswered("the coordinator does not answer on the stream")
            self._stream_ended(self._open, silence, now_ms)
        self._pass_events_on()

    def take_step(self, now_ms: int) -> None:
        """See `ProtocolPart`: open a stream, and send what is to be sent on it."""
        stream, machine = self.stream, self._machine
        for holding, (position, refused) in list(self._releases.items()):
            if not machine.commits_are_out(holding):
                del self._releases[holding]
                self.partitions.released(holding, position, refused)
        if self._open is not None:
            while (message := stream.next_message()) is not None:
                machine.act(calls.Send(self._open, message))
        if stream.is_stopped and machine.leaving is not None:
            self._close_stream()
            machine.end()
        elif stream.wants_stream(now_ms) and not self._awaits_connection:
            self._awaits_connection = True
            machine.enqueue(self)

    def received(self, received: calls.Received | calls.StreamClosed, now_ms: int) -> None:
        if received.stream is not self._open:
            return
        if isinstance(received, calls.StreamClosed):
            self._stream_ended(received.stream, received.result, now_ms)
            return
        message = cast("pb.SessionResponse", received.message)
        self._machine.note_result(calls.Acknowledged(), now_ms)
        self.stream.pass_time(now_ms)
        self._pass_events_on()
        self.stream.handle(message, now_ms)
        self._pass_events_on()
        if self.stream.has_stream:
            return
        # It was the last message of this stream.
        self._close_stream()
        if not _stays(message):
            self._machine.discovery.prefer(self.stream.moved_to)
            self._machine.hang_up(received.stream.connection)

    def next_deadline(self) -> int | None:
        return self.stream.next_deadline(is_opening=self._awaits_connection)

    def timeout_ms(self, request: calls.Request) -> int:
        lease_ms = self.stream.lease.length_ms
        if isinstance(request, calls.FindCoordinator) and lease_ms:
            return min(CALL_TIMEOUT_MS, max(FIND_MS, lease_ms // FINDS_A_LEASE))
        return CALL_TIMEOUT_MS

    # --- The owner ---

    def hand_out(self, now_ms: int) -> list[MemberEvent]:
        events = self._machine.take_events()
        ending = (event.holdings for event in events if isinstance(event, Revoking | Lost))
        self._to_give_back += (holding for holdings in ending for holding in holdings)
        return events

    def poll_begins(self, now_ms: int, *, gives_back: bool) -> None:
        self.stream.alive(now_ms)
        holdings, self._to_give_back = self._to_give_back, []
        if gives_back:
            self.give_back(holdings, UNKNOWN_OFFSET, "", now_ms)

    def give_back(
        self, holdings: Collection[Holding], position: int, refused: str, now_ms: int
    ) -> None:
        """See `ProtocolPart`. One that is only warming can be refused. While the member stops in
        order to return, nothing is given back."""
        for holding in () if self._is_returning else holdings:
            if holding.handoff_id and not holding.token:
                if refused:
                    self.partitions.refuse(holding, refused)
            elif self.partitions.holds(holding):
                why = f"it was refused: {refused}" if refused else "it was released"
                self._machine.ledger.give_up(holding, why)
                self._releases[holding] = position, refused

    def set_ready(self, is_ready: bool, now_ms: int) -> None:  # It is the value.
        self.stream.set_ready(is_ready, now_ms)

    def subscribe(self, topics: Mapping[str, int], now_ms: int) -> None:
        """See `ProtocolPart`, with a new Attach."""
        self.stream.subscribe(sorted(topics.items()), now_ms)

    def drain(self, within_ms: int, reason: str, now_ms: int, *, leave: bool | None) -> bool:
        """See `ProtocolPart`. A member without a stream is asked by nobody; nor is one that will
        return, unless it is to `leave`."""
        self._gives_up_place = bool(leave)
        self._is_returning = self._config.return_within_ms is not None and not leave
        if self._is_returning:
            return False
        self.stream.leave(pb.SessionLeave.DRAIN, now_ms, within_ms, reason)
        self._pass_events_on()
        return self.stream.has_stream

    # --- Closing ---

    def stop(self, reason: str) -> None:
        self._close_stream()
        self.stream.stop(reason)
        self._pass_events_on()

    def leave(self, leaving: Leaving, now_ms: int) -> None:
        """See `ProtocolPart`, at once or for a while; the coordinator answers on the stream."""
        within_ms = leaving.return_within_ms
        if within_ms is None and not (leaving.leave or self._gives_up_place):
            within_ms = self._config.return_within_ms
        if within_ms is None:
            self.stream.leave(pb.SessionLeave.NOW, now_ms, 0, leaving.reason)
        else:
            self.stream.leave(pb.SessionLeave.RETURN, now_ms, within_ms, leaving.reason)
        self._pass_events_on()

    def leave_by(self, now_ms: int) -> None:
        failure = self._machine.unreachable_because or "no answer"
        self._machine.log(Level.WARNING, f"could not leave: {failure}")
        self._close_stream()
        self.stream.stop("it has left")
        self._pass_events_on()
        self._machine.end()

    # --- Streams ---

    def attempt(self, now_ms: int) -> calls.Request | None:
        """See `Requester`: there is a connection to the coordinator, so attach over it."""
        self._awaits_connection = False
        if self.stream.wants_stream(now_ms):
            self._close_stream()  # One that the owner has left for other topics.
            self._open = calls.OpenStream(self._machine.discovery.connection)
            self._machine.act(self._open)
            self.stream.opened(now_ms)
        return None

    def handle(self, request: calls.Request | None, result: calls.Result, now_ms: int) -> Next:
        """See `Requester`: no address has named a coordinator."""
        self._awaits_connection = False
        self._judge_failure(result, now_ms)
        return Next.REDISCOVER

    def _stream_ended(self, stream: calls.OpenStream, result: calls.Failure, now_ms: int) -> None:
        self._close_stream()
        self._machine.note_result(result, now_ms)
        self._judge_failure(result, now_ms)
        if not isinstance(result, calls.Dropped | calls.Overloaded):
            self._machine.hang_up(stream.connection)

    def _judge_failure(self, result: calls.Result, now_ms: int) -> None:
        match result:
            case calls.BrokenCall(error):
                self._machine.fail(error)
            case calls.RefusedCall(detail, code) if self._is_turned_away(code):
                self._machine.fail(FatalError(detail, code))
            case calls.Unimplemented(detail):
                self._machine.fail(FatalError(NO_SESSIONS.format(detail)))
            case calls.Overloaded(_, after_ms):
                self.stream.closed(now_ms, after_ms)
            case _:
                self.stream.closed(now_ms)

    def _is_turned_away(self, code: str) -> bool:
        # A token may be about to be renewed: a member stays one for its lease.
        return code != "UNAUTHENTICATED" or not self.stream.session_id

    def _close_stream(self) -> None:
        stream, self._open = self._open, None
        if stream is not None:
            self._machine.act(calls.CloseStream(stream))

    # --- The owner's events, and the log ---

    def _pass_events_on(self) -> None:
        """Pass on what has become of partitions, and a stop."""
        machine, stream = self._machine, self.stream
        events = self.partitions.drain_events()
        machine.events.extend(events)
        self._log_events(events)
        if stream.is_stopped and not self._stop_is_sent:
            self._stop_is_sent = True
            if stream.failure is not None:
                machine.note_failure(FatalError(stream.failure, stream.failure_code))
            machine.events.append(Stopping(stream.stopped_because))

    def _log_events(self, events: Collection[HoldingEvent]) -> None:
        """A line for each event but those of preparing. A loss is a warning unless the member has
        asked to leave."""
        for event in events:
            level, message = Level.INFO, spelled(event.partitions)
            match event:
                case Granted():
                    text = f"granted {message}"
                case Revoking():
                    text = f"draining {message}, to be given back"
                case Suspended():
                    level = Level.WARNING
                    text = f"lease in doubt: {message}: suspended until it is confirmed"
                case Lost(_, reason):
                    level = Level.WARNING if self._machine.leaving is None else Level.INFO
                    text = f"lost {message}: {reason}"
                case _:
                    continue
            self._machine.log(level, text)


class SessionCommits(CommitRules):
    """Commits of a session member, which count under the tokens of its holdings."""

    def __init__(self, group_id: str, stream: SessionStream) -> None:
        self._group_id, self._stream = group_id, stream

    @property
    def pause_most_s(self) -> float:
        """See `CommitRules`. Its owner stands still until the answer, however briefly the
        coordinator was away; one that is tried as often as heartbeats are sent adds little."""
        return min(MOST_S, self._stream.interval_ms / 1_000)

    def identity(self) -> calls.Identity:
        return calls.Identity(self._group_id, -1, self._stream.member_id, None)

    def suspended(self, claimed: frozenset[Holding], now_ms: int) -> list[TopicPartition]:
        ends_ms = self._stream.partitions.ends_ms
        return [
            held.partition for held in claimed
            if held.partition != MEMBERSHIP and now_ms >= ends_ms(held)
        ]  # fmt: skip


def _stays(message: pb.SessionResponse) -> bool:
    """True if the same node is asked again after this message, the last of a stream."""
    if message.WhichOneof("message") == "go_away":
        return message.go_away.reason == pb.GoAway.SUPERSEDED
    code = message.refused.error_code
    return code_name(code) not in calls.ELSEWHERE


def attach_of(config: SessionConfig) -> pb.Attach:
    """The Attach of a member, without what belongs to a session."""
    incarnation = pb.Attach.Incarnation(id=config.incarnation, started_at_ms=config.started_at_ms)
    return pb.Attach(
        group_id=config.group_id,
        member_name=config.member_name or "",
        incarnation=incarnation,
        client_id=config.client_id,
        rack=config.rack or "",
        topics=[pb.Attach.Topic(name=n, partitions=p) for n, p in sorted(config.topics.items())],
        capacity=config.capacity,
        max_partitions=config.max_partitions,
        drain_ms=config.drain_ms,
        revision=config.revision or "",
        deployment=config.deployment or "",
        keep_classic=config.keep_classic,
        wishes=None if config.wishes == GroupWishes() else _policy(config.wishes),
    )


def _policy(wishes: GroupWishes) -> pb.GroupPolicy:
    fields: dict[str, Any] = {}  # Any: numbers and names of enum values.
    for name, wish in asdict(wishes).items():
        fields[name] = wish.upper() if isinstance(wish, str) else wish
    return pb.GroupPolicy(**fields)  # A field that is None is not set.
