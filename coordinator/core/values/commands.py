"""Commands: requests, and follow-ups that the shard posts to itself.

A follow-up is posted when a delayed operation has completed, or a write has a result (see
`follow_ups`). Its rule validates it again, since the group may have changed in between.
"""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.core.values.follow_ups import WriteFollowUp
from coordinator.core.values.ids import CallId
from coordinator.core.values.plans import Plan
from coordinator.core.values.requests import Request
from coordinator.core.values.session_messages import SessionInput


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
