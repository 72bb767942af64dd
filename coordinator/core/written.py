"""Follow-ups of writes: what is posted when the log has spoken, or when it has taken too long.

`error` is NONE when the log acknowledged the write, else already mapped for clients.
"""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.core.errors import ErrorCode
from coordinator.core.ids import CallId
from coordinator.core.records import GroupMetadata, RebalanceRecord
from coordinator.core.replies import CommitResult, JoinReply, Reply
from coordinator.core.requests import Request


@dataclass(frozen=True, slots=True)
class AssignmentWritten:
    record: GroupMetadata
    error: ErrorCode = ErrorCode.NONE

    @property
    def group_id(self) -> str:
        return self.record.group_id


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
class AnswerDurable:
    """Give `request` its `reply` now that what it asked for is durable, or refuse it."""

    request: Request
    reply: Reply
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
    | AnswerDurable
    | Unawaited
    | RebalanceWritten
    | JoinDurable
    | Resume
)
