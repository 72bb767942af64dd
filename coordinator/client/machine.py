"""A member's own state machine: what to send next, and what an answer means.

It does no I/O and is told the time, so every turn of the protocol can be played
through in a test.

    JOINING ──► SYNCING ──► STABLE ──► REVOKING ──► JOINING      a rebalance
       ▲           │           │           │
       └───────────┴───────────┴───────────┘                     lost, fenced off, expired
                               └──► IDLE                         no progress: left the group
    any ──► STOPPED                                              closed, or refused for good

An eager assignor gives everything back before it joins again. A cooperative one joins
with what it has, and only then gives back what the new assignment takes away.

Source: KIP-429, KIP-394; Kafka `AbstractCoordinator`, `ConsumerCoordinator`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from coordinator.assignors import (
    ClusterView,
    RebalanceProtocol,
    Subscription,
    TopicPartition,
    by_name,
)
from coordinator.assignors.consumer_protocol import (
    Assignment,
    PreviousAssignment,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_previous_assignment,
    encode_subscription,
)
from coordinator.client.errors import FatalError
from coordinator.client.events import Assigned, Lost, RebalanceEvent, Revoking, Stopping
from coordinator.v1 import group_pb2 as pb
from coordinator.v1.errors_pb2 import ErrorCode

_NOTHING: frozenset[TopicPartition] = frozenset()

_REDISCOVER = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
_FATAL = frozenset(
    {
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)


class Phase(Enum):
    """Where a member stands with its group."""

    JOINING = "joining"
    SYNCING = "syncing"
    STABLE = "stable"
    REVOKING = "revoking"
    IDLE = "idle"
    STOPPED = "stopped"


class Next(Enum):
    """What whoever runs the machine is to do after an answer."""

    GO_ON = "go on"
    PAUSE = "pause, then try again"
    REDISCOVER = "pause, look the coordinator up, then try again"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberConfig:
    """A member's settings; times in milliseconds.

    `topics` maps each topic to its number of partitions, which counts while this member
    leads. `max_poll_interval_ms` is the longest time without a `poll` before the member
    leaves of its own accord; None: never.
    """

    group_id: str
    topics: Mapping[str, int]
    assignors: tuple[str, ...] = ("range",)
    client_id: str = ""
    instance_id: str | None = None
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 60_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int | None = None
    protocol_type: str = "consumer"
    rack: str | None = None


@dataclass(slots=True)
class MemberMachine:
    """One member. `events` collects what its owner is to be told."""

    config: MemberConfig
    phase: Phase = Phase.JOINING
    member_id: str = ""
    generation: int = -1
    is_leader: bool = False
    assignment: frozenset[TopicPartition] = _NOTHING
    events: list[RebalanceEvent] = field(default_factory=list)
    failure: FatalError | None = None
    revoke_until_ms: int = 0
    _last_heard_ms: int = 0
    _protocol_name: str = ""
    _members: Sequence[pb.JoinGroupResponse.Member] = ()
    _skip_assignment: bool = False
    _giving_back: frozenset[TopicPartition] = _NOTHING
    _reason: str = ""
    _previous: frozenset[TopicPartition] = _NOTHING
    _previous_generation: int = -1

    # --- Requests ---

    def join_request(self) -> pb.JoinGroupRequest:
        """A JoinGroup that says what the member holds."""
        config = self.config
        held = Subscription(
            topics=tuple(sorted(config.topics)),
            owned_partitions=tuple(sorted(self.assignment)),
            generation=self.generation,
            rack=config.rack,
        )
        # An eager member holds nothing when it joins: what it had travels as sticky's user data.
        had = encode_previous_assignment(
            PreviousAssignment(tuple(sorted(self._previous)), self._previous_generation)
        )
        metadata = encode_subscription(held)
        sticky = encode_subscription(replace(held, user_data=had))
        return pb.JoinGroupRequest(
            group_id=config.group_id,
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=config.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=config.instance_id,
            protocol_type=config.protocol_type,
            protocols=[
                pb.JoinGroupRequest.Protocol(
                    name=name, metadata=sticky if name == "sticky" else metadata
                )
                for name in config.assignors
            ],
            reason=self._reason,
            client_id=config.client_id,
        )

    def sync_request(self) -> pb.SyncGroupRequest:
        """A SyncGroup; from the leader with everyone's assignment."""
        assignments = []
        if self.is_leader and not self._skip_assignment:
            assignor = by_name(self._protocol_name)
            members = {m.member_id: _subscription(m) for m in self._members}
            shares = assignor.assign(ClusterView(partitions=dict(self.config.topics)), members)
            assignments = [
                pb.SyncGroupRequest.Assignment(
                    member_id=member_id,
                    assignment=encode_assignment(Assignment(partitions=tuple(partitions))),
                )
                for member_id, partitions in shares.items()
            ]
        return pb.SyncGroupRequest(
            group_id=self.config.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.config.instance_id,
            protocol_type=self.config.protocol_type,
            protocol_name=self._protocol_name,
            assignments=assignments,
        )

    def heartbeat_request(self) -> pb.HeartbeatRequest:
        """A Heartbeat of the current generation."""
        return pb.HeartbeatRequest(
            group_id=self.config.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.config.instance_id,
        )

    def leave_request(self, reason: str) -> pb.LeaveGroupRequest | None:
        """A LeaveGroup; None if the group does not know the member."""
        if not self.member_id:
            return None
        return pb.LeaveGroupRequest(
            group_id=self.config.group_id,
            members=[
                pb.LeaveGroupRequest.MemberIdentity(
                    member_id=self.member_id,
                    group_instance_id=self.config.instance_id,
                    reason=reason[:255],
                )
            ],
        )

    # --- Answers ---

    def join_answered(self, response: pb.JoinGroupResponse) -> Next:
        """The answer to a JoinGroup."""
        if self.phase is not Phase.JOINING:
            return Next.GO_ON
        code = response.error_code
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            return Next.GO_ON
        if code != ErrorCode.NONE:
            return self._refused(code, response.error_message)
        self.member_id = response.member_id
        self.generation = response.generation_id
        self.is_leader = response.leader == response.member_id
        self._protocol_name = response.protocol_name
        self._members = tuple(response.members)
        self._skip_assignment = response.skip_assignment
        self._reason = ""
        self.phase = Phase.SYNCING
        return Next.GO_ON

    def sync_answered(self, response: pb.SyncGroupResponse, sent_at_ms: int, now_ms: int) -> Next:
        """The answer to a SyncGroup. `sent_at_ms` is when it was asked."""
        if self.phase is not Phase.SYNCING:
            return Next.GO_ON
        if response.error_code != ErrorCode.NONE:
            return self._refused(response.error_code, response.error_message)
        self._last_heard_ms = sent_at_ms
        given: frozenset[TopicPartition] = _NOTHING
        if response.assignment:
            given = frozenset(decode_assignment(response.assignment).partitions)
        self._previous, self._previous_generation = given, self.generation
        taken = self.assignment - given
        new = given - self.assignment
        kept = self.assignment & given
        self.phase = Phase.STABLE
        if taken:
            # Only a cooperative assignor gets here with something in hand.
            self.assignment = kept | new
            if new:
                self.events.append(Assigned(frozenset(new), self.generation))
            self._revoke(frozenset(taken), now_ms)
            return Next.GO_ON
        self.assignment = given
        self.events.append(
            Assigned(frozenset(new) if self._is_cooperative else given, self.generation)
        )
        return Next.GO_ON

    def beat_answered(self, response: pb.HeartbeatResponse, sent_at_ms: int, now_ms: int) -> Next:
        """The answer to a Heartbeat sent at `sent_at_ms`."""
        if self.phase not in (Phase.STABLE, Phase.REVOKING):
            return Next.GO_ON
        code = response.error_code
        if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self._last_heard_ms = max(self._last_heard_ms, sent_at_ms)
            if code == ErrorCode.REBALANCE_IN_PROGRESS and self.phase is Phase.STABLE:
                self._rebalance(now_ms)
            return Next.GO_ON
        return self._refused(code, response.error_message)

    def rebalance_noticed(self, now_ms: int) -> None:
        """A commit was refused because the group is rebalancing."""
        if self.phase is Phase.STABLE:
            self._rebalance(now_ms)

    # --- The owner's doings, and time ---

    def revoked(self) -> None:
        """The owner has finished with what was being revoked: join again."""
        if self.phase is Phase.REVOKING:
            self.assignment -= self._giving_back
            self._giving_back = _NOTHING
            self.phase = Phase.JOINING

    def tick(self, now_ms: int, last_poll_ms: int) -> str | None:
        """Look at the clock. A text is the reason to leave the group with.

        The session ends here before it can end at the coordinator: it is counted from
        when the last answered heartbeat was *sent*.
        """
        if self.phase is Phase.REVOKING and now_ms >= self.revoke_until_ms:
            self.revoked()
        if self.phase in (Phase.STABLE, Phase.REVOKING):
            if now_ms >= self.session_ends_ms:
                self._lose("the coordinator has not answered for a whole session timeout")
                self.member_id = ""
                return None
        limit_ms = self.config.max_poll_interval_ms
        if limit_ms is not None and self.phase not in (Phase.IDLE, Phase.STOPPED):
            if now_ms - last_poll_ms > limit_ms:
                reason = f"no progress for {now_ms - last_poll_ms} ms, more than {limit_ms}"
                self._lose(reason)
                self.phase = Phase.IDLE
                return reason
        return None

    def unreachable(self, now_ms: int) -> None:
        """No coordinator answers: what is held is safe for the rest of the session only."""
        if self.phase in (Phase.JOINING, Phase.SYNCING) and self.assignment:
            if now_ms >= self.session_ends_ms:
                self._lose("no coordinator has answered for a whole session timeout")

    @property
    def session_ends_ms(self) -> int:
        """When the member has to take its session as ended."""
        return self._last_heard_ms + self.config.session_timeout_ms

    def left(self) -> None:
        """The group has been left: it does not know this member any more."""
        self.member_id = ""
        self.generation = -1

    def resume(self) -> None:
        """The owner is back after it made no progress."""
        if self.phase is Phase.IDLE:
            self.phase = Phase.JOINING

    def stop(self, reason: str) -> None:
        """The end: partitions still held are lost."""
        if self.phase is not Phase.STOPPED:
            self._lose(reason)
            self.phase = Phase.STOPPED
            self.events.append(Stopping(reason))

    # --- Inside ---

    @property
    def _is_cooperative(self) -> bool:
        """True if everything this member offers can hand over step by step."""
        return all(
            RebalanceProtocol.COOPERATIVE in by_name(name).protocols
            for name in self.config.assignors
        )

    def _rebalance(self, now_ms: int) -> None:
        if self._is_cooperative or not self.assignment:
            self.phase = Phase.JOINING
        else:
            self._revoke(self.assignment, now_ms)

    def _revoke(self, partitions: frozenset[TopicPartition], now_ms: int) -> None:
        self._giving_back = partitions
        self.revoke_until_ms = now_ms + self.config.rebalance_timeout_ms // 2
        self.phase = Phase.REVOKING
        self.events.append(Revoking(partitions, self.revoke_until_ms))

    def _refused(self, code: int, message: str) -> Next:
        name = ErrorCode.Name(ErrorCode.ValueType(code))
        if code in _FATAL:
            self.failure = FatalError(message, name)
            self.stop(name)
            return Next.GO_ON
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.phase = Phase.JOINING
            return Next.GO_ON
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._lose(name)
            self.left()
            return Next.GO_ON
        if code == ErrorCode.ILLEGAL_GENERATION:
            self._lose(name)
            self.generation = -1
            return Next.GO_ON
        return Next.REDISCOVER if code in _REDISCOVER else Next.PAUSE

    def _lose(self, reason: str) -> None:
        lost = self.assignment | self._giving_back
        self.assignment = self._giving_back = _NOTHING
        if lost:
            self.events.append(Lost(lost, reason))
        self._reason = reason
        if self.phase is not Phase.STOPPED:
            self.phase = Phase.JOINING


def _subscription(member: pb.JoinGroupResponse.Member) -> Subscription:
    instance_id = member.group_instance_id if member.HasField("group_instance_id") else None
    return replace(decode_subscription(member.metadata), instance_id=instance_id)
