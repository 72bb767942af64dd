"""Replies, as values. `service/grpc/translate/` converts them to protobuf.

On success `error` is NONE and `message` is empty. Fields are named as in the protos.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.events import RefusedJoin
from coordinator.core.values.ids import (
    NO_GENERATION,
    NO_LEADER_EPOCH,
    NO_OFFSET,
    NO_TIME,
    TopicPartition,
)
from coordinator.core.values.plan_journal import PlanRecord
from coordinator.core.values.policy import Policy
from coordinator.core.values.rebalance_journal import RebalanceRecord
from coordinator.core.values.records import (
    DocumentStored,
    OffsetCommitted,
    PartitionSwitched,
    Phase,
    PhaseEntered,
    SessionMemberStored,
)
from coordinator.core.values.session_messages import AttachReply, Standing

NONE = ErrorCode.NONE
UNKNOWN_LAG = -1
_DEFAULTS = Policy()


@dataclass(frozen=True, slots=True)
class _Reply:
    """The fields that most replies begin with."""

    error: ErrorCode = NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """A member in the leader's reply; its metadata for the selected protocol only."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinReply(_Reply):
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    member_id: str = ""
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class SyncReply(_Reply):
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class HeartbeatReply(_Reply):
    pass


@dataclass(frozen=True, slots=True)
class LeaveResult:
    member_id: str
    instance_id: str | None
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class LeaveReply(_Reply):
    members: tuple[LeaveResult, ...] = ()


@dataclass(frozen=True, slots=True)
class CommitResult:
    """One partition's outcome; `found` is the stored offset on OFFSET_MISMATCH.

    `holder_id` and `holder_name` are those of the member that holds it, on FENCED_TOKEN.
    """

    topic: str
    partition: int
    error: ErrorCode
    found: int = NO_OFFSET
    holder_id: str = ""
    holder_name: str = ""


@dataclass(frozen=True, slots=True)
class CommitReply:
    results: tuple[CommitResult, ...] = ()
    message: str = ""


@dataclass(frozen=True, slots=True)
class FetchedOffset:
    topic: str
    partition: int
    offset: int = NO_OFFSET
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    error: ErrorCode = NONE


@dataclass(frozen=True, slots=True)
class FetchReply(_Reply):
    offsets: tuple[FetchedOffset, ...] | tuple[OffsetCommitted, ...] = ()
    """The requested partitions in that order, or all stored ones unordered: a group may have a
    million, and the caller can sort them in slices."""
    manifest: bytes = b""


@dataclass(frozen=True, slots=True)
class PutReply(_Reply):
    """`versions` of what was written; none, if another version than the expected one is stored."""

    versions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class DocumentsReply(_Reply):
    """Documents in the order of their versions. `document_count`: of all with the prefix."""

    documents: tuple[DocumentStored, ...] = ()
    document_count: int = 0


@dataclass(frozen=True, slots=True)
class GroupListing:
    group_id: str
    protocol_type: str
    state: str
    group_type: str = "classic"
    member_count: int = 0
    protocol_name: str = ""
    lag: int = UNKNOWN_LAG
    """Rows behind the ends that members have reported; UNKNOWN_LAG also if not asked for."""
    last_rebalance_ms: int = NO_TIME
    rebalancing_since_ms: int = NO_TIME
    order_value: int = 0
    """Value by which the list is sorted, ascending, then by id."""


@dataclass(frozen=True, slots=True)
class ListReply(_Reply):
    groups: tuple[GroupListing, ...] = ()
    """Groups in the requested order, up to the requested limit."""
    matching: int = 0


@dataclass(frozen=True, slots=True)
class DescribedMember:
    """A member. `holds`: instead of `assignment`, partitions of a member of a session group."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes = b""
    assignment: bytes = b""
    client_software: str = ""
    holds: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class DescribeReply:
    """One group."""

    group_id: str
    error: ErrorCode = NONE
    message: str = ""
    state: str = ""
    protocol_type: str = ""
    protocol_name: str = ""
    members: tuple[DescribedMember, ...] = ()
    generation: int = 0
    leader: str = ""
    group_type: str = "classic"


@dataclass(frozen=True, slots=True)
class DeleteReply:
    """One group."""

    group_id: str
    error: ErrorCode = NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class OffsetDeleteReply(_Reply):
    results: tuple[CommitResult, ...] = ()


@dataclass(frozen=True, slots=True)
class ReportLogEndsReply(_Reply):
    pass


@dataclass(frozen=True, slots=True)
class LogEnd:
    """Log end offset of a partition, as a member reported it at `reported_at_ms` (epoch).

    `begin`: offset of the first row. `committed`: offset that was stored at that time, 0 if none
    was. `is_short`: the log ends before what was stored at the report before.
    """

    topic: str
    partition: int
    offset: int
    reported_at_ms: int
    begin: int = 0
    committed: int = 0
    is_short: bool = False

    def lag(self, committed: int | None) -> int:
        """Rows behind the end. `committed`: the stored offset; None: there is none."""
        return max(0, self.offset - max(self.begin, committed or 0))


@dataclass(frozen=True, slots=True)
class ListLogEndsReply(_Reply):
    ends: tuple[LogEnd, ...] = ()
    """Unordered, as the offsets of `FetchReply`."""


@dataclass(frozen=True, slots=True)
class RebalancesReply(_Reply):
    """Journal of a group, newest first: rebalances and refused joins, or plans and hand-offs."""

    rebalances: tuple[RebalanceRecord, ...] = ()
    refused_joins: tuple[RefusedJoin, ...] = ()
    plans: tuple[PlanRecord, ...] = ()
    handoffs: tuple[PartitionSwitched | PhaseEntered, ...] = ()


@dataclass(frozen=True, slots=True)
class AwaitedMember:
    """A member that a phase waits for. Only `member_id`: a pending member id."""

    member_id: str
    client_id: str = ""
    client_host: str = ""
    is_leader: bool = False
    last_seen_ms: int = NO_TIME
    session_timeout_ms: int = NO_TIME


@dataclass(frozen=True, slots=True)
class PhaseReply(_Reply):
    """State of a group, and the members that its phase waits for.

    The phase has begun at `since_ms` and times out at `deadline_ms`, epoch milliseconds; -1 if the
    group waits for nobody.
    """

    state: str = ""
    since_ms: int = NO_TIME
    deadline_ms: int = NO_TIME
    is_initial_delay: bool = False
    awaited: tuple[AwaitedMember, ...] = ()


# --- To operators, about session groups ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SessionMemberState:
    """A member, or a process that waits for the name of one.

    record: durable; of a waiting process the one it would get. lease_ms: the lease that counts,
    which is the one that the member was sent last. last_seen_ms, lease_ends_ms: epoch
    milliseconds. partitions: number that it holds, in any phase. why: why it has nothing; empty if
    it has something. waits_for: of a waiting process, the id of the member that has its name.
    differing_wishes: settings of the policy that it asked for and that have other values.
    """

    record: SessionMemberStored
    standing: Standing
    is_suspect: bool
    lease_ms: int
    last_seen_ms: int
    lease_ends_ms: int
    partitions: int = 0
    is_ready: bool = True
    is_overloaded: bool = False
    is_stalled: bool = False
    leaves_at_ms: int = NO_TIME
    why: str = ""
    waits_for: str = ""
    differing_wishes: tuple[tuple[str, object], ...] = ()


@dataclass(frozen=True, slots=True)
class DescribedTopic:
    """Holders of one topic, in columns: one item a partition.

    holders: member ids; empty: nobody. tokens: of the grants; 0: none. declared: number of
    partitions that live members declare.
    """

    topic: str
    declared: int
    holders: tuple[str, ...]
    tokens: array[int]


@dataclass(frozen=True, slots=True)
class HandoffRow:
    """An open hand-off. Times are epoch milliseconds; -1: unknown, or no limit.

    source: member id of the holder; empty in COPY. successor: empty if none was found yet.
    waits_for: id of the member whose word is awaited; empty: the log's, or the planner's.
    reason: why the partition moves, as a code of `MoveReason`; empty: unknown.
    """

    topic_partition: TopicPartition
    handoff_id: int
    phase: Phase
    source: str
    successor: str
    opened_at_ms: int
    phase_since_ms: int
    deadline_ms: int
    waits_for: str
    is_ready: bool
    position: int = NO_OFFSET
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ReservationRow:
    """Partitions that are reserved for a name, until `until_ms` at the latest (epoch)."""

    name: str
    until_ms: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class FreeRow:
    """Declared partitions of one topic that nobody holds, for one reason.

    why: a code. `plan_due`: the next plan looks for a holder; the others are not placeable now.
    ranges: first and last, both included.
    """

    topic: str
    ranges: tuple[tuple[int, int], ...]
    why: str


@dataclass(frozen=True, slots=True)
class SessionGroupReply(_Reply):
    """A session group as it is now. Times are epoch milliseconds; -1: none.

    policy: the one in force. is_policy_stored: False: nobody has chosen one yet.
    plan_due_ms: when the next plan runs.
    """

    group_id: str = ""
    state: str = ""
    policy: Policy = _DEFAULTS
    is_policy_stored: bool = False
    now_ms: int = NO_TIME
    planned_at_ms: int = NO_TIME
    plan_due_ms: int = NO_TIME
    members: tuple[SessionMemberState, ...] = ()
    topics: tuple[DescribedTopic, ...] = ()
    handoffs: tuple[HandoffRow, ...] = ()
    reservations: tuple[ReservationRow, ...] = ()
    free: tuple[FreeRow, ...] = ()


@dataclass(frozen=True, slots=True)
class PolicyReply(_Reply):
    """The policy in force from now on."""

    policy: Policy = _DEFAULTS


@dataclass(frozen=True, slots=True)
class EvictReply(_Reply):
    """The evicted member or name.

    partitions: number that it held, or that were reserved for its name.
    """

    member_id: str = ""
    name: str = ""
    partitions: int = 0


OperatorReply = SessionGroupReply | PolicyReply | EvictReply

PlainReply = (
    JoinReply
    | SyncReply
    | HeartbeatReply
    | LeaveReply
    | FetchReply
    | ListReply
    | OffsetDeleteReply
    | PutReply
    | DocumentsReply
    | ReportLogEndsReply
    | ListLogEndsReply
    | RebalancesReply
    | PhaseReply
    | PolicyReply
    | EvictReply
)
"""Replies that can be made of an error and a message alone."""

Reply = PlainReply | CommitReply | DescribeReply | DeleteReply | AttachReply | OperatorReply
