"""Plans and hand-offs of session groups as a timeline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coordinator.observe.session_timeline import PartitionLane, as_text
from coordinator.observe.spelling import partitions_of
from coordinator.operator.admin import Rebalance
from coordinator.operator.session_admin import SessionHandoff


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
