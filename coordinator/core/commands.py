"""Everything that can happen to a group: requests, and follow-ups from inside.

A follow-up is posted when a delayed operation has completed, or a write was resolved
(`written`). It is re-validated where it is handled, for the group may have moved on since.
"""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.core.ids import CallId
from coordinator.core.requests import Request
from coordinator.core.written import WriteFollowUp


@dataclass(frozen=True, slots=True)
class CallCancelled:
    """The client of this call has gone away."""

    call_id: CallId


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


FollowUp = (
    CompleteJoinPhase
    | InitialDelayElapsed
    | SyncPhaseExpired
    | SessionExpired
    | ExpireOffsets
    | WriteFollowUp
)
Command = Request | CallCancelled | FollowUp
