"""Rows of rebalances, from the messages of the contract."""

from __future__ import annotations

from coordinator.client.codes import code_name
from coordinator.observe.journal_rows import BarRow, Blocking, Client, Explained, LaneRow
from coordinator.observe.timeline import Bar, idle_lanes, lanes, phases
from coordinator.operator.admin import Phase, Rebalance, RefusedJoin


def refused(group: str, join: RefusedJoin) -> Explained:
    """The row of refused joins of one client."""
    return Explained(
        group=group,
        generation=None,
        generation_before=None,
        cause="join refused",
        cause_code="join_refused",
        outcome=code_name(join.error_code),
        caused_by=Client(
            member_id=None, client_id=join.client_id or None, host=join.client_host or None
        ),
        reason=None,
        started_at_ms=join.first_at_ms,
        ended_at_ms=join.last_at_ms,
        duration_ms=join.last_at_ms - join.first_at_ms,
        phases_ms=None,
        protocol=None,
        was_initial=False,
        cooperative_round=None,
        partitions_taken_away=None,
        members=None,
        participants=(),
        removed=(),
        removed_count=0,
        partitions_moved=None,
        not_worked_on=None,
        moves=(),
        partitions_left_out=0,
        advice=(),
        explanation=(join.explanation,),
    )


def lane_rows(rebalance: Rebalance) -> list[LaneRow]:
    """The lanes of a timeline, the phases first."""

    def row(name: str, bars: tuple[Bar, ...], note: str = "") -> LaneRow:
        return LaneRow(
            group=rebalance.group_id,
            generation=rebalance.generation_after,
            name=name,
            bars=tuple(
                BarRow(kind=bar.kind, begin_ms=bar.begin_ms, end_ms=bar.end_ms) for bar in bars
            ),
            note=note or None,
        )

    drawn = (*lanes(rebalance), *idle_lanes(rebalance))
    return [
        row("phases", phases(rebalance)),
        *(row(lane.name, lane.bars, lane.note) for lane in drawn),
    ]


def blocking(group: str, phase: Phase, now_ms: int) -> list[Blocking]:
    """The members that a group waits for."""
    return [
        Blocking(
            group=group,
            state=phase.group_state,
            waits_ms=max(0, now_ms - phase.since_ms),
            phase_ends_at_ms=phase.deadline_ms,
            client_id=member.client_id or None,
            host=member.client_host or None,
            consumer_id=member.member_id,
            last_seen_ms=_known(member.last_seen_ms),
            silent_ms=None if member.last_seen_ms < 0 else max(0, now_ms - member.last_seen_ms),
            is_leader=member.is_leader,
        )
        for member in phase.awaited
    ]


def _known(number: int) -> int | None:
    return None if number < 0 else number
