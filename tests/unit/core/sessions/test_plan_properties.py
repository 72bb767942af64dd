"""Laws of plans over 10,000 random groups, and plans beside flows of least cost.

The flows are OR-tools' (`flow_oracle`), which also compares more groups than here, by command.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from math import ceil, floor
from multiprocessing import get_context
from random import Random
from typing import Any

import pytest

from coordinator.core.sessions.plan.allocator import plan
from coordinator.core.values.plans import (
    FREE,
    NOBODY,
    RESERVED,
    Move,
    MoveReason,
    Plan,
    PlanInput,
    PlanMember,
    PlanTopic,
)
from tests.unit.core.sessions.plan_states import (
    SORTS,
    after,
    following,
    loads,
    may_have,
    must_go,
    random_state,
    reordered,
)

STATES = 10_000
BATCHES = 10
COMPARED = 300
WEIGHED = 500


@pytest.mark.parametrize("batch", range(BATCHES))
def test_every_plan_is_allowed_complete_and_final(batch: int) -> None:
    random = Random(batch)
    for _ in range(STATES // BATCHES):
        state = random_state(random, members=6, partitions=16)
        made = plan(state)
        at = after(state, made)
        _check_gains(state, at)
        _check_free(state, at)
        _check_moves(state, made)
        second = plan(following(state, at))
        assert not second.grants, state
        assert not second.moves, state


@pytest.mark.parametrize("batch", range(BATCHES))
def test_the_order_of_members_and_topics_changes_nothing(batch: int) -> None:
    random = Random(batch)
    for _ in range(50):
        state = random_state(random, members=6, partitions=16)
        members, topics = list(range(len(state.members))), list(range(len(state.topics)))
        random.shuffle(members)
        random.shuffle(topics)
        assert _named(state) == _named(reordered(state, members, topics)), state


def _named(state: PlanInput) -> list[dict[int, str]]:
    """Names of holders after a plan, by name of the topic and partition."""
    at = after(state, plan(state))
    names = {number: member.name for number, member in enumerate(state.members)}
    by_topic = sorted(zip((topic.name for topic in state.topics), at, strict=True))
    return [
        {partition: names.get(holder, "") for partition, holder in enumerate(holders)}
        for _, holders in by_topic
    ]


def _check_gains(state: PlanInput, at: list[list[int]]) -> None:
    """Only those that may have a partition get it, none above its maximum."""
    counts, gained = loads(state, at), set()
    for topic, holders in enumerate(at):
        for partition, member in enumerate(holders):
            before = state.topics[topic].at[partition]
            if member != before and member >= 0:
                assert may_have(state, member, topic, partition)
                gained.add(member)
            if member != before:
                assert before != RESERVED
    for member in gained:
        most = state.members[member].max_partitions
        assert most is None or counts[member] <= most


def _check_free(state: PlanInput, at: list[list[int]]) -> None:
    """Free stays what nobody with room may have."""
    counts = loads(state, at)
    for topic, holders in enumerate(at):
        for partition, holder in enumerate(holders[: state.topics[topic].count]):
            if holder != FREE or (topic, partition) in state.pins:
                continue
            for number, member in enumerate(state.members):
                most = member.max_partitions
                has_room = most is None or counts[number] < most
                assert not (has_room and may_have(state, number, topic, partition))


def _check_moves(state: PlanInput, made: Plan) -> None:
    """Each move was necessary, or makes loads more even; open hand-offs are left alone.

    If members may have different partitions, only all moves together do: see the flows.
    """
    counts = loads(state, [list(topic.at) for topic in state.topics])
    for member, by_topic in made.grants.items():
        counts[member] += sum(last - first + 1 for r in by_topic.values() for first, last in r)
    members = state.members
    is_equal = len({(member.capacity, member.declares) for member in members}) == 1
    paths: list[Move] = []
    for move in made.moves:
        partition = move.topic, move.partition
        if move.reason in (MoveReason.BALANCE, MoveReason.ABOVE_MAXIMUM):
            assert partition not in state.pins
            assert move.partition not in state.topics[move.topic].moving
            assert not must_go(state, *partition, move.source)
        if move.reason is MoveReason.BALANCE:
            paths.append(move)
        else:
            counts[move.source] -= move.partition < state.topics[move.topic].count
            counts[move.target] += move.target != NOBODY
    if not is_equal or state.barred:
        return
    before = sum(count * count for count in counts)
    for move in paths:
        counts[move.source] -= 1
        counts[move.target] += 1
    now = sum(count * count for count in counts)
    assert before - now >= 2 * len(paths), "each move lowers the sum"


@pytest.mark.parametrize("seed", range(200))
def test_equal_members_hold_the_floor_or_the_ceiling_of_their_share(seed: int) -> None:
    random = Random(seed)
    count = random.randint(1, 12)
    capacities = [random.choice([0.5, 1, 1, 2, 3]) for _ in range(count)]
    size = random.randint(0, 60)
    members = tuple(
        PlanMember(f"w-{n}", (size,), capacity=capacity) for n, capacity in enumerate(capacities)
    )
    at = [random.randint(-1, count - 1) for _ in range(size)]
    state = PlanInput(members, (PlanTopic("t", size, at),))
    found = loads(state, after(state, plan(state)))
    for capacity, load in zip(capacities, found, strict=True):
        share = size * capacity / sum(capacities)
        assert floor(share + 1e-9) <= load <= ceil(share - 1e-9)


def test_plans_are_as_good_as_flows_of_least_cost() -> None:
    with ProcessPoolExecutor(1, get_context("spawn")) as oracle:
        scores = oracle.submit(_compare, range(COMPARED)).result()
    for sort, score in scores.items():
        assert score.groups == COMPARED // len(SORTS), sort
        assert (score.unbalanced, score.moves) == (0, score.fewest), sort


def _compare(seeds: range) -> dict[str, Any]:
    """Compare in a process that may load OR-tools."""
    from tests.unit.core.sessions.flow_oracle import compare

    return compare(seeds)


# --- Weights ---


@pytest.mark.parametrize("batch", range(BATCHES))
def test_every_plan_by_weight_is_allowed_complete_and_final(batch: int) -> None:
    random = Random(batch)
    for _ in range(30):
        state = _weighted(random)
        made = plan(state)
        at = after(state, made)
        _check_gains(state, at)
        _check_free(state, at)
        for move in made.moves:
            if move.reason in (MoveReason.BALANCE, MoveReason.ABOVE_MAXIMUM):
                assert (move.topic, move.partition) not in state.pins
                assert move.partition not in state.topics[move.topic].moving
        second = plan(following(state, at))
        assert not second.grants, state
        assert not second.moves, state


@pytest.mark.parametrize("batch", range(BATCHES))
def test_the_order_of_members_and_topics_changes_nothing_by_weight(batch: int) -> None:
    random = Random(batch)
    for _ in range(15):
        state = _weighted(random)
        members, topics = list(range(len(state.members))), list(range(len(state.topics)))
        random.shuffle(members)
        random.shuffle(topics)
        assert _named(state) == _named(reordered(state, members, topics)), state


@pytest.mark.parametrize("batch", range(BATCHES))
def test_partitions_that_are_named_in_the_way_are_too_heavy_for_others(batch: int) -> None:
    random, named = Random(batch), 0
    for _ in range(100):
        members, size = random.randint(2, 5), random.randint(1, 12)
        made = tuple(PlanMember(f"w-{n}", (size,)) for n in range(members))
        weights = {(0, p): random.randint(1, 20) for p in range(size)}
        at = [random.randint(FREE, members - 1) for _ in range(size)]
        state = PlanInput(made, (PlanTopic("t", size, at),), weights=weights)
        found = plan(state)
        (holders,) = after(state, found)
        held = [sum(weights[0, p] for p in range(size) if holders[p] == m) for m in range(members)]
        bound = max(floor(sum(weights.values()) * 11 / 10 / members), *weights.values())
        above = {m for m, load in enumerate(held) if load > bound}
        assert {m for obstacle in found.obstacles for m in obstacle.above} == above
        for obstacle in found.obstacles:
            assert obstacle.partition is not None, "there are no constraints"
            for other in obstacle.others:
                assert held[other] + weights[obstacle.partition] > bound
            named += 1
    assert named


def test_plans_by_weight_keep_the_bounds_that_can_be_kept_with_the_fewest_moves() -> None:
    with ProcessPoolExecutor(1, get_context("spawn")) as oracle:
        scores = oracle.submit(_compare_weights, range(WEIGHED)).result()
    for sort, score in scores.items():
        assert score.groups == WEIGHED // len(SORTS), sort
        assert 0 < score.reachable < score.groups, sort
        assert (score.missed, score.unnamed) == (0, 0), sort
        assert score.moves <= score.fewest * 1.02, sort


def _weighted(random: Random) -> PlanInput:
    state = random_state(random, members=6, partitions=16)
    return replace(
        state,
        weights={
            (number, partition): random.choice([0.5, 1, 2.25, 7, random.uniform(1, 30)])
            for number, topic in enumerate(state.topics)
            for partition in range(topic.count)
            if random.random() < 0.9
        },
    )


def _compare_weights(seeds: range) -> dict[str, Any]:
    """Compare in a process that may load OR-tools."""
    from tests.unit.core.sessions.flow_oracle import compare_weights

    return compare_weights(seeds)


# --- Obstacles without weights, and freezes ---


@pytest.mark.parametrize("batch", range(BATCHES))
def test_obstacles_are_named_when_members_are_out_of_the_bounds_of_all(batch: int) -> None:
    random, named = Random(batch), 0
    for _ in range(100):
        members, sizes = random.randint(1, 5), [random.randint(1, 9), random.randint(1, 9)]
        made = tuple(
            PlanMember(f"w-{n}", tuple(random.choice([0, size, size]) for size in sizes))
            for n in range(members)
        )
        counts = [max(member.declares[topic] for member in made) for topic in range(2)]
        topics = tuple(PlanTopic(f"t{n}", count, [FREE] * count) for n, count in enumerate(counts))
        state = PlanInput(made, topics)
        found = plan(state)
        held = loads(state, after(state, found))
        fair = sum(counts) / members
        out = [m for m, load in enumerate(held) if not floor(fair) <= load <= ceil(fair)]
        assert bool(found.obstacles) == bool(out), state
        for obstacle in found.obstacles:
            most_of_others = max(held[m] for m in obstacle.others)
            assert min(held[m] for m in obstacle.above) >= most_of_others
            named += 1
    assert named


@pytest.mark.parametrize("batch", range(BATCHES))
def test_frozen_groups_place_what_is_free_and_move_what_has_to_go(batch: int) -> None:
    random = Random(batch)
    for _ in range(100):
        state = replace(_weighted(random), is_frozen=True)
        if random.random() < 0.7:
            state = replace(state, weights={})
        made = plan(state)
        at = after(state, made)
        _check_gains(state, at)
        _check_free(state, at)
        hard = {MoveReason.HOLDER_LEAVES, MoveReason.NO_LONGER_DECLARED, MoveReason.NOT_ALLOWED}
        assert {move.reason for move in made.moves} <= hard
