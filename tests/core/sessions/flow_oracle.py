"""The best plan there is, as a flow of least cost by OR-tools.

A process of its own imports this: OR-tools brings a protobuf of its own, and the compiler of
grpcio-tools crashes in a process that has loaded it.
"""

from __future__ import annotations

from ortools.graph.python.min_cost_flow import SimpleMinCostFlow

from coordinator.core.session_values.plans import PlanInput
from tests.core.sessions.plan_states import may_have


def optimum(state: PlanInput) -> tuple[int, int, int]:
    """Sum of squares, moves and partitions without a holder at the optimum."""
    flow, count = SimpleMinCostFlow(), len(state.members)
    places = [(t, p) for t, topic in enumerate(state.topics) for p in range(topic.count)]
    sink, nowhere = count, count + 1
    a_square = len(places) + 1
    never = a_square * (len(places) + 1) ** 2
    arcs: list[tuple[int, bool, int]] = []
    for number, (topic, partition) in enumerate(places):
        node, holder = count + 2 + number, state.topics[topic].at[partition]
        flow.set_node_supply(node, 1)
        for member in range(count):
            if may_have(state, member, topic, partition):
                is_move = holder >= 0 and holder != member
                arc = flow.add_arc_with_capacity_and_unit_cost(node, member, 1, int(is_move))
                arcs.append((arc, is_move, 0))
        flow.add_arc_with_capacity_and_unit_cost(node, nowhere, 1, never + (holder >= 0))
    for member in range(count):
        for unit in range(len(places)):
            square = 2 * unit + 1
            arc = flow.add_arc_with_capacity_and_unit_cost(member, sink, 1, a_square * square)
            arcs.append((arc, False, square))
    last = flow.add_arc_with_capacity_and_unit_cost(nowhere, sink, len(places), 0)
    flow.set_node_supply(sink, -len(places))
    assert flow.solve() == flow.OPTIMAL
    used = [(is_move, square) for arc, is_move, square in arcs if flow.flow(arc)]
    unplaced = flow.flow(last)
    lost = sum(
        flow.flow(arc) and flow.head(arc) == nowhere and flow.unit_cost(arc) > never
        for arc in range(flow.num_arcs())
    )
    return sum(square for _, square in used), sum(m for m, _ in used) + lost, unplaced
