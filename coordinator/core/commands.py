"""Commands: requests, and follow-ups that the shard posts to itself.

A follow-up is posted when a delayed operation has completed, or a write has a result (`written`).
Its handler validates it again, since the group may have changed in between.
"""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.core.ids import CallId
from coordinator.core.requests import Request
from coordinator.core.session_values.commands import SessionFollowUp
from coordinator.core.session_values.requests import SessionInput
from coordinator.core.written import WriteFollowUp


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
