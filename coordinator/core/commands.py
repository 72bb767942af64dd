"""Everything that can happen to a group, as values.

Requests come from outside and carry a `call_id`; what `refusal` returns is the
answer when the protocol says no. Follow-ups come from inside: a delayed operation
completed, a write was resolved. Each follow-up is re-validated where it is handled,
for the group may have moved on since it was posted.
"""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.core.errors import ErrorCode, Refused
from coordinator.core.ids import NO_GENERATION, NO_LEADER_EPOCH, CallId
from coordinator.core.records import GroupMetadata, RebalanceRecord
from coordinator.core.replies import (
    CommitReply,
    CommitResult,
    DeleteReply,
    DescribeReply,
    FetchReply,
    HeartbeatReply,
    JoinReply,
    LeaveReply,
    ListLogEndsReply,
    ListReply,
    OffsetDeleteReply,
    PhaseReply,
    RebalancesReply,
    ReportLogEndsReply,
    SyncReply,
)

# --- Requests ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroup:
    """`protocols` is an ordered tuple of (name, metadata), best first."""

    call_id: CallId
    group_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    member_id: str
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    reason: str = ""
    require_known_member_id: bool = True
    supports_skip_assignment: bool = True

    def refusal(self, refused: Refused) -> JoinReply:
        member_id = self.member_id if refused.member_id is None else refused.member_id
        return JoinReply(refused.error, refused.message, member_id=member_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroup:
    """`assignments` holds (member id, bytes) and counts only from the leader."""

    call_id: CallId
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()

    def refusal(self, refused: Refused) -> SyncReply:
        return SyncReply(refused.error, refused.message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    call_id: CallId
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None = None

    def refusal(self, refused: Refused) -> HeartbeatReply:
        return HeartbeatReply(refused.error, refused.message)


@dataclass(frozen=True, slots=True)
class LeavingMember:
    member_id: str
    instance_id: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroup:
    call_id: CallId
    group_id: str
    members: tuple[LeavingMember, ...]

    def refusal(self, refused: Refused) -> LeaveReply:
        return LeaveReply(refused.error, refused.message)


@dataclass(frozen=True, slots=True)
class PartitionCommit:
    """`expected` asks for compare-and-set; -1 expects that nothing is stored."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    expected: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOffsets:
    call_id: CallId
    group_id: str
    partitions: tuple[PartitionCommit, ...]
    generation: int = NO_GENERATION
    member_id: str = ""
    instance_id: str | None = None
    atomic: bool = False
    manifest: bytes = b""
    retention_ms: int | None = None

    def refusal(self, refused: Refused) -> CommitReply:
        return CommitReply(
            tuple(CommitResult(p.topic, p.partition, refused.error) for p in self.partitions),
            refused.message,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOffsets:
    """`partitions` None asks for everything stored."""

    call_id: CallId
    group_id: str
    partitions: tuple[tuple[str, int], ...] | None = None
    require_stable: bool = False

    def refusal(self, refused: Refused) -> FetchReply:
        return FetchReply(refused.error, refused.message)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOffsets:
    call_id: CallId
    group_id: str
    partitions: tuple[tuple[str, int], ...]

    def refusal(self, refused: Refused) -> OffsetDeleteReply:
        return OffsetDeleteReply(refused.error, refused.message)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListGroups:
    """Filters hold names in any case; an empty one lets everything through. `limit` 0: all."""

    call_id: CallId
    states: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    contains: str = ""
    limit: int = 0

    def refusal(self, refused: Refused) -> ListReply:
        return ListReply(refused.error, refused.message)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeGroup:
    call_id: CallId
    group_id: str
    report_unknown: bool = False

    def refusal(self, refused: Refused) -> DescribeReply:
        return DescribeReply(self.group_id, refused.error, refused.message)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroup:
    call_id: CallId
    group_id: str

    def refusal(self, refused: Refused) -> DeleteReply:
        return DeleteReply(self.group_id, refused.error, refused.message)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportLogEnds:
    """`ends` holds (topic, partition, the offset after the last row)."""

    call_id: CallId
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None = None
    ends: tuple[tuple[str, int, int], ...] = ()

    def refusal(self, refused: Refused) -> ReportLogEndsReply:
        return ReportLogEndsReply(refused.error, refused.message)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListLogEnds:
    call_id: CallId
    group_id: str

    def refusal(self, refused: Refused) -> ListLogEndsReply:
        return ListLogEndsReply(refused.error, refused.message)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListRebalances:
    call_id: CallId
    group_id: str

    def refusal(self, refused: Refused) -> RebalancesReply:
        return RebalancesReply(refused.error, refused.message)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribePhase:
    """Whom the group waits for now."""

    call_id: CallId
    group_id: str

    def refusal(self, refused: Refused) -> PhaseReply:
        return PhaseReply(refused.error, refused.message)


Request = (
    JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | CommitOffsets
    | FetchOffsets
    | DeleteOffsets
    | ListGroups
    | DescribeGroup
    | DeleteGroup
    | ReportLogEnds
    | ListLogEnds
    | ListRebalances
    | DescribePhase
)


@dataclass(frozen=True, slots=True)
class CallCancelled:
    """The client of this call has gone away."""

    call_id: CallId


# --- Follow-ups: a delayed operation completed --------------------------------------------------


@dataclass(frozen=True, slots=True)
class CompleteJoinPhase:
    """Everyone has joined, or the time is over."""

    group_id: str
    generation: int


@dataclass(frozen=True, slots=True)
class InitialDelayElapsed:
    """One slice of the initial delay is over; `remaining_ms` may still be added."""

    group_id: str
    generation: int
    delay_ms: int
    remaining_ms: int


@dataclass(frozen=True, slots=True)
class SyncPhaseExpired:
    group_id: str
    generation: int


@dataclass(frozen=True, slots=True)
class SessionExpired:
    """A member's deadline, or a pending id's, has passed."""

    group_id: str
    member_id: str
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class ExpireOffsets:
    """Time to look through the offsets."""


# --- Follow-ups: a write was resolved -----------------------------------------------------------
# `error` is NONE when the log acknowledged it, else already mapped for clients.


@dataclass(frozen=True, slots=True)
class AssignmentWritten:
    record: GroupMetadata
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class StaticMemberWritten:
    """Time to answer a restarted static member: its new id is durable, or refused, or nobody knows
    yet."""

    group_id: str
    call_id: CallId
    instance_id: str
    generation: int
    previous_member_id: str
    supports_skip_assignment: bool
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class StaticMemberSettled:
    """The log has spoken of a restarted static member's new id: it is durable, or never will be."""

    group_id: str
    member_id: str
    previous_member_id: str
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class ReplacementOverdue:
    """With an error: a restarted static member has waited too long for its turn."""

    group_id: str
    call_id: CallId
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class OffsetsWritten:
    call_id: CallId
    group_id: str
    results: tuple[CommitResult, ...]
    written: tuple[tuple[str, int], ...]
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class OffsetsDeletedWritten:
    call_id: CallId
    group_id: str
    reply: OffsetDeleteReply
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class GroupDeletedWritten:
    call_id: CallId
    group_id: str
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class Unawaited:
    """A write that no call waits for: an empty group, a generation floor, expired offsets."""

    group_id: str
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class RebalanceWritten:
    """A rebalance is in the journal, unless the log has refused it."""

    record: RebalanceRecord
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class JoinDurable:
    """Answer a JoinGroup now that what was written before it is durable, or refuse it."""

    call_id: CallId
    reply: JoinReply
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class Resume:
    """Handle `request` now that what was being written when it came is resolved; or, with an
    error, refuse it. It waits until `deadline_ms` at most, however often it has to wait."""

    request: Request
    deadline_ms: int
    error: ErrorCode = ErrorCode.NONE


WriteFollowUp = (
    AssignmentWritten
    | StaticMemberWritten
    | StaticMemberSettled
    | ReplacementOverdue
    | OffsetsWritten
    | OffsetsDeletedWritten
    | GroupDeletedWritten
    | Unawaited
    | RebalanceWritten
    | JoinDurable
    | Resume
)
FollowUp = (
    CompleteJoinPhase
    | InitialDelayElapsed
    | SyncPhaseExpired
    | SessionExpired
    | ExpireOffsets
    | WriteFollowUp
)
Command = Request | CallCancelled | FollowUp
