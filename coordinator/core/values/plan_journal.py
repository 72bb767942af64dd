"""The journal of a session group: plans, hand-offs, and how long nobody worked on a partition.

A coordinator sees messages, not work. When the holder of a partition stopped lies between two
times, which depend on how its grant ended:

    how it ended     at the earliest                              at the latest
    released         when it was told to drain, or committed last when it said so
    stalled          when it was heard last before it was heard   as above, or below
                     that its working side had got on
    left             when it left, or committed it last, if it    when it left
                     committed others later
    died             when it was last seen                       when its next heartbeat was due
    forced           when it was told to drain, or committed last when its lease had run out
    lost, suspended  when it was last seen                       when its lease had run out

A partition is lost if its holder comes back and does not claim it. It is suspended while its lease
is in doubt: a member that is not acknowledged for two thirds of it begins nothing new, and goes on
under the same token. After an outage the member says how long it was silent. Of a member that was
not heard since this node took the group over, the last sign is its newest commit, or one lease
before the newest record of the owner before, by which it would have ended had it been silent.

A commit of the partition under its token raises the earlier time. Work resumes when the record of
the next grant is durable, since its holder is notified at once. Times are epoch milliseconds; -1 (
`NO_TIME`): it did not happen, or is not known.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from coordinator.core.values.ids import NO_OFFSET, NO_TIME

RETURNED = "returned"
"""Reason of partitions that went on with their member, or its name, without a plan."""


class StoppedBy(Enum):
    """Evidence of when a holder stopped to work on a partition. The values are codes."""

    RELEASED = "released"
    LEFT = "left"
    LAST_SEEN = "last_seen"
    """Its member died, or was paused or cut off, after it was last seen."""
    NOT_SEEN = "not_seen_since_take_over"
    """The same, and it was not seen since this node took the group over."""
    FORCED = "forced"
    """It was asked to stop, and did not answer before its lease had run out."""
    SUSPENDED = "suspended"
    """Its member could not renew the lease for a while, and goes on."""
    LOST = "lost"
    """Its member came back without it: the lease had run out by its own clock."""


@dataclass(frozen=True, slots=True)
class WorkStop:
    """The end of work on a partition: between two times."""

    known_by: StoppedBy
    earliest_ms: int
    latest_ms: int

    def idle_ms(self, resumed_at_ms: int) -> tuple[int, int]:
        """Shortest and longest time without work until `resumed_at_ms`; -1: longest unknown."""
        shortest_ms = max(0, resumed_at_ms - self.latest_ms)
        if self.earliest_ms == NO_TIME:
            return shortest_ms, NO_TIME
        return shortest_ms, max(0, resumed_at_ms - self.earliest_ms)


class HandoffOutcome(Enum):
    """The end of a hand-off. The values are codes."""

    OPEN = "open"
    RELEASED = "released"
    """Its holder released the partition."""
    HOLDER_LEFT = "holder_left"
    HOLDER_DIED = "holder_died"
    FORCED = "forced"
    """Its holder was asked to stop, and did not answer before its lease had run out."""
    ABANDONED = "abandoned"
    """It stays with its holder: nobody was ready to have it."""


@dataclass(frozen=True, slots=True)
class HandoffLine:
    """One hand-off so far: it is in the record of each phase, and complete in that of the switch.

    source: member id of the holder. mode, reason: codes of `Mode` and of the planner's reason.
    prepared_at_ms: the successor was ready before the holder was asked to drain.
    released_at_ms: the token ended by the holder's word.
    ended_at_ms: the switch was decided; a slow log adds to it.
    position: at which the holder stopped; -1: it did not say.
    start_offset: committed offset with which the next holder begins; -1: nobody has committed, or
        there is no next holder. Known once the switch is durable.
    stop: None while it is open, or if its holder goes on.
    """

    handoff_id: int
    source: str
    mode: str = ""
    reason: str = ""
    opened_at_ms: int = NO_TIME
    prepared_at_ms: int = NO_TIME
    drain_at_ms: int = NO_TIME
    forced_at_ms: int = NO_TIME
    released_at_ms: int = NO_TIME
    ended_at_ms: int = NO_TIME
    position: int = NO_OFFSET
    outcome: HandoffOutcome = HandoffOutcome.OPEN
    stop: WorkStop | None = None
    start_offset: int = NO_OFFSET

    @property
    def was_forced(self) -> bool:
        """True if the holder did not release the partition in time."""
        return self.forced_at_ms != NO_TIME


class TriggerCause(Enum):
    """An event that calls for a plan. The values are codes."""

    FAIL_OVER = "fail_over"
    """This node took the group over."""
    STORE_WENT_BACK = "store_went_back"
    """The store has lost commits that were acknowledged."""
    MEMBER_CAME = "member_came"
    MEMBER_CHANGED = "member_changed"
    """Its topics, its capacity, or the most partitions that it takes."""
    MEMBER_BACK = "member_back"
    """It has a stream again, or is ready to receive again."""
    MEMBER_STALLED = "member_stalled"
    """Its working side did not get on for the policy's `max_idle_ms`."""
    MEMBER_DRAINS = "member_drains"
    MEMBER_LEFT = "member_left"
    MEMBER_DIED = "member_died"
    MEMBER_EVICTED = "member_evicted"
    PARTITION_FREED = "partition_freed"
    """A holder gave it up, or it had no successor."""
    RETURN_OVERDUE = "return_overdue"
    """A member did not return in the time for which its partitions were reserved."""
    POLICY_CHANGED = "policy_changed"


@dataclass(frozen=True, slots=True)
class PlanTrigger:
    """An event that called for a plan. `member_id`: a member, or the name of an absent one."""

    cause: TriggerCause
    member_id: str = ""


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """Partitions of one topic that a plan gives from one member to another.

    partitions: ranges, first and last, both included. source: the holder, or the last one of
    partitions that were free, if it is known. target: empty: they are given up. reason: code of the
    planner's reason; `free` for partitions without a holder, idle since `stop`; `returned` for
    those that a member or a name got again at `resumed_at_ms`, before the plan.
    """

    topic: str
    partitions: tuple[tuple[int, int], ...]
    source: str
    target: str
    reason: str
    stop: WorkStop | None = None
    resumed_at_ms: int = NO_TIME

    def resumed_by(self, made_at_ms: int) -> int:
        """Time at which work resumed; `made_at_ms`: of the plan."""
        return made_at_ms if self.resumed_at_ms == NO_TIME else self.resumed_at_ms


@dataclass(frozen=True, slots=True)
class Unowned:
    """Partitions that a plan gave a holder after nobody had worked on them.

    Milliseconds, summed and at most, from the earliest time at which work may have stopped;
    `at_least`: from the latest one.
    """

    partitions: int = 0
    ms_max: int = 0
    ms_total: int = 0
    ms_max_at_least: int = 0
    ms_total_at_least: int = 0


@dataclass(frozen=True, slots=True)
class PartlyDeclared:
    """Partitions of a topic, first and last, both included, that not all members declare.

    member_ids: the first few of the `member_count` that do.
    """

    topic: str
    first: int
    last: int
    member_ids: tuple[str, ...]
    member_count: int


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """One plan. Durable; applied to the journal alone.

    triggers: the first few of `trigger_count`. called_at_ms: the first event that called for it;
    made_at_ms: when it was made, after its window. counts: partitions by reason of their move, and
    unplaced ones by why. moves: the first 100, of which the partitions of `left_out` are none.
    partly_declared: the first few ranges of partitions that only some members may have.
    refusing_members: those that had refused partitions that they were asked to take, and were not
    to be asked for them again yet.
    What members got again before the plan is in its record; with nothing else there was no plan.
    """

    group_id: str
    triggers: tuple[PlanTrigger, ...]
    trigger_count: int
    called_at_ms: int
    made_at_ms: int
    member_count: int
    partition_count: int
    counts: tuple[tuple[str, int], ...] = ()
    unplaced: tuple[tuple[str, int], ...] = ()
    moves: tuple[PlannedMove, ...] = ()
    left_out: int = 0
    unowned: Unowned = Unowned()
    partly_declared: tuple[PartlyDeclared, ...] = ()
    refusing_members: int = 0

    @property
    def moved(self) -> int:
        """Number of partitions that the plan itself moves."""
        return sum(count for reason, count in self.counts if reason != RETURNED)

    @property
    def is_return(self) -> bool:
        """True if it is only about partitions that went on without a plan."""
        return all(reason == RETURNED for reason, _ in self.counts)
