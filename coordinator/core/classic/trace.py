"""The progress of a running rebalance, from which the journal's record is made."""

from __future__ import annotations

from dataclasses import dataclass, field

from coordinator.core.classic.idle_spans import ClassicIdleSpan, FailOver, IdleSpans
from coordinator.core.values.events import MemberJoined, RebalanceStarted
from coordinator.core.values.ids import NO_TIME, TopicPartition
from coordinator.core.values.rebalance_journal import RemovedMember
from coordinator.core.values.records import GroupMetadata, MemberRecord


@dataclass(slots=True, eq=False)
class Trace:
    """A running rebalance. Epoch milliseconds; -1: not reached.

    `synced_at_ms`: the leader's SyncGroup. `told`: when members heard of the rebalance by a
    heartbeat.
    `round`: number of the round of a cooperative rebalance, if it hands out what another one took.
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
        idle_spans: IdleSpans | None,
    ) -> Trace:
        """Begin to follow a rebalance of a group, with the idle spans that others have left."""
        round_before = idle_spans.round if idle_spans is not None else 0
        trace = cls(started, now_ms, was_initial, before, round_before + 1 if round_before else 0)
        for member in before.members if before is not None else ():
            trace.stored[member.member_id] = member
        for partition, idle_span in idle_spans.of.items() if idle_spans is not None else ():
            trace.held.setdefault(idle_span.member_id, {})[partition] = idle_span
        return trace
