"""Translation of a journaled rebalance to the contract's message, with its explanation."""

from __future__ import annotations

from collections.abc import Sequence

from coordinator.core.classic.journal import COMPLETED
from coordinator.core.events import RefusedJoin
from coordinator.core.ids import NO_TIME
from coordinator.core.records import RebalanceRecord
from coordinator.observe.explain import explain, explain_refusal
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
            )
            for m in record.members
        ],
        removed=[
            admin_pb2.RemovedMember(
                member_id=m.member_id,
                client_id=m.client_id,
                client_host=m.client_host,
                cause=m.cause,
            )
            for m in record.removed
        ],
        partitions_moved=record.partitions_moved,
        unowned_partitions=record.unowned_partitions,
        unowned_ms_max=record.unowned_ms_max,
        unowned_ms_total=record.unowned_ms_total,
        explanation=explain(record, before),
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
