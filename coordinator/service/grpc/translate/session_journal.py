"""Translation of the journal of a session group to the contract's messages, with explanations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

from coordinator.core.values.events import HandoffJournaled
from coordinator.core.values.ids import NO_TIME
from coordinator.core.values.plan_journal import PlannedMove, PlanRecord, Unowned, WorkStop
from coordinator.core.values.records import PartitionSwitched, PhaseEntered
from coordinator.observe.explain_sessions import explain_handoff, explain_plan, to_of
from coordinator.service.grpc.translate.projections import message_of, projection
from coordinator.v1 import admin_pb2 as pb

_plan = projection(PlanRecord, pb.SessionPlan.DESCRIPTOR, "moves", "moved")
_move = projection(PlannedMove, pb.SessionPlan.Move.DESCRIPTOR)
# Any: arguments of messages with other fields besides.
_NO_PHASES: dict[str, Any] = dict.fromkeys(
    ("join_phase_ms", "sync_phase_ms", "durable_phase_ms"), NO_TIME
)


def plan_message(plan: PlanRecord, handoffs: Sequence[HandoffJournaled] = ()) -> pb.Rebalance:
    """The message of a plan, with its explanation.

    Args:
        handoffs: those that it has led to, and that have ended.
    """
    return message_of(
        pb.Rebalance,
        plan,
        *("moves", "moved"),
        **_NO_PHASES,
        cause="return" if plan.is_return else "plan",
        cause_code="session_return" if plan.is_return else "session_plan",
        members=plan.member_count,
        outcome="completed",
        partitions_moved=plan.moved,
        explanation=explain_plan(plan, handoffs),
        session_plan={
            **_plan(plan),
            "partitions": plan.partition_count,
            "moved": [{"reason": why, "partitions": count} for why, count in plan.counts],
            "moves": [
                _move(move) | _idle_time(move.stop, move.resumed_by(plan.made_at_ms))
                for move in plan.moves
            ],
        },
        **{f"unowned_{field.name}": getattr(plan.unowned, field.name) for field in fields(Unowned)},
    )


def handoff_message(event: HandoffJournaled) -> pb.SessionHandoff:
    """The message of a hand-off that has ended, with its explanation."""
    record, line = event.record, event.record.line
    assert line is not None
    return message_of(
        pb.SessionHandoff,
        line,
        topic=record.topic,
        partition=record.partition,
        to_member_id=to_of(event),
        explanation=explain_handoff(event),
        **_idle_time(line.stop, line.ended_at_ms),
    )


def watched_handoff(event: HandoffJournaled) -> pb.Rebalance:
    """A hand-off as an item of a watch."""
    handoff = handoff_message(event)
    return pb.Rebalance(
        group_id=event.group_id,
        cause="hand-off",
        cause_code="session_handoff",
        started_at_ms=handoff.opened_at_ms,
        ended_at_ms=handoff.ended_at_ms,
        **_NO_PHASES,
        outcome=handoff.outcome,
        partitions_moved=int(handoff.from_member_id != handoff.to_member_id),
        explanation=[handoff.explanation],
        session_handoff=handoff,
    )


def journal(
    group_id: str,
    plans: Sequence[PlanRecord],
    ended: Sequence[PartitionSwitched | PhaseEntered],
    limit: int,
) -> Iterator[pb.Rebalance | pb.SessionHandoff]:
    """Messages of plans and of the hand-offs that they led to, the newest first."""
    handoffs = [HandoffJournaled(group_id, record) for record in ended if record.line is not None]
    newer: PlanRecord | None = None
    for plan in plans[: limit or None]:
        its = [e for e in handoffs if _is_since(e, plan) and not (newer and _is_since(e, newer))]
        newer = plan
        yield plan_message(plan, its)
    for event in handoffs:
        if not limit or newer is None or _is_since(event, newer):
            yield handoff_message(event)


def _is_since(event: HandoffJournaled, plan: PlanRecord) -> bool:
    """True if a plan, or a newer one, led to a hand-off.

    One without the reason of a plan was opened before the plan that it called for: its holder stood
    still, or an operator evicted it.
    """
    line = event.record.line
    assert line is not None
    return line.opened_at_ms >= (plan.made_at_ms if line.reason else plan.called_at_ms)


def _idle_time(
    stop: WorkStop | None, resumed_at_ms: int
) -> dict[str, Any]:  # Any: numbers, a code.
    if stop is None:
        return {"unowned_ms_min": NO_TIME, "unowned_ms_max": NO_TIME}
    shortest_ms, longest_ms = stop.idle_ms(resumed_at_ms)
    return {
        "unowned_ms_min": shortest_ms,
        "unowned_ms_max": longest_ms,
        "known_by": stop.known_by.value,
    }


def session_message(record: PlanRecord | HandoffJournaled) -> pb.Rebalance:
    """An item of a watch."""
    return plan_message(record) if isinstance(record, PlanRecord) else watched_handoff(record)
