"""Events that handlers emit for metrics, the rebalance journal and log lines.

The core does not know its subscribers. Every event names its group, and does not carry the time at
which it happened.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.ids import NO_TIME, TopicPartition
from coordinator.core.values.plan_journal import PlanRecord
from coordinator.core.values.rebalance_journal import (
    OUTAGE_ENDED,
    RETURNED,
    SEEN_AGAIN,
    RebalanceRecord,
    StoppedPartition,
)
from coordinator.core.values.records import EndCause, PartitionSwitched, PhaseEntered

NO_PROGRESS = ("no progress: ", "consumer poll timeout has expired")
"""Begins of the reasons of members whose program does not poll: our library's, and Kafka's
(KIP-800)."""


class RebalanceCause(Enum):
    """Cause of a rebalance, as shown to users."""

    MEMBER_JOINED = "member joined"
    MEMBER_LEFT = "member left"
    SESSION_EXPIRED = "session expired"
    METADATA_CHANGED = "metadata changed"
    LEADER_REJOINED = "leader re-joined"
    SYNC_TIMED_OUT = "sync timed out"
    STATIC_MEMBER_REPLACED = "static member replaced"
    ASSIGNMENT_NOT_STORED = "assignment not stored"
    CALL_CANCELLED = "client went away"
    SIZE_LIMIT = "size limit"
    LOADED = "fail-over"
    ADMIN = "removed by an operator"
    STATIC_MEMBER_RETURNED = RETURNED
    """Cause of a journal entry alone: a process took its place in a Stable group."""
    COORDINATOR_RETURNED = OUTAGE_ENDED
    """Cause of a journal entry alone: an outage has ended, and all members go on."""
    MEMBER_SEEN_AGAIN = SEEN_AGAIN
    """Cause of a journal entry alone: a member was silent, but not for its whole session."""


RETURNS = (
    RebalanceCause.STATIC_MEMBER_RETURNED,
    RebalanceCause.COORDINATOR_RETURNED,
    RebalanceCause.MEMBER_SEEN_AGAIN,
)
"""Causes of records of the journal that are no rebalances."""


class EvictionCause(Enum):
    """Reason for which the coordinator removed a member."""

    SESSION_EXPIRED = "session expired"
    JOIN_TIMED_OUT = "did not re-join in time"
    NEW_MEMBER_TIMED_OUT = "new member waited too long"
    SYNC_TIMED_OUT = "did not sync in time"
    SIZE_LIMIT = "size limit"
    CALL_CANCELLED = "client went away"
    ADMIN = "by an operator"


@dataclass(frozen=True, slots=True)
class GroupCreated:
    group_id: str


@dataclass(frozen=True, slots=True)
class GroupActivated:
    """A group that was loaded is in use, and its members have full sessions from now on.

    `last_record_ms`: time of its newest record. `store_went_back`: the store has lost commits.
    """

    group_id: str
    last_record_ms: int
    store_went_back: bool = False


@dataclass(frozen=True, slots=True)
class JoinRefused:
    """A JoinGroup was refused; `protocols`: those that it offered."""

    group_id: str
    client_id: str
    client_host: str
    error: ErrorCode
    protocols: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RebalanceNotified:
    """The answer to a heartbeat has notified a member that the group rebalances."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class CommitWaited:
    """A commit had no answer at first. `waits`: partitions, and since how many milliseconds."""

    group_id: str
    waits: tuple[tuple[TopicPartition, int], ...]


@dataclass(frozen=True, slots=True)
class RebalanceStarted:
    """`member_id` and later fields describe the member that caused it; empty if none did."""

    group_id: str
    cause: RebalanceCause
    generation: int
    member_id: str = ""
    client_id: str = ""
    client_host: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _MemberEvent:
    group_id: str
    member_id: str
    client_id: str
    client_host: str


@dataclass(frozen=True, slots=True)
class _GoneMemberEvent(_MemberEvent):
    """Last sign of life of a member that is gone. Epoch milliseconds.

    `last_seen_ms` is -1 if it was not seen since the group was loaded.
    `heartbeat_interval_ms` is the longest time between two heartbeats that followed each other; -1
    if it sent too few. Then `heartbeat_due_ms`, when the next one was due, is a guess.
    """

    client_software: str
    last_seen_ms: int
    heartbeat_due_ms: int
    heartbeat_interval_ms: int


@dataclass(frozen=True, slots=True)
class MemberJoined(_MemberEvent):
    """A member's JoinGroup is parked: it takes part in the running join phase."""

    is_new: bool
    client_software: str = ""
    stopped: tuple[StoppedPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class JoinPhaseCompleted:
    """`generation` is the new one; `leader` and `protocol_name` are empty with no members."""

    group_id: str
    generation: int
    members: int
    leader: str
    protocol_name: str


@dataclass(frozen=True, slots=True)
class MemberSeenAgain:
    """A heartbeat or commit of a member that was silent, or the first one since this node took its
    group over: then the times are -1. They are those of `MemberEvicted`."""

    group_id: str
    member_id: str
    last_seen_ms: int = NO_TIME
    heartbeat_due_ms: int = NO_TIME
    heartbeat_interval_ms: int = NO_TIME


@dataclass(frozen=True, slots=True)
class MemberSynced:
    group_id: str
    member_id: str
    generation: int
    is_leader: bool


@dataclass(frozen=True, slots=True)
class RebalanceCompleted:
    """The assignment is durable and handed out; with no members, the group is Empty."""

    group_id: str
    generation: int
    members: int


@dataclass(frozen=True, slots=True)
class RebalanceFailed:
    """The assignment could not be stored."""

    group_id: str
    generation: int
    error: str


@dataclass(frozen=True, slots=True)
class MemberEvicted(_GoneMemberEvent):
    """`instance_id`: of a static member; else empty."""

    cause: EvictionCause
    instance_id: str = ""


@dataclass(frozen=True, slots=True)
class MemberLeft(_GoneMemberEvent):
    reason: str


@dataclass(frozen=True, slots=True)
class StaticMemberReplaced:
    """A new process has a static member's place; the last sign of life is of the one before it."""

    group_id: str
    instance_id: str
    old_member_id: str
    new_member_id: str
    last_seen_ms: int
    heartbeat_due_ms: int
    heartbeat_interval_ms: int


@dataclass(frozen=True, slots=True)
class OffsetsCommittedEvent:
    group_id: str
    partitions: int


@dataclass(frozen=True, slots=True)
class OffsetsExpired:
    group_id: str
    partitions: int


@dataclass(frozen=True, slots=True)
class ExpirationHeld:
    """Offsets that expire at `until_ms` (epoch milliseconds), since the shard has just been loaded.

    `group_id` is the first of `groups` groups. If the node's clock is ahead, they expire too early.
    """

    group_id: str
    groups: int
    partitions: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class GroupRemoved:
    group_id: str


@dataclass(frozen=True, slots=True)
class RebalanceJournaled:
    """The record of a rebalance is durable in the journal."""

    record: RebalanceRecord

    @property
    def group_id(self) -> str:
        return self.record.group_id


@dataclass(frozen=True, slots=True)
class RefusedJoin:
    """Refused JoinGroups of one client with one error, counted. Not an event.

    `protocols` are those that the client offers, `needed` those common to all members. Times are
    epoch milliseconds.
    """

    client_id: str
    client_host: str
    error: ErrorCode
    protocols: tuple[str, ...]
    needed: tuple[str, ...]
    count: int
    first_at_ms: int
    last_at_ms: int


@dataclass(frozen=True, slots=True)
class HandoffJournaled:
    """A hand-off of a session group has ended: its record, with its line, is durable."""

    group_id: str
    record: PartitionSwitched | PhaseEntered


@dataclass(frozen=True, slots=True)
class PlanJournaled:
    """A plan of a session group, which moves or grants something, is durable."""

    record: PlanRecord

    @property
    def group_id(self) -> str:
        return self.record.group_id


@dataclass(frozen=True, slots=True)
class PlanFailed:
    """The planner of a session group has failed to make a plan, for the `in_a_row`th time."""

    group_id: str
    in_a_row: int
    error: str


@dataclass(frozen=True, slots=True)
class _SessionEvent:
    """`name`: the place that is stable across restarts; empty: none."""

    group_id: str
    member_id: str
    name: str
    client_id: str
    client_host: str


@dataclass(frozen=True, slots=True)
class SessionMemberJoined(_SessionEvent):
    """A member was admitted; a member that comes back on another stream was not."""

    lease_ms: int


@dataclass(frozen=True, slots=True)
class SessionMemberRemoved(_SessionEvent):
    """A session has ended. `last_seen_ms`: epoch; -1: not since this node took the group over."""

    cause: EndCause
    partitions: int
    last_seen_ms: int


@dataclass(frozen=True, slots=True)
class SessionMemberSuspect(_SessionEvent):
    """A member's stream has ended; it keeps what it has until its lease ends."""

    partitions: int


@dataclass(frozen=True, slots=True)
class SessionMemberFlaps(_SessionEvent):
    """A member, or others from its address, come and go many times a second, and are asked to wait.
    At most once a minute for each name, or process and address."""

    times: int


@dataclass(frozen=True, slots=True)
class SessionPolicyChanged:
    """An operator, or a first member, has chosen a policy; `settings`: those without defaults."""

    group_id: str
    settings: str


@dataclass(frozen=True, slots=True)
class SessionCommitFenced:
    """A commit for partitions that its member does not hold under the tokens that it gave."""

    group_id: str
    member_id: str
    partitions: int


@dataclass(frozen=True, slots=True)
class PartitionRefused:
    """Three in a row would not have a partition: nobody is asked for `wait_ms`."""

    group_id: str
    topic: str
    partition: int
    wait_ms: int


SessionEvent = (
    SessionMemberJoined
    | SessionMemberRemoved
    | SessionMemberSuspect
    | SessionMemberFlaps
    | SessionPolicyChanged
    | SessionCommitFenced
    | PartitionRefused
)

Event = (
    GroupCreated
    | GroupActivated
    | JoinRefused
    | RebalanceNotified
    | CommitWaited
    | RebalanceStarted
    | MemberJoined
    | MemberSeenAgain
    | JoinPhaseCompleted
    | MemberSynced
    | RebalanceCompleted
    | RebalanceFailed
    | MemberEvicted
    | MemberLeft
    | StaticMemberReplaced
    | OffsetsCommittedEvent
    | OffsetsExpired
    | ExpirationHeld
    | GroupRemoved
    | RebalanceJournaled
    | HandoffJournaled
    | PlanJournaled
    | PlanFailed
    | SessionEvent
)
