"""Commands: requests, and follow-ups that the shard posts to itself.

A follow-up is posted when a delayed operation has completed, or a write has a result. Its rule
validates it again, since the group may have changed in between.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.ids import CallId, TopicPartition
from coordinator.core.values.plans import Plan
from coordinator.core.values.rebalance_journal import RebalanceRecord
from coordinator.core.values.records import EndCause, GroupMetadata
from coordinator.core.values.replies import CommitResult, JoinReply, Reply
from coordinator.core.values.requests import Request
from coordinator.core.values.session_messages import Attach, SessionInput, StreamEnd


@dataclass(frozen=True, slots=True)
class CallCancelled:
    """The client of a call has cancelled it or disconnected."""

    call_id: CallId


@dataclass(frozen=True, slots=True)
class CompleteJoinPhase:
    """All members have joined, or the rebalance timeout is over."""

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
    """The deadline of a member or of a pending member id has passed."""

    group_id: str
    member_id: str
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class ExpireOffsets:
    """The periodic check for expired offsets is due."""


@dataclass(frozen=True, slots=True)
class LeaseExpired:
    group_id: str
    member_id: str
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class PhaseOverdue:
    """The time of a phase of a hand-off is up."""

    group_id: str
    topic: str
    partition: int
    handoff_id: int
    phase: str


@dataclass(frozen=True, slots=True)
class PlanDue:
    group_id: str


@dataclass(frozen=True, slots=True)
class PlanComputed:
    """The result of `ComputePlan`. `plan` is None if it could not be made; `error` says why."""

    group_id: str
    number: int
    plan: Plan | None
    error: str = ""


@dataclass(frozen=True, slots=True)
class ReservationOver:
    """The time for which partitions were reserved for a name is up."""

    group_id: str
    name: str


@dataclass(frozen=True, slots=True)
class LeaveOverdue:
    """The deadline of a member's Leave(DRAIN) has passed."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class WriteRetry:
    """Writes about a group that the log has refused are due to be tried again."""

    group_id: str


# --- Follow-ups of writes, named by what they do at the result of the append, or at a time-out ---


@dataclass(frozen=True, slots=True)
class _FollowUp:
    """`error` is NONE if the log has acknowledged the write, else the error code for clients."""

    error: ErrorCode = field(default=ErrorCode.NONE, kw_only=True)


@dataclass(frozen=True, slots=True)
class _GroupFollowUp(_FollowUp):
    group_id: str


@dataclass(frozen=True, slots=True)
class AnswerSyncs(_FollowUp):
    """Answer the SyncGroups that wait for an assignment, or rebalance again."""

    record: GroupMetadata

    @property
    def group_id(self) -> str:
        return self.record.group_id


@dataclass(frozen=True, slots=True)
class AnswerReplacement(_GroupFollowUp):
    """Answer a static member whose new id is written, or whose write has timed out."""

    call_id: CallId
    instance_id: str
    generation: int
    previous_member_id: str
    supports_skip_assignment: bool


@dataclass(frozen=True, slots=True)
class FinishReplacement(_GroupFollowUp):
    """Give a static member its place under its new id once that is written, however late."""

    member_id: str
    previous_member_id: str


@dataclass(frozen=True, slots=True)
class RefuseReplacement(_GroupFollowUp):
    """Refuse a static member that has waited too long for an earlier replacement, by an error."""

    call_id: CallId


@dataclass(frozen=True, slots=True)
class AnswerCommit(_FollowUp):
    """Answer a commit. `results` are those of a success; `written`: the partitions stored by it."""

    call_id: CallId
    group_id: str
    results: tuple[CommitResult, ...]
    written: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class AnswerRequest(_FollowUp):
    """Answer `request` with `reply` once its records are durable, or refuse it."""

    request: Request
    reply: Reply


@dataclass(frozen=True, slots=True)
class NoFollowUp(_GroupFollowUp):
    """Nobody waits for the write: an empty group, a generation floor, expired offsets."""


@dataclass(frozen=True, slots=True)
class AnnounceRebalance(_FollowUp):
    """Emit the event of a rebalance that is in the journal."""

    record: RebalanceRecord


@dataclass(frozen=True, slots=True)
class AnswerJoin(_FollowUp):
    """Answer a JoinGroup once all earlier writes are durable, or refuse it."""

    call_id: CallId
    reply: JoinReply


@dataclass(frozen=True, slots=True)
class HandleAgain(_FollowUp):
    """Handle `request` again after the results of earlier writes; with an error, refuse it.

    `deadline_ms` bounds all its waits together.
    """

    request: Request
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class ReviewPartitions(_GroupFollowUp):
    """Check partitions again whose write is resolved, and notify members.

    reserved_name: what was reserved for this name is now free, or has a holder. queued_id: the
    process that waited for the name, and is now a member. leaver: the member that leaves by it.
    """

    partitions: tuple[TopicPartition, ...] = ()
    reserved_name: str = ""
    queued_id: str = ""
    leaver: str = ""


@dataclass(frozen=True, slots=True)
class ApplyPolicy(_GroupFollowUp):
    """Have what is open follow the policy that was written, or refused."""


@dataclass(frozen=True, slots=True)
class AnswerAttach(_GroupFollowUp):
    """Answer an Attach whose admission is written, or refused."""

    command: Attach
    member_id: str
    partitions: tuple[TopicPartition, ...] = ()
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class ResumeExpiry(_GroupFollowUp):
    """End leases that ran out while the log was unavailable; the write only asked whether it is."""

    asked_ms: int


@dataclass(frozen=True, slots=True)
class CloseSession(_GroupFollowUp):
    """Free what a session held whose end is written, and end its stream.

    `reserved_name`: what it held is reserved for this name, for `keep_ms`. `queued_id`: the process
    that waited for its name, and is a member by the same write.
    """

    member_id: str
    cause: EndCause
    partitions: tuple[TopicPartition, ...] = ()
    stream_id: CallId | None = None
    last: StreamEnd | None = None
    reserved_name: str = ""
    keep_ms: int = 0
    queued_id: str = ""


WriteFollowUp = (
    AnswerSyncs
    | AnswerReplacement
    | FinishReplacement
    | RefuseReplacement
    | AnswerCommit
    | AnswerRequest
    | NoFollowUp
    | AnnounceRebalance
    | AnswerJoin
    | HandleAgain
    | ApplyPolicy
    | ReviewPartitions
    | AnswerAttach
    | CloseSession
    | ResumeExpiry
)

SessionFollowUp = (
    LeaseExpired
    | PhaseOverdue
    | PlanDue
    | PlanComputed
    | ReservationOver
    | LeaveOverdue
    | WriteRetry
)

FollowUp = (
    CompleteJoinPhase
    | InitialDelayElapsed
    | SyncPhaseExpired
    | SessionExpired
    | ExpireOffsets
    | WriteFollowUp
    | SessionFollowUp
)

Command = Request | SessionInput | CallCancelled | FollowUp
