"""Plans and hand-offs of session groups as rows, and as a timeline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coordinator.cli.rebalance_rows import (
    ExplainedPlan,
    HandoffLineRow,
    NotWorkedOn,
    PlanMoveRow,
    PlanTriggerRow,
    RangeRow,
)
from coordinator.observe.session_timeline import PartitionLane, as_text
from coordinator.observe.spelling import partitions_of
from coordinator.operator.admin import Rebalance
from coordinator.operator.session_admin import SessionHandoff

__all__ = ["handoff_row", "plan_row", "timeline"]


def plan_row(told: Rebalance) -> ExplainedPlan:
    """The row of a plan."""
    plan = told.session_plan
    rested = None
    if told.unowned_partitions:
        rested = NotWorkedOn(
            partitions=told.unowned_partitions,
            counted_from=told.counted_from or None,
            longest_ms_min=told.unowned_ms_max_at_least,
            longest_ms_max=told.unowned_ms_max,
            total_ms_min=told.unowned_ms_total_at_least,
            total_ms_max=told.unowned_ms_total,
        )
    return ExplainedPlan(
        group=told.group_id,
        called_at_ms=told.started_at_ms,
        made_at_ms=told.ended_at_ms,
        window_ms=max(0, told.ended_at_ms - told.started_at_ms),
        triggers=tuple(
            PlanTriggerRow(cause=each.cause, member_id=each.member_id or None)
            for each in plan.triggers
        ),
        trigger_count=plan.trigger_count,
        members=told.members,
        partitions=plan.partitions,
        partitions_moved=told.partitions_moved,
        moved_by_reason={each.reason: each.partitions for each in plan.moved},
        unplaced_by_reason={each.reason: each.partitions for each in plan.unplaced},
        not_worked_on=rested,
        moves=tuple(
            PlanMoveRow(
                topic=move.topic,
                partitions=tuple(RangeRow(first=r.first, last=r.last) for r in move.partitions),
                from_member_id=move.from_member_id or None,
                to_member_id=move.to_member_id or None,
                reason=move.reason,
                not_worked_on_ms_min=_known(move.unowned_ms_min),
                not_worked_on_ms_max=_known(move.unowned_ms_max),
                known_by=move.known_by or None,
            )
            for move in plan.moves
        ),
        partitions_left_out=told.partitions_left_out,
        explanation=tuple(told.explanation),
    )


def handoff_row(group: str, it: SessionHandoff) -> HandoffLineRow:
    """The row of a hand-off."""
    return HandoffLineRow(
        group=group,
        topic=it.topic,
        partition=it.partition,
        from_member_id=it.from_member_id,
        to_member_id=it.to_member_id or None,
        mode=it.mode,
        reason=it.reason or None,
        outcome=it.outcome,
        opened_at_ms=it.opened_at_ms,
        prepared_at_ms=_known(it.prepared_at_ms),
        drain_at_ms=_known(it.drain_at_ms),
        forced_at_ms=_known(it.forced_at_ms),
        released_at_ms=_known(it.released_at_ms),
        ended_at_ms=it.ended_at_ms,
        duration_ms=max(0, it.ended_at_ms - it.opened_at_ms),
        position=_known(it.position),
        start_offset=_known(it.start_offset),
        not_worked_on_ms_min=_known(it.unowned_ms_min),
        not_worked_on_ms_max=_known(it.unowned_ms_max),
        explanation=it.explanation,
    )


def timeline(
    group: str, handoffs: Sequence[SessionHandoff], plans: Sequence[Rebalance]
) -> str | None:
    """Hand-offs as text, a lane each, the first that was opened on top, after what rested before
    plans; None: there is neither."""
    lanes = [*_rests(plans)]
    lanes += [
        PartitionLane(
            f"{it.topic}-{it.partition}",
            it.from_member_id,
            it.to_member_id,
            it.mode,
            it.opened_at_ms,
            it.drain_at_ms,
            it.forced_at_ms,
            it.released_at_ms,
            it.ended_at_ms,
        )
        for it in sorted(handoffs, key=lambda it: (it.opened_at_ms, it.topic, it.partition))
    ]
    return as_text(group, lanes) if lanes else None


def _rests(plans: Sequence[Rebalance]) -> Iterator[PartitionLane]:
    """Lanes of partitions on which nobody worked, the longest time that is known of each."""
    for plan in plans:
        ended_ms = plan.ended_at_ms
        for move in plan.session_plan.moves:
            rested_ms = max(move.unowned_ms_min, move.unowned_ms_max)
            if rested_ms > 0:
                count = sum(some.last - some.first + 1 for some in move.partitions)
                yield PartitionLane(
                    partitions_of(move.topic, move.partitions, count),
                    move.from_member_id,
                    move.to_member_id,
                    "rest",
                    ended_ms - rested_ms,
                    *(-1, -1, -1),
                    ended_ms,
                )


def _known(value: int) -> int | None:
    return None if value < 0 else value
