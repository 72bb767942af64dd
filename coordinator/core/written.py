"""Follow-ups of writes, posted at the result of the append or at a time-out.

`error` is NONE if the log has acknowledged the write, else the error code for clients.
"""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.core.errors import ErrorCode
from coordinator.core.ids import CallId
from coordinator.core.records import GroupMetadata, RebalanceRecord
from coordinator.core.replies import CommitResult, JoinReply, Reply
from coordinator.core.requests import Request
from coordinator.core.session_values.written import (
    LogAnswered,
    PolicyWritten,
    SessionAdmitted,
    SessionEnded,
    SessionWritten,
)


@dataclass(frozen=True, slots=True)
class AssignmentWritten:
    record: GroupMetadata
    error: ErrorCode = ErrorCode.NONE

    @property
    def group_id(self) -> str:
        return self.record.group_id


@dataclass(frozen=True, slots=True)
class StaticMemberWritten:
    """Result, or time-out, of the write that gives a static member its new id: answer it."""

    group_id: str
    call_id: CallId
    instance_id: str
    generation: int
    previous_member_id: str
    supports_skip_assignment: bool
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class StaticMemberResolved:
    """Final result of the write that gives a static member its new id; it may follow a time-out."""

    group_id: str
    member_id: str
    previous_member_id: str
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class ReplacementOverdue:
    """End of a static member's wait for an earlier replacement; with an error: it timed out."""

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
    """Answer `request` with `reply` once its records are durable, or refuse it."""

    request: Request
    reply: Reply
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class Unawaited:
    """Result of a write without a caller: an empty group, a generation floor, expired offsets."""

    group_id: str
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class RebalanceWritten:
    """Result of writing a rebalance to the journal."""

    record: RebalanceRecord
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class JoinDurable:
    """Answer a JoinGroup once all earlier writes are durable, or refuse it."""

    call_id: CallId
    reply: JoinReply
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class Resume:
    """Handle `request` again after the results of earlier writes; with an error, refuse it.

    `deadline_ms` bounds all its waits together.
    """

    request: Request
    deadline_ms: int
    error: ErrorCode = ErrorCode.NONE


WriteFollowUp = (
    AssignmentWritten
    | StaticMemberWritten
    | StaticMemberResolved
    | ReplacementOverdue
    | OffsetsWritten
    | AnswerDurable
    | Unawaited
    | RebalanceWritten
    | JoinDurable
    | Resume
    | PolicyWritten
    | SessionWritten
    | SessionAdmitted
    | SessionEnded
    | LogAnswered
)
