"""Translation of a journaled rebalance to the contract's message, with its explanation."""

from __future__ import annotations

from collections.abc import Sequence

from coordinator.core.classic.journal import COMPLETED
from coordinator.core.events import RefusedJoin
from coordinator.core.ids import NO_TIME
from coordinator.core.records import PartitionMove, RebalanceRecord, RemovedMember
from coordinator.observe.advice import new_advice
from coordinator.observe.explain import cause_code, explain, explain_refusal, removal_code
from coordinator.v1 import admin_pb2, errors_pb2


def rebalance_message(
    record: RebalanceRecord, before: Sequence[RebalanceRecord]
) -> admin_pb2.Rebalance:
    """Make the message of a rebalance, with its explanation.

    Args:
        before: the group's earlier rebalances, newest first.
    """

    def phase(begin_ms: int, end_ms: int) -> int:
        return end_ms - begin_ms if begin_ms >= 0 and end_ms >= 0 else NO_TIME

    is_durable = record.outcome == COMPLETED
    return admin_pb2.Rebalance(
        group_id=record.group_id,
        cause=record.cause,
        member_id=record.member_id,
        client_id=record.client_id,
        client_host=record.client_host,
        reason=record.reason,
        generation_before=record.generation_before,
        generation_after=record.generation_after,
        started_at_ms=record.started_at_ms,
        join_phase_ms=phase(record.started_at_ms, record.joined_at_ms),
        sync_phase_ms=phase(record.joined_at_ms, record.synced_at_ms),
        durable_phase_ms=phase(record.synced_at_ms, record.ended_at_ms if is_durable else NO_TIME),
        members=record.member_count,
        outcome=record.outcome,
        protocol=record.protocol,
        was_initial=record.was_initial,
        ended_at_ms=record.ended_at_ms,
        leader=record.leader,
        participants=[
            admin_pb2.RebalanceParticipant(
                member_id=m.member_id,
                client_id=m.client_id,
                client_host=m.client_host,
                is_new=m.is_new,
                session_timeout_ms=m.session_timeout_ms,
                joined_at_ms=m.joined_at_ms,
                synced_at_ms=m.synced_at_ms,
                client_software=m.client_software,
            )
            for m in record.members
        ],
        removed=[_removed(member) for member in record.removed],
        partitions_moved=record.partitions_moved,
        unowned_partitions=record.unowned_partitions,
        unowned_ms_max=record.unowned_ms_max,
        unowned_ms_total=record.unowned_ms_total,
        explanation=explain(record, before),
        cause_code=cause_code(record),
        counted_from=record.counted_from,
        unowned_ms_max_at_least=record.unowned_ms_max_at_least,
        unowned_ms_total_at_least=record.unowned_ms_total_at_least,
        moves=[_move(move) for move in record.moves],
        partitions_left_out=record.partitions_left_out,
        cooperative_round=record.cooperative_round,
        partitions_taken_away=record.partitions_taken_away,
        removed_count=record.removed_count or len(record.removed),
        advice=[
            admin_pb2.Advice(
                code=advice.code.value,
                text=advice.text,
                client_id=advice.client_id,
                duration_ms=advice.duration_ms,
                count=advice.count,
            )
            for advice in new_advice(record, before)
        ],
    )


def _removed(member: RemovedMember) -> admin_pb2.RemovedMember:
    return admin_pb2.RemovedMember(
        member_id=member.member_id,
        client_id=member.client_id,
        client_host=member.client_host,
        cause=member.cause,
        code=removal_code(member),
        removed_at_ms=member.removed_at_ms,
        last_heard_ms=member.last_heard_ms,
        heartbeat_interval_ms=member.heartbeat_interval_ms,
        client_software=member.client_software,
    )


def _move(move: PartitionMove) -> admin_pb2.PartitionMove:
    return admin_pb2.PartitionMove(
        topic=move.topic,
        partitions=[
            admin_pb2.PartitionMove.Range(first=some.first, last=some.last)
            for some in move.partitions
        ],
        partition_count=move.partition_count,
        from_member_id=move.from_member_id,
        from_client_id=move.from_client_id,
        to_member_id=move.to_member_id,
        to_client_id=move.to_client_id,
        has_moved=move.has_moved,
        stopped_earliest_ms=move.stopped_earliest_ms,
        stopped_latest_ms=move.stopped_latest_ms,
        resumed_at_ms=move.resumed_at_ms,
        is_fetched=move.is_fetched,
        unowned_ms_min=move.unowned_ms_min,
        unowned_ms_max=move.unowned_ms_max,
        known_by=move.known_by,
    )


def refused_join_message(refused: RefusedJoin) -> admin_pb2.RefusedJoin:
    """Make the message of a refused client, with its explanation."""
    return admin_pb2.RefusedJoin(
        client_id=refused.client_id,
        client_host=refused.client_host,
        error_code=errors_pb2.ErrorCode.ValueType(refused.error),
        protocols=refused.protocols,
        needed_protocols=refused.needed,
        count=refused.count,
        first_at_ms=refused.first_at_ms,
        last_at_ms=refused.last_at_ms,
        explanation=explain_refusal(refused),
    )
