"""Rows of rebalances, from the messages of the contract."""

from __future__ import annotations

from coordinator.cli.rebalance_rows import (
    AdviceRow,
    BarRow,
    Blocking,
    Client,
    Explained,
    LaneRow,
    MoveRow,
    NotWorkedOn,
    ParticipantRow,
    Phases,
    RangeRow,
    RemovedRow,
)
from coordinator.client.codes import code_name
from coordinator.observe.timeline import Bar, lanes, phases, rests
from coordinator.operator.admin import (
    Advice,
    PartitionMove,
    Phase,
    Rebalance,
    RebalanceParticipant,
    RefusedJoin,
    RemovedMember,
)


def explained(rebalance: Rebalance) -> Explained:
    """The row of a rebalance."""
    caused_by = (rebalance.member_id, rebalance.client_id, rebalance.client_host)
    return Explained(
        group=rebalance.group_id,
        generation=rebalance.generation_after,
        generation_before=rebalance.generation_before,
        cause=rebalance.cause,
        cause_code=rebalance.cause_code,
        outcome=rebalance.outcome,
        caused_by=_client(*caused_by) if any(caused_by) else None,
        reason=rebalance.reason or None,
        started_at_ms=rebalance.started_at_ms,
        ended_at_ms=rebalance.ended_at_ms,
        duration_ms=rebalance.ended_at_ms - rebalance.started_at_ms,
        phases_ms=Phases(
            join=_known(rebalance.join_phase_ms),
            sync=_known(rebalance.sync_phase_ms),
            durable=_known(rebalance.durable_phase_ms),
        ),
        protocol=rebalance.protocol or None,
        was_initial=rebalance.was_initial,
        cooperative_round=rebalance.cooperative_round or None,
        partitions_taken_away=rebalance.partitions_taken_away,
        members=rebalance.members,
        participants=tuple(_participant(m, rebalance.leader) for m in rebalance.participants),
        removed=tuple(map(_removed, rebalance.removed)),
        removed_count=rebalance.removed_count,
        partitions_moved=_known(rebalance.partitions_moved),
        not_worked_on=_not_worked_on(rebalance),
        moves=tuple(map(_move, rebalance.moves)),
        partitions_left_out=rebalance.partitions_left_out,
        advice=tuple(map(_advice, rebalance.advice)),
        explanation=tuple(rebalance.explanation),
    )


def refused(group: str, join: RefusedJoin) -> Explained:
    """The row of refused joins of one client."""
    return Explained(
        group=group,
        generation=None,
        generation_before=None,
        cause="join refused",
        cause_code="join_refused",
        outcome=code_name(join.error_code),
        caused_by=_client("", join.client_id, join.client_host),
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

    drawn = (*lanes(rebalance), *rests(rebalance))
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
            last_heard_ms=_known(member.last_heard_ms),
            silent_ms=None if member.last_heard_ms < 0 else max(0, now_ms - member.last_heard_ms),
            is_leader=member.is_leader,
        )
        for member in phase.awaited
    ]


# --- Inside -------------------------------------------------------------------------------------


def _known(number: int) -> int | None:
    return None if number < 0 else number


def _client(member_id: str, client_id: str, host: str = "") -> Client:
    return Client(member_id=member_id or None, client_id=client_id or None, host=host or None)


def _participant(member: RebalanceParticipant, leader: str) -> ParticipantRow:
    return ParticipantRow(
        member_id=member.member_id,
        client_id=member.client_id or None,
        host=member.client_host or None,
        is_new=member.is_new,
        is_leader=member.member_id == leader,
        joined_at_ms=member.joined_at_ms,
        synced_at_ms=_known(member.synced_at_ms),
        session_timeout_ms=_known(member.session_timeout_ms),
        client_software=member.client_software or None,
    )


def _removed(member: RemovedMember) -> RemovedRow:
    return RemovedRow(
        member_id=member.member_id,
        client_id=member.client_id or None,
        host=member.client_host or None,
        code=member.code,
        cause=member.cause,
        removed_at_ms=member.removed_at_ms or None,
        last_heard_ms=_known(member.last_heard_ms) or None,
        heartbeat_interval_ms=_known(member.heartbeat_interval_ms) or None,
        client_software=member.client_software or None,
    )


def _not_worked_on(rebalance: Rebalance) -> NotWorkedOn | None:
    if rebalance.partitions_moved < 0:
        return None
    is_counted = bool(rebalance.counted_from)
    return NotWorkedOn(
        partitions=rebalance.unowned_partitions,
        counted_from=rebalance.counted_from or None,
        longest_ms_min=rebalance.unowned_ms_max_at_least if is_counted else None,
        longest_ms_max=rebalance.unowned_ms_max,
        total_ms_min=rebalance.unowned_ms_total_at_least if is_counted else None,
        total_ms_max=rebalance.unowned_ms_total,
    )


def _move(move: PartitionMove) -> MoveRow:
    return MoveRow(
        topic=move.topic,
        partitions=tuple(RangeRow(first=some.first, last=some.last) for some in move.partitions),
        partition_count=move.partition_count,
        from_member=_client(move.from_member_id, move.from_client_id),
        to_member=_client(move.to_member_id, move.to_client_id),
        has_moved=move.has_moved,
        not_worked_on_ms_min=move.unowned_ms_min,
        not_worked_on_ms_max=_known(move.unowned_ms_max),
        stopped_earliest_ms=_known(move.stopped_earliest_ms),
        stopped_latest_ms=_known(move.stopped_latest_ms),
        resumed_at_ms=move.resumed_at_ms,
        is_fetched=move.is_fetched,
        known_by=move.known_by,
    )


def _advice(advice: Advice) -> AdviceRow:
    return AdviceRow(
        code=advice.code,
        text=advice.text,
        client_id=advice.client_id or None,
        duration_ms=advice.duration_ms or None,
        count=advice.count or None,
    )
