"""Follow-ups of writes of session groups."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.core.errors import ErrorCode
from coordinator.core.ids import CallId, TopicPartition
from coordinator.core.session_values.records import EndCause
from coordinator.core.session_values.requests import Attach, StreamEnd


@dataclass(frozen=True, slots=True)
class SessionWritten:
    """A write about partitions is resolved: check these again, and notify members.

    reserved_name: what was reserved for this name is now free, or has a holder. queued_id: the
    process that waited for the name, and is now a member. leaver: the member that leaves by it.
    """

    group_id: str
    partitions: tuple[TopicPartition, ...] = ()
    reserved_name: str = ""
    queued_id: str = ""
    leaver: str = ""
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class PolicyWritten:
    """The write of a policy is resolved: what is open may follow another rule from now on."""

    group_id: str
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class SessionAdmitted:
    """The write of an admission is resolved: answer the Attach."""

    group_id: str
    command: Attach
    member_id: str
    partitions: tuple[TopicPartition, ...] = ()
    is_new: bool = False
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class LogAnswered:
    """A write that changes nothing is resolved: it asked whether the log is available again."""

    group_id: str
    asked_ms: int
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """The write that ends a session is resolved: what it held is free, and its stream ends.

    `reserved_name`: what it held is reserved for this name, for `keep_ms`. `queued_id`: the process
    that waited for its name, and is a member by the same write.
    """

    group_id: str
    member_id: str
    cause: EndCause
    partitions: tuple[TopicPartition, ...] = ()
    stream_id: CallId | None = None
    last: StreamEnd | None = None
    reserved_name: str = ""
    keep_ms: int = 0
    queued_id: str = ""
    error: ErrorCode = ErrorCode.NONE
