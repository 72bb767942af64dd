"""Commands that the shard posts to session groups: delayed operations that have completed."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.core.session_values.plans import Plan, PlanInput


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
class ComputePlan:
    """Asks the host for a plan: `planner.plan(state)`, away from the steps of the shard."""

    group_id: str
    number: int
    state: PlanInput


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
