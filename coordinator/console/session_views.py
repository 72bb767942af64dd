"""Content of a session group's page beside that of any group: hand-offs, members, policy."""

from __future__ import annotations

from typing import Any

from coordinator.observe.explain_sessions import cause_of
from coordinator.observe.spelling import count_of, spell_between
from coordinator.operator.admin import Rebalance
from coordinator.operator.session_admin import SessionGroup, free_of, mode_of, status

View = dict[str, Any]  # Any: JSON.

ROWS = 20
"""Open hand-offs, and members that want attention, that are shown; the oldest come first."""


def session_view(described: SessionGroup) -> View:
    """Open hand-offs, members that are not simply at work, free partitions, chosen settings."""
    names = {m.member_id: m.member_name or m.client_id or m.member_id for m in described.members}
    handoffs = sorted(
        described.handoffs,
        key=lambda handoff: (handoff.opened_at_ms, handoff.topic, handoff.partition),
    )
    members = [m for m in described.members if status(m) != "active"]
    return {
        "handoff_count": len(handoffs),
        "handoffs": [
            {
                "partition": f"{handoff.topic}-{handoff.partition}",
                "from": names.get(handoff.source_member_id, handoff.source_member_id),
                "to": names.get(handoff.successor_member_id, handoff.successor_member_id),
                "phase": handoff.phase,
                "since_ms": handoff.phase_since_ms,
                "ends_ms": handoff.phase_ends_ms,
                "waits_for": names.get(handoff.waits_for, handoff.waits_for),
            }
            for handoff in handoffs[:ROWS]
        ],
        "notable_count": len(members),
        "notable": [
            {
                "member_id": m.member_id,
                "name": names[m.member_id],
                "host": m.client_host.removeprefix("/"),
                "status": status(m),
                "partitions": m.partition_count,
                "last_seen_ms": m.last_seen_ms,
                "lease_ends_ms": m.lease_ends_ms,
            }
            for m in members[:ROWS]
        ],
        "free": free_of(described),
        "reservations": [
            {"name": reservation.member_name, "until_ms": reservation.until_ms}
            for reservation in described.reservations[:ROWS]
        ],
        "lease_ms": described.policy.lease_ms,
        "mode": mode_of(described.policy),
    }


def plan_line(record: Rebalance) -> str:
    """A plan or a return in a line: the first event behind it, what moved, and what that cost."""
    plan = record.session_plan
    why = "somebody was away" if record.cause == "return" else "it was called for"
    if plan.triggers:
        first = plan.triggers[0]
        why = cause_of(first.cause, first.member_id)
    more = plan.trigger_count - 1
    others = f" and {count_of(more, 'more event')}" if more > 0 else ""
    moved = f"{record.partitions_moved} of {count_of(plan.partitions, 'partition')} moved"
    unowned = ""
    if record.unowned_partitions:
        longest = spell_between(record.unowned_ms_max_at_least, record.unowned_ms_max)
        unowned = f"; {record.unowned_partitions} not worked on for {longest}"
    return f"{why}{others}; {moved}{unowned}."
