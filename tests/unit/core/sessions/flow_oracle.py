"""Plans beside the best ones there are, which OR-tools finds.

Each partition is a unit of flow that goes to a member that may have it. A unit that leaves its
holder costs 1; a member's units cost more one by one, so that loads are balanced first, and one
that goes to nobody costs most of all. Partitions with an open hand-off, and kept ones, do not move.

Plans by weight are beside the best ones of a solver for integers (CP-SAT), in small groups.

    python -m tests.unit.core.sessions.flow_oracle 10000

compares as many random groups and prints a line for each sort of group, and

    python -m tests.unit.core.sessions.flow_oracle 10000 weights

does so with groups whose partitions have weights. A process of its own
imports this: OR-tools brings a protobuf of its own, and the compiler of grpcio-tools crashes in a
process that has loaded it.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import partial
from math import ceil, floor
from random import Random

from ortools.graph.python.min_cost_flow import SimpleMinCostFlow
from ortools.sat.python import cp_model

from coordinator.core.sessions.plan.allocator import plan
from coordinator.core.values.plans import FREE, RESERVED, PlanInput
from tests.unit.core.sessions.plan_states import (
    SORTS,
    after,
    loads,
    may_have,
    must_go,
    oracle_state,
    weighted_state,
)

Price = Callable[[int, int], int]
"""Cost of a member's n-th partition."""
OUT_OF_BOUNDS = 1_000


@dataclass(slots=True)
class Score:
    """Plans of some groups, compared with the best ones.

    unbalanced: groups whose loads, or partitions without a holder, are not those of the best plan.
    """

    groups: int = 0
    unbalanced: int = 0
    moves: int = 0
    fewest: int = 0


def compare(seeds: Iterable[int]) -> dict[str, Score]:
    """Compare plans of random groups with the best ones, by the sort of the group."""
    scores = {sort: Score() for sort in SORTS}
    for seed in seeds:
        sort = SORTS[seed % len(SORTS)]
        state = oracle_state(Random(seed), sort)
        at = after(state, plan(state))
        counts = loads(state, at)
        shares = _shares(state)
        price: Price = partial(_price, shares)
        unplaced, cost, fewest = optimum(state, price)
        if shares and (cost > _floors(shares) or _are_bounded(state, shares)):
            # Not all can have the floor or the ceiling: the fewest moves to the same loads.
            price = partial(_price_of_loads, counts)
            unplaced, cost, fewest = optimum(state, price)
        ours = sum(
            price(member, unit)
            for member, count in enumerate(counts)
            if _receives(state, member)
            for unit in range(1, count + 1)
        )
        score = scores[sort]
        score.groups += 1
        score.unbalanced += (_unplaced(state, at), ours) != (unplaced, cost)
        score.moves += _moves(state, at)
        score.fewest += fewest
    return scores


def optimum(state: PlanInput, price: Price) -> tuple[int, int, int]:
    """Partitions without a holder, cost of loads, and moves of the best plan."""
    flow, members = SimpleMinCostFlow(), range(len(state.members))
    sink, nowhere = len(members), len(members) + 1
    partitions = [(t, p) for t, topic in enumerate(state.topics) for p in range(topic.count)]
    fixed = _fixed(state)
    free = [
        (topic, partition, holder)
        for topic, partition in partitions
        if (holder := state.topics[topic].at[partition]) != RESERVED
        and not _is_fixed(state, topic, partition, holder)
    ]
    a_cost = len(partitions) + 1
    never = (
        a_cost * (1 + 2 * max(price(m, len(partitions)) for m in members)) * (len(partitions) + 1)
    )
    moves = []
    for node, (topic, partition, holder) in enumerate(free, nowhere + 1):
        flow.set_node_supply(node, 1)
        for member in members:
            if may_have(state, member, topic, partition):
                is_move = holder >= 0 and holder != member
                arc = flow.add_arc_with_capacity_and_unit_cost(node, member, 1, int(is_move))
                moves.append((arc, is_move))
        arc = flow.add_arc_with_capacity_and_unit_cost(node, nowhere, 1, never + (holder >= 0))
        moves.append((arc, holder >= 0))
    costs = []
    for member in members:
        if not _receives(state, member):
            continue
        most = state.members[member].max_partitions
        for unit in range(fixed[member] + 1, 1 + (len(partitions) if most is None else most)):
            cost = price(member, unit)
            arc = flow.add_arc_with_capacity_and_unit_cost(member, sink, 1, a_cost * cost)
            costs.append((arc, cost))
    last = flow.add_arc_with_capacity_and_unit_cost(nowhere, sink, len(free), 0)
    flow.set_node_supply(sink, -len(free))
    assert flow.solve() == flow.OPTIMAL
    return (
        flow.flow(last),
        sum(flow.flow(arc) * cost for arc, cost in costs)
        + sum(
            price(member, unit)
            for member, count in fixed.items()
            if _receives(state, member)
            for unit in range(1, count + 1)
        ),
        sum(flow.flow(arc) for arc, is_move in moves if is_move),
    )


def _shares(state: PlanInput) -> dict[int, float]:
    """Fair shares by capacity; empty if all capacities are equal.

    What a member keeps anyway, and what it may have at most, are not taken into account.
    """
    members = state.members
    able = [member for member in range(len(members)) if _receives(state, member)]
    if len({members[member].capacity for member in able}) < 2:
        return {}
    total = sum(
        any(may_have(state, member, number, partition) for member in able)
        if holder == FREE or (holder >= 0 and must_go(state, number, partition, holder))
        else holder in able
        for number, topic in enumerate(state.topics)
        for partition, holder in enumerate(topic.at[: topic.count])
    )
    level = total / sum(members[member].capacity for member in able)
    return {member: level * members[member].capacity for member in able}


def _price(shares: dict[int, float], member: int, unit: int) -> int:
    """Squares of loads if all capacities are equal; else floors and ceilings of fair shares."""
    if not shares:
        return 2 * unit - 1
    share = shares.get(member, 0)
    if unit <= floor(share + 1e-9):
        return -OUT_OF_BOUNDS
    return 0 if unit <= ceil(share - 1e-9) else OUT_OF_BOUNDS


def _floors(shares: dict[int, float]) -> int:
    """Cost of loads that are within floor and ceiling of all shares."""
    return -OUT_OF_BOUNDS * sum(floor(share + 1e-9) for share in shares.values())


def _are_bounded(state: PlanInput, shares: dict[int, float]) -> bool:
    """True if some member keeps more than its share, or may have less."""
    fixed = _fixed(state)
    bounds = ((share, fixed[m], state.members[m].max_partitions) for m, share in shares.items())
    return any(
        least > share or (most is not None and most < share) for share, least, most in bounds
    )


def _price_of_loads(counts: list[int], member: int, unit: int) -> int:
    return int(unit > counts[member])


def _fixed(state: PlanInput) -> Counter[int]:
    """Partitions that do not move, by member."""
    return Counter(
        holder
        for number, topic in enumerate(state.topics)
        for partition, holder in enumerate(topic.at[: topic.count])
        if _is_fixed(state, number, partition, holder)
    )


def _is_fixed(state: PlanInput, topic: int, partition: int, holder: int) -> bool:
    if holder < 0 or must_go(state, topic, partition, holder):
        return False
    return partition in state.topics[topic].moving or not _receives(state, holder)


def _receives(state: PlanInput, member: int) -> bool:
    found = state.members[member]
    return found.receives and not found.leaves and found.capacity > 0


def _unplaced(state: PlanInput, at: list[list[int]]) -> int:
    return sum(
        holder == FREE
        for topic, holders in zip(state.topics, at, strict=True)
        for holder in holders[: topic.count]
    )


def _moves(state: PlanInput, at: list[list[int]]) -> int:
    return sum(
        before >= 0 and before != now
        for topic, holders in zip(state.topics, at, strict=True)
        for before, now in zip(topic.at, holders, strict=True)
    )


# --- Weights ---


@dataclass(slots=True)
class WeightScore:
    """Plans by weight of some groups, compared with the best ones.

    reachable: groups in which all loads can be within their bounds. missed: of these, those in
        which they are not. unnamed: groups whose plan does not name exactly the members above.
    moves, fewest: in groups that are within their bounds.
    """

    groups: int = 0
    reachable: int = 0
    missed: int = 0
    unnamed: int = 0
    moves: int = 0
    fewest: int = 0


def compare_weights(seeds: Iterable[int]) -> dict[str, WeightScore]:
    """Compare plans by weight of random groups with the best ones, by the sort of the group."""
    scores = {sort: WeightScore() for sort in SORTS}
    for seed in seeds:
        sort = SORTS[seed % len(SORTS)]
        state = weighted_state(Random(seed), sort)
        made = plan(state)
        at, score = after(state, made), scores[sort]
        found, bounds = weight_loads(state, at), weight_bounds(state, at)
        above = {member for member, bound in bounds.items() if found[member] > bound}
        fewest = fewest_moves(state, bounds, _unplaced(state, at))
        score.groups += 1
        score.reachable += fewest is not None
        score.missed += bool(above) and fewest is not None
        score.unnamed += {m for obstacle in made.obstacles for m in obstacle.above} != above
        if fewest is not None and not above:
            score.moves += _moves(state, at)
            score.fewest += fewest
    return scores


def weight_loads(state: PlanInput, at: list[list[int]]) -> Counter[int]:
    """Weight of each member's partitions."""
    found: Counter[int] = Counter()
    for number, topic in enumerate(state.topics):
        for partition, holder in enumerate(at[number][: topic.count]):
            found[holder] += int(state.weights[number, partition])
    return found


def weight_bounds(state: PlanInput, at: list[list[int]]) -> dict[int, int]:
    """The greatest load of each member that receives."""
    able = [member for member in range(len(state.members)) if _receives(state, member)]
    weights = [
        int(state.weights[number, partition])
        for number, topic in enumerate(state.topics)
        for partition, holder in enumerate(at[number][: topic.count])
        if holder in able
    ]
    total = sum(Fraction(state.members[member].capacity) for member in able)
    heaviest = max(weights, default=0)
    return {
        member: max(
            floor(
                Fraction(11, 10) * sum(weights) * Fraction(state.members[member].capacity) / total
            ),
            heaviest,
        )
        for member in able
    }


def fewest_moves(state: PlanInput, bounds: dict[int, int], unplaced: int) -> int | None:
    """The fewest moves that bring loads within bounds and leave at most so many without a holder.

    None: none do.
    """
    model, moves = cp_model.CpModel(), []
    loads_of: dict[int, list[cp_model.LinearExpr]] = {member: [] for member in bounds}
    counts: dict[int, list[cp_model.IntVar]] = {member: [] for member in bounds}
    fixed_loads, fixed, free = Counter[int](), _fixed(state), []
    for number, topic in enumerate(state.topics):
        for partition, holder in enumerate(topic.at[: topic.count]):
            weight = int(state.weights[number, partition])
            if holder == RESERVED:
                continue
            if _is_fixed(state, number, partition, holder):
                fixed_loads[holder] += weight
                continue
            choices = []
            for member in bounds:
                if may_have(state, member, number, partition):
                    chosen = model.new_bool_var("")
                    choices.append(chosen)
                    loads_of[member].append(chosen * weight)
                    counts[member].append(chosen)
                    if holder not in (FREE, member):
                        moves.append(chosen)
            if holder == FREE or must_go(state, number, partition, holder):
                choices.append(model.new_bool_var(""))
                free.append(choices[-1])
                if holder != FREE:
                    moves.append(choices[-1])
            model.add_exactly_one(choices)
    for member, bound in bounds.items():
        model.add(sum(loads_of[member]) + fixed_loads[member] <= bound)
        most = state.members[member].max_partitions
        if most is not None:
            model.add(sum(counts[member]) + fixed[member] <= max(most, fixed[member]))
    model.add(sum(free) <= unplaced)
    model.minimize(sum(moves))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    status = solver.solve(model)
    assert status in (cp_model.OPTIMAL, cp_model.INFEASIBLE)
    return round(solver.objective_value) if status == cp_model.OPTIMAL else None


if __name__ == "__main__":
    seeds, by_weight = range(int(sys.argv[1])), sys.argv[2:] == ["weights"]
    found = compare_weights(seeds) if by_weight else compare(seeds)
    columns = [field.name for field in fields(WeightScore if by_weight else Score)]
    print(f"{'groups of':<16}", *(f"{column:>10}" for column in columns), f"{'ratio':>8}")
    for sort, score in found.items():
        values = (f"{getattr(score, column):>10}" for column in columns)
        print(f"{sort:<16}", *values, f"{score.moves / (score.fewest or 1):>8.4f}")
