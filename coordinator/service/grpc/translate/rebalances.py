"""Translation of a journaled rebalance to the contract's message, with its explanation."""

from __future__ import annotations

from collections.abc import Sequence

from coordinator.core.journal.rebalances import COMPLETED
from coordinator.core.values.events import RefusedJoin
from coordinator.core.values.ids import NO_TIME
from coordinator.core.values.rebalance_journal import RebalanceRecord
from coordinator.observe.advice import new_advice
from coordinator.observe.explain import cause_code, explain, explain_refusal
from coordinator.service.grpc.translate.projections import message_of
from coordinator.v1 import admin_pb2


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
    return message_of(
        admin_pb2.Rebalance,
        record,
        "removed",
        join_phase_ms=phase(record.started_at_ms, record.joined_at_ms),
        sync_phase_ms=phase(record.joined_at_ms, record.synced_at_ms),
        durable_phase_ms=phase(record.synced_at_ms, record.ended_at_ms if is_durable else NO_TIME),
        removed=[message_of(admin_pb2.RemovedMember, member) for member in record.removed],
        removed_count=record.removed_count or len(record.removed),
        explanation=explain(record, before),
        cause_code=cause_code(record),
        advice=[message_of(admin_pb2.Advice, advice) for advice in new_advice(record, before)],
    )


def refused_join_message(refused: RefusedJoin) -> admin_pb2.RefusedJoin:
    """Make the message of a refused client, with its explanation."""
    return message_of(admin_pb2.RefusedJoin, refused, explanation=explain_refusal(refused))
