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
    """Hand-offs as text, a lane each, the first that was opened on top, after what was idle before
    plans; None: there is neither."""
    lanes = [*_idle_lanes(plans)]
    lanes += [
        PartitionLane(
            f"{move.topic}-{move.partition}",
            move.from_member_id,
            move.to_member_id,
            move.mode,
            move.opened_at_ms,
            move.drain_at_ms,
            move.forced_at_ms,
            move.released_at_ms,
            move.ended_at_ms,
        )
        for move in sorted(
            handoffs,
            key=lambda one_move: (one_move.opened_at_ms, one_move.topic, one_move.partition),
        )
    ]
    return as_text(group, lanes) if lanes else None


def _idle_lanes(plans: Sequence[Rebalance]) -> Iterator[PartitionLane]:
    """Lanes of partitions on which nobody worked, the longest time that is known of each."""
    for plan in plans:
        ended_ms = plan.ended_at_ms
        for move in plan.session_plan.moves:
            idle_ms = max(move.unowned_ms_min, move.unowned_ms_max)
            if idle_ms > 0:
                count = sum(some.last - some.first + 1 for some in move.partitions)
                yield PartitionLane(
                    partitions_of(move.topic, move.partitions, count),
                    move.from_member_id,
                    move.to_member_id,
                    "idle",
                    ended_ms - idle_ms,
                    *(-1, -1, -1),
                    ended_ms,
                )
