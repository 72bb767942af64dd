"""The planner: who should hold which partition. A pure function of values.

    hard rules ──► what has to go, what has no holder ──► place ──► balance ──► Plan

1. Hard rules: a partition that its holder may not keep has to go; all others stay.
2. Quotas: each member that receives may hold the floor or the ceiling of its fair share, by
   capacity. Members that hold more than the floor already have the ceilings first, so that the
   fewest partitions move.
3. Members above their quota give partitions away; these and the orphans fill the others.

That is exact while all members that receive may have the same partitions (`even`). Else partitions
are placed one by one, and then moved along paths of members while the sum of squared loads falls
(`uneven`).

Partitions are numbered by their topic's and their own number, members by their position: what a
plan says depends on names and states, never on the order of its input.
"""

from __future__ import annotations

from coordinator.core.session_values.plans import Plan, PlanInput
from coordinator.core.sessions.balance import even
from coordinator.core.sessions.hard_rules import after_hard_rules
from coordinator.core.sessions.uneven import uneven


def plan(state: PlanInput) -> Plan:
    """Return the moves to a balanced assignment; none if it is balanced and allowed already."""
    work = after_hard_rules(state)
    return (even if work.is_even() else uneven)(work)
