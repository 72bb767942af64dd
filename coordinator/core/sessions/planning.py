"""State of planning of a session group. All of it is soft: a new owner plans anew."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from coordinator.core.sessions.plan_draft import Draft
from coordinator.core.values.ids import NO_TIME, TopicPartition
from coordinator.core.values.plans import (
    NOBODY,
    Move,
    MoveReason,
    Numbered,
    Partition,
    Range,
    Unplaced,
)


@dataclass(slots=True)
class PlanInProgress:
    """Moves of a plan that are not applied yet; each step applies a slice of them.

    made_at_ms: when the result was there. next_ms: time of the next slice.
    grants: free partitions by member and topic; those that come next are the topics of `receiver`,
        of which it may have `capacity` more.
    is_stale: some of it was out of date, and has to be planned again.
    """

    numbered: Numbered
    made_at_ms: int
    grants: deque[tuple[int, Mapping[int, tuple[Range, ...]]]]
    moves: Iterator[Move]
    unplaced: Iterator[tuple[Partition, Unplaced]]
    receiver: int = NOBODY
    topics: deque[tuple[int, tuple[Range, ...]]] = field(default_factory=deque)
    capacity: int = 0
    found_unplaced: dict[TopicPartition, Unplaced] = field(default_factory=dict)
    draft: Draft = field(default_factory=Draft)
    next_ms: int = NO_TIME
    is_stale: bool = False


@dataclass(slots=True)
class Planning:
    """Plans of one group.

    partitions: number of declared partitions at the last plan. counts: the same, by topic.
    has_grown: members declare partitions that the last plan did not know.
    waiting: moves of the last plan that wait for their turn, by receiver.
    balancing: partitions whose hand-off was opened for balancing, with the member that gets them.
    called_at_ms: the first event that called for the plan that is being made.
    number: of the plan that is computed outside of the shard; `computing`: its input's numbers;
        None: none is. applying: its result, of which a part has been taken.
    awaited: members of the log, some of which have not attached to this owner of the shard; all of
        them have, or have ended, at `all_by_ms`.
    targets: moves of the last plan that have not begun, in its order, with their reasons.
    unplaced: free partitions that nobody could have.
    requested_at_ms: the first event that calls for a plan; urgent_at_ms: the first that is urgent.
    arrived_first_ms, arrived_at_ms: the first and the last arrival since the last plan.
    planned_at_ms: the last plan. restored_at_ms: the group was read from the log, and no plan was
        made since. waits_until_ms: end of the next wait of a partition.
    draft: partitions that went on without a plan, since `returned_at_ms`; the record of the next
        plan has them, or one of their own at `journal_at_ms`.
    last_record_ms: time of the newest record that the owner before has written; NO_TIME: none.
    failures: plans in a row that the planner has failed to make; the next is not made before
        `retry_at_ms`.
    without_partitions: members that have nothing, and wait for the next plan.
    """

    partitions: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    has_grown: bool = False
    waiting: Counter[str] = field(default_factory=Counter)
    balancing: dict[TopicPartition, str] = field(default_factory=dict)
    targets: dict[TopicPartition, tuple[str, MoveReason]] = field(default_factory=dict)
    unplaced: Mapping[TopicPartition, Unplaced] = field(default_factory=dict)
    urgent_at_ms: int = NO_TIME
    requested_at_ms: int = NO_TIME
    arrived_first_ms: int = NO_TIME
    arrived_at_ms: int = NO_TIME
    planned_at_ms: int = NO_TIME
    restored_at_ms: int = NO_TIME
    waits_until_ms: int = NO_TIME
    called_at_ms: int = NO_TIME
    number: int = 0
    computing: Numbered | None = None
    applying: PlanInProgress | None = None
    awaited: list[str] = field(default_factory=list)
    all_by_ms: int = NO_TIME
    draft: Draft = field(default_factory=Draft)
    returned_at_ms: int = NO_TIME
    journal_at_ms: int = NO_TIME
    last_record_ms: int = NO_TIME
    failures: int = 0
    retry_at_ms: int = NO_TIME
    without_partitions: set[str] = field(default_factory=set)

    @property
    def is_busy(self) -> bool:
        """True while a plan is being computed or applied: no other one starts."""
        return self.computing is not None or self.applying is not None

    def take_draft(self) -> Draft:
        """Take the draft of a journal entry about grants without a plan."""
        taken, self.draft, self.journal_at_ms = self.draft, Draft(), NO_TIME
        return taken

    def note_declared(self, topics: tuple[tuple[str, int], ...]) -> None:
        if any(count > self.counts.get(topic, 0) for topic, count in topics):
            self.has_grown = True
