"""The memory of the journal about one classic group. The rules keep it and never look inside.

Soft state: after a fail-over the journal begins anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.events import MemberJoined, RebalanceStarted, RefusedJoin
from coordinator.core.values.ids import NO_TIME, TopicPartition
from coordinator.core.values.rebalance_journal import RemovedMember, StopKnownBy, is_outage
from coordinator.core.values.records import GroupMetadata, MemberRecord


@dataclass(slots=True, eq=False)
class ClassicIdleSpan:
    """A partition that nobody works on. `owner` is the last owner's instance id or member id.

    It stopped between `earliest_ms` (-1: unknown) and `latest_ms` (-1: it may still work).
    """

    owner: str
    member_id: str
    client_id: str
    earliest_ms: int
    latest_ms: int
    known_by: StopKnownBy
    resumed_ms: int = NO_TIME
    """Time at which work on it resumed; -1: with the assignment that ends the span."""

    @property
    def is_open(self) -> bool:
        """True while the owner may still work on it."""
        return self.latest_ms == NO_TIME


@dataclass(slots=True, eq=False)
class IdleSpans:
    """All idle spans of a group. `round`: of the cooperative rebalance they are part of, or 0."""

    of: dict[TopicPartition, ClassicIdleSpan] = field(default_factory=dict)
    round: int = 0

    @property
    def are_being_given_back(self) -> bool:
        """True if a cooperative rebalance took some away that their owners still have to give back.

        The next round hands those out. One that was given back before, and is not handed out then,
        may have no reader any more.
        """
        return any(idle_span.is_open for idle_span in self.of.values())


@dataclass(slots=True, eq=False)
class FailOver:
    """A node's take-over of a group: when, the time of the newest record in its log then, the
    longest session timeout of its members, those that have not been seen since, those that have
    been seen and will have committed what waited by their second heartbeat, what of these was idle,
    the commits that have waited (since when, and until when), and whether the store had lost
    commits."""

    at_ms: int
    newest_record_ms: int
    session_ms: int
    unseen: dict[str, MemberRecord] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    idle_spans: dict[TopicPartition, ClassicIdleSpan] = field(default_factory=dict)
    waited: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    store_went_back: bool = False

    @property
    def is_outage(self) -> bool:
        """True if the group had no coordinator for so long that the journal has it."""
        return is_outage(self.at_ms - self.newest_record_ms)

    def note_waits(self, waits: Iterable[tuple[TopicPartition, int]], now_ms: int) -> None:
        """Note how long commits had no answer: their owner has done nothing else meanwhile."""
        if self.unseen or self.seen:
            for partition, waited_ms in waits:
                self.waited.setdefault(partition, (now_ms - waited_ms, now_ms))


@dataclass(slots=True, eq=False)
class Trace:
    """A running rebalance. Epoch milliseconds; -1: not reached.

    `synced_at_ms`: the leader's SyncGroup. `reported_at_ms`: when the answer to a heartbeat first
    told a member of the rebalance. `round`: number of the round of a cooperative rebalance, if it
    hands out what another one took.
    `stored` and `held` are what members held before it: records that nobody has asked for yet, and
    their partitions. `taken_over`: the outage before it, if there was one.
    """

    started: RebalanceStarted
    started_at_ms: int
    was_initial: bool
    before: GroupMetadata | None
    round: int
    protocol: str = ""
    joined: dict[str, tuple[MemberJoined, int]] = field(default_factory=dict)
    joined_at_ms: int = NO_TIME
    synced: dict[str, int] = field(default_factory=dict)
    synced_at_ms: int = NO_TIME
    removed: list[RemovedMember] = field(default_factory=list)
    reported_at_ms: dict[str, int] = field(default_factory=dict)
    stored: dict[str, MemberRecord] = field(default_factory=dict)
    held: dict[str, dict[TopicPartition, ClassicIdleSpan]] = field(default_factory=dict)
    taken_over: FailOver | None = None

    @classmethod
    def begin(
        cls,
        started: RebalanceStarted,
        now_ms: int,
        *,
        was_initial: bool,
        before: GroupMetadata | None,
        idle_spans: IdleSpans,
    ) -> Trace:
        """Begin to follow a rebalance of a group, with the idle spans that others have left."""
        round_before = idle_spans.round
        trace = cls(started, now_ms, was_initial, before, round_before + 1 if round_before else 0)
        for member in before.members if before is not None else ():
            trace.stored[member.member_id] = member
        for partition, idle_span in idle_spans.of.items():
            trace.held.setdefault(idle_span.member_id, {})[partition] = idle_span
        return trace


@dataclass(slots=True, eq=False)
class Account:
    """The running rebalance, the partitions that nobody works on, the last outage until members
    have had a session to be seen, and recent refused joins, the newest last."""

    trace: Trace | None = None
    idle_spans: IdleSpans = field(default_factory=IdleSpans)
    taken_over: FailOver | None = None
    refused_joins: dict[tuple[str, str, ErrorCode], RefusedJoin] | None = None

    @property
    def is_empty(self) -> bool:
        known = self.trace, self.taken_over, self.refused_joins
        return not self.idle_spans.of and all(part is None for part in known)
