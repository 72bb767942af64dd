"""The planner, beside an oracle that tries every assignment of small groups."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings

from coordinator.core.sessions.plan.allocator import plan
from coordinator.core.values.plans import (
    FREE,
    NOBODY,
    RESERVED,
    MoveReason,
    Obstacle,
    Plan,
    PlanInput,
    PlanMember,
    PlanTopic,
    Unplaced,
)
from tests.unit.core.sessions.plan_states import NAMES, after, flat, loads, may_have, states


def group(members: int, *topics: PlanTopic, **of_members: object) -> PlanInput:
    """Equal members that declare all partitions of all topics."""
    counts = tuple(topic.count for topic in topics)
    made = tuple(PlanMember(NAMES[n], counts, **of_members) for n in range(members))  # type: ignore[arg-type]
    return PlanInput(made, topics)


def free(count: int, name: str = "t") -> PlanTopic:
    return PlanTopic(name, count, [FREE] * count)


def test_one_member_gets_all_and_a_second_one_half() -> None:
    alone = group(1, free(4))
    assert after(alone, plan(alone)) == [[0, 0, 0, 0]]
    two = group(2, PlanTopic("t", 4, [0, 0, 0, 0]))
    made = plan(two)
    assert [move.reason for move in made.moves] == [MoveReason.BALANCE] * 2
    assert loads(two, after(two, made)) == [2, 2]


def test_a_third_member_takes_one_from_each() -> None:
    three = group(3, PlanTopic("t", 6, [0, 0, 0, 1, 1, 1]))
    made = plan(three)
    assert sorted(move.source for move in made.moves) == [0, 1]
    assert {move.target for move in made.moves} == {2}


def test_the_order_of_the_input_changes_nothing() -> None:
    def named(order: list[int]) -> set[tuple[int, str]]:
        members = tuple(PlanMember(NAMES[n], (7,)) for n in order)
        state = PlanInput(members, (PlanTopic("t", 7, [FREE] * 7),))
        return {
            (partition, members[member].name)
            for member, by_topic in plan(state).grants.items()
            for partition in flat(by_topic[0])
        }

    assert named([0, 1, 2]) == named([2, 1, 0]) == named([1, 2, 0])


@pytest.mark.parametrize("topics", [1, 10])
def test_of_many_members_one_that_comes_or_goes_moves_what_is_necessary(topics: int) -> None:
    count = 50_000 // topics
    members = tuple(PlanMember(f"w-{n}", (count,) * topics) for n in range(1_001))
    at = [[p % 1_000 for p in range(count)] for _ in range(topics)]
    named = tuple(PlanTopic(f"t-{n}", count, holders) for n, holders in enumerate(at))
    joined = plan(PlanInput(members, named))
    assert len(joined.moves) == 49
    assert {move.target for move in joined.moves} == {1_000}
    assert not joined.grants
    left = [[FREE if holder == 999 else holder for holder in holders] for holders in at]
    named = tuple(PlanTopic(f"t-{n}", count, holders) for n, holders in enumerate(left))
    gone = plan(PlanInput(members[:999], named))
    assert not gone.moves
    assert sum(len(flat(p)) for by_topic in gone.grants.values() for p in by_topic.values()) == 50


def test_topics_are_spread_each_for_itself() -> None:
    state = group(2, free(4, "busy"), free(4, "idle"))
    assert all(sorted(holders) == [0, 0, 1, 1] for holders in after(state, plan(state)))


def test_capacity_nought_keeps_and_receives_nothing() -> None:
    members = (PlanMember("w-a", (8,)), PlanMember("w-b", (8,), capacity=0))
    state = PlanInput(members, (PlanTopic("t", 8, [1, 1] + [FREE] * 6),))
    made = plan(state)
    assert not made.moves
    assert loads(state, after(state, made)) == [6, 2]


def test_without_capacity_nothing_is_placed() -> None:
    state = group(2, free(3), capacity=0)
    made = plan(state)
    assert made.unplaced == dict.fromkeys([(0, 0), (0, 1), (0, 2)], Unplaced.NOBODY_RECEIVES)
    assert not made.grants
    assert not made.moves


def test_capacities_are_relative() -> None:
    members = (PlanMember("w-a", (9,), capacity=2), PlanMember("w-b", (9,)))
    state = PlanInput(members, (free(9),))
    assert loads(state, after(state, plan(state))) == [6, 3]


def test_partitions_that_nobody_declares_any_more_go_to_nobody() -> None:
    at = [0] * 6 + [1] * 6 + [1]
    state = group(2, PlanTopic("t", 12, at))
    made = plan(state)
    assert made.moves == ((0, 12, 1, NOBODY, MoveReason.NO_LONGER_DECLARED),)


def test_a_holder_that_declares_less_gives_the_rest_away() -> None:
    members = (PlanMember("w-a", (2,)), PlanMember("w-b", (4,)))
    state = PlanInput(members, (PlanTopic("t", 4, [0, 1, 1, 0]),))
    made = plan(state)
    assert (0, 3, 0, 1, MoveReason.NO_LONGER_DECLARED) in made.moves
    assert loads(state, after(state, made)) == [2, 2]


def weighted(members: int, at: list[int], *weights: float) -> PlanInput:
    """Equal members, and a topic of partitions of these weights."""
    state = group(members, PlanTopic("t", len(at), at))
    return replace(state, weights={(0, p): weight for p, weight in enumerate(weights)})


def test_of_weights_the_heaviest_are_placed_first_where_the_load_is_lowest() -> None:
    state = weighted(2, [FREE] * 5, 1, 2, 3, 2, 6)
    (at,) = after(state, plan(state))
    assert [p for p in range(5) if at[p] == at[4]] == [0, 4]
    capacities = replace(state, members=(state.members[0]._replace(capacity=6), state.members[1]))
    assert after(capacities, plan(capacities))[0].count(1) == 1, "2 of 14"


def test_what_is_free_goes_back_to_the_member_that_had_it_within_its_bound() -> None:
    state = weighted(2, [0, FREE, FREE, 1], 10, 1, 1, 8)
    assert after(state, plan(state)) == [[0, 1, 1, 1]]
    back = replace(state, previous={(0, 1): 0, (0, 2): 0})
    assert loads(back, after(back, plan(back))) == [2, 2], "11 of 20 is a tenth above the half"


def test_loads_within_the_tolerance_are_left_alone() -> None:
    assert not plan(weighted(2, [0, 0, 1], 6, 5, 9)).moves, "11 of 20 is a tenth above the half"
    assert len(plan(weighted(2, [0, 0, 0, 1], 6, 4, 2, 8)).moves) == 1, "12 of 20 is more"


def test_the_lightest_partition_goes_that_is_enough() -> None:
    made = plan(weighted(2, [0, 0, 0, 1], 9, 3, 4, 8))
    assert [(move.partition, move.reason) for move in made.moves] == [(1, MoveReason.BALANCE)]


def test_two_partitions_change_places_where_single_ones_are_too_heavy() -> None:
    state = weighted(2, [0, 0, 1, 1], 7, 7, 4, 4)
    assert loads(state, after(state, plan(state))) == [2, 2]
    assert len(plan(state).moves) == 2
    assert not plan(state).obstacles


@pytest.mark.parametrize("most", [(2, 0), (1, 1)])
def test_a_member_above_its_maximum_gets_nothing_in_exchange(most: tuple[int, int]) -> None:
    state = weighted(2, [0, 0, 1], 9, 8, 1)
    members = [m._replace(max_partitions=n) for m, n in zip(state.members, most, strict=True)]
    assert not plan(replace(state, members=tuple(members))).moves


def test_what_is_in_the_way_of_a_bound_is_named() -> None:
    too_heavy = weighted(2, [0, 0, 1], 5, 4, 5)
    assert plan(too_heavy).obstacles == (Obstacle((0,), (1,), (0, 1)),)
    barred = replace(weighted(2, [0, 0, 0], 1, 1, 1), barred={(0, p, 1) for p in range(3)})
    assert plan(barred).obstacles == (Obstacle((0,), (1,)),)
    counted = replace(barred, weights={})
    assert plan(counted).obstacles == (Obstacle((0,), (1,)),)


def test_a_frozen_group_moves_nothing_for_balance_or_pins() -> None:
    state = group(3, PlanTopic("t", 6, [0, 0, 0, 0, FREE, FREE]))
    frozen = replace(state, pins={(0, 0): 1}, is_frozen=True)
    made = plan(frozen)
    assert not made.moves
    assert sorted(after(frozen, made)[0]) == [0, 0, 0, 0, 1, 2]


def test_an_open_hand_off_is_left_alone_and_counts_where_it_goes() -> None:
    state = group(2, PlanTopic("t", 4, [1, 0, 0, 1], moving={0}))
    assert not plan(state).moves
    barred = PlanInput(state.members, state.topics, barred={(0, 0, 1)})
    assert (0, 0, 1, 0, MoveReason.NOT_ALLOWED) in plan(barred).moves


def test_the_maximum_of_each_is_kept_and_the_rest_stays_free() -> None:
    state = group(3, free(40), max_partitions=10)
    made = plan(state)
    assert loads(state, after(state, made)) == [10, 10, 10]
    assert list(made.unplaced.values()) == [Unplaced.CAPACITY] * 10


def test_whoever_leaves_gives_everything_away() -> None:
    members = (PlanMember("w-a", (4,), leaves=True), PlanMember("w-b", (4,)))
    state = PlanInput(members, (PlanTopic("t", 4, [0, 0, 1, 1]),))
    made = plan(state)
    assert {move.reason for move in made.moves} == {MoveReason.HOLDER_LEAVES}
    assert after(state, made) == [[1, 1, 1, 1]]


def test_what_is_pinned_goes_to_its_member_or_stays_where_it_is() -> None:
    at = [0, 0, 1]
    to_b = PlanInput(group(2, PlanTopic("t", 3, at)).members, (PlanTopic("t", 3, at),), {(0, 0): 1})
    assert plan(to_b).moves == ((0, 0, 0, 1, MoveReason.PINNED),)
    absent = PlanInput(to_b.members, to_b.topics, {(0, 0): None})
    assert not plan(absent).moves
    waiting = PlanInput(to_b.members, (PlanTopic("t", 3, [FREE, 0, 1]),), {(0, 0): None})
    made = plan(waiting)
    assert made.unplaced == {(0, 0): Unplaced.PINNED}
    assert not made.grants


def test_kept_partitions_are_nobodys() -> None:
    state = group(2, PlanTopic("t", 4, [RESERVED, RESERVED, 0, 1]))
    made = plan(state)
    assert (made.grants, made.moves, made.unplaced) == ({}, (), {})


BARRED = frozenset({(0, 9, 1)})
"""The planner places partitions one by one if it may not deal them out."""


@pytest.mark.parametrize("barred", [frozenset(), BARRED])
def test_previous_holders_get_their_own_back(barred: frozenset[tuple[int, int, int]]) -> None:
    topic = free(10)
    previous = {(0, partition): int(partition < 5) for partition in range(10)}
    state = PlanInput(group(2, topic).members, (topic,), barred=barred, previous=previous)
    made = plan(state)
    assert after(state, made) == [[1] * 5 + [0] * 5]
    assert not made.moves


@pytest.mark.parametrize("barred", [frozenset(), BARRED])
def test_a_previous_holder_gets_its_share_and_no_more(
    barred: frozenset[tuple[int, int, int]],
) -> None:
    topic = PlanTopic("t", 10, [FREE] * 6 + [2, 2, 2, 2])
    previous = {(0, partition): int(partition == 5) for partition in range(6)}
    state = PlanInput(group(3, topic).members, (topic,), barred=barred, previous=previous)
    made = plan(state)
    at = after(state, made)
    assert sorted(loads(state, at)) == [3, 3, 4]
    assert at[0][5] == 1
    assert not made.moves


# --- Any state ---


@settings(max_examples=600, deadline=None)
@given(states())
def test_every_plan_is_allowed_and_final(state: PlanInput) -> None:
    made = plan(state)
    at = after(state, made)
    partitions = [(t, p) for t, topic in enumerate(state.topics) for p in range(topic.count)]
    for topic, partition in partitions:
        before, now = state.topics[topic].at[partition], at[topic][partition]
        if now != before and now >= 0:
            assert may_have(state, now, topic, partition)
    counts = loads(state, at)
    for number, member in enumerate(state.members):
        gained = any(at[t][p] == number != state.topics[t].at[p] for t, p in partitions)
        if gained and member.max_partitions is not None:
            assert counts[number] <= member.max_partitions
    again = PlanInput(
        state.members,
        tuple(
            PlanTopic(topic.name, topic.count, holders)
            for topic, holders in zip(state.topics, at, strict=True)
        ),
    )
    second = plan(again)
    assert not second.grants
    assert not second.moves


Cost = tuple[int, int, int, int]
"""Free partitions, partitions above a maximum, sum of squares, moves."""

NEVER = (99, 99, 99, 99)
"""Cost of an assignment by which a member gets more than its maximum."""


def best(state: PlanInput, made: Plan) -> tuple[Cost, Cost]:
    """Costs of the best assignment of all, and of the plan."""
    partitions = [(t, p) for t, topic in enumerate(state.topics) for p in range(topic.count)]
    members = state.members

    def choices(topic: int, partition: int) -> list[int]:
        holder = state.topics[topic].at[partition]
        allowed = [m for m in range(len(members)) if may_have(state, m, topic, partition)]
        if holder < 0:
            return [*allowed, NOBODY]
        must_go = members[holder].leaves or partition >= members[holder].declares[topic]
        if must_go:
            return [*(m for m in allowed if m != holder), NOBODY]
        return list({*allowed, holder})

    def gains(number: int, at: tuple[int, ...]) -> bool:
        return any(
            member == number != state.topics[topic].at[partition]
            for (topic, partition), member in zip(partitions, at, strict=True)
        )

    def cost(at: tuple[int, ...]) -> Cost:
        counts = [0] * len(members)
        free = above = moves = squares = 0
        for (topic, partition), member in zip(partitions, at, strict=True):
            before = state.topics[topic].at[partition]
            moves += before >= 0 and member != before
            free += member < 0
            if member >= 0:
                counts[member] += 1
        for number, found in enumerate(members):
            most = found.max_partitions
            if most is not None and counts[number] > most:
                above += counts[number] - most
                if gains(number, at):
                    return NEVER
            if found.receives and not found.leaves:
                squares += counts[number] ** 2
        return free, above, squares, moves

    now = after(state, made)
    of_plan = tuple(now[topic][partition] for topic, partition in partitions)
    return min(map(cost, product(*(choices(t, p) for t, p in partitions)))), cost(of_plan)


@settings(max_examples=400, deadline=None)
@given(states(same=True))
def test_with_equal_members_a_plan_is_as_good_as_any(state: PlanInput) -> None:
    optimum, found = best(state, plan(state))
    assert found == optimum


@settings(max_examples=400, deadline=None)
@given(states())
def test_with_any_members_a_plan_is_as_good_as_any(state: PlanInput) -> None:
    optimum, found = best(state, plan(state))
    assert found == optimum


# --- Within a balanced total, each topic is spread evenly -----------------------------------------


def spreads(at: list[list[int]], members: int) -> list[tuple[int, int]]:
    """Least and most of each topic that a member has."""
    counts = [Counter(holders) for holders in at]
    return [(min(c[m] for m in range(members)), max(c[m] for m in range(members))) for c in counts]


def grown(sizes: list[int], *numbers: int) -> tuple[list[list[int]], list[tuple[int, int]], int]:
    """Holders, spreads and moves of a group whose number of members changes step by step."""
    at, moves = [[FREE] * size for size in sizes], 0
    for number in numbers:
        at = [[holder if holder < number else FREE for holder in holders] for holders in at]
        topics = tuple(PlanTopic(f"t{n}", len(count), count) for n, count in enumerate(at))
        members = tuple(PlanMember(f"w-{n}", tuple(sizes)) for n in range(number))
        state = PlanInput(members, topics)
        made = plan(state)
        moves += len(made.moves)
        at = after(state, made)
    return at, spreads(at, number), moves


@pytest.mark.parametrize(
    ("sizes", "numbers", "spread", "moves"),
    [
        ([8, 8], (1, 2), [(4, 4), (4, 4)], 8),
        ([12, 12], (1, 2, 3), [(4, 4), (4, 4)], 20),
        ([12, 12], (2, 3), [(4, 4), (4, 4)], 8),
        ([18, 18], (1, 9), [(2, 2), (2, 2)], 32),
        ([18, 18], (4, 9), [(2, 2), (2, 2)], 20),
        ([4, 12], (1, 2), [(2, 2), (6, 6)], 8),
        ([24, 24, 24], (12, 11, 10, 9, 8), [(3, 3), (3, 3), (3, 3)], 0),
    ],
)
def test_who_takes_from_a_member_takes_of_each_topic(sizes, numbers, spread, moves) -> None:
    assert grown(sizes, *numbers)[1:] == (spread, moves)


@pytest.mark.parametrize("sizes", [[18, 18], [24, 24, 24], [50] * 10])
def test_topics_stay_even_while_members_come_one_by_one(sizes) -> None:
    for number in range(2, 21):
        _, found, _ = grown(sizes, *range(1, number + 1))
        assert all(most - least <= 2 for least, most in found), (number, found)
