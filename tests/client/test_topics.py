"""Topics that change while members run: the counts of the group's leader are divided."""

from __future__ import annotations

import pytest

from coordinator.client.calls import Sync
from coordinator.client.membership import Phase
from tests.client.kit import World, t


@pytest.fixture(params=["cooperative-sticky", "range"])
def world(request) -> World:
    return World(request.param)


def subscribe(player, count: int) -> None:
    player.machine.subscribe({"t": count}, player.world.now_ms)
    player.turn()


def held(*players) -> frozenset:
    return frozenset().union(*(player.assignment for player in players))


def test_partitions_that_a_leader_finds_are_divided(world):
    first, second = world.member(), world.member()
    world.share(first, second)
    (leader,) = (player for player in (first, second) if player.member.is_leader)
    subscribe(leader, 4)
    world.until(lambda: held(first, second) == t(0, 1, 2, 3), polling=(first, second))
    assert [len(first.assignment), len(second.assignment)] == [2, 2]


def test_partitions_that_a_follower_finds_wait_for_the_leader_and_cost_no_generation(world):
    first, second = world.member(), world.member()
    world.share(first, second)
    (follower,) = (player for player in (first, second) if not player.member.is_leader)
    generation = follower.member.generation
    subscribe(follower, 3)
    for _ in range(20):
        world.advance(100)
        for player in (first, second):
            player.poll()
    assert held(first, second) == t(0, 1)
    assert follower.member.generation == generation
    (leader,) = {first, second} - {follower}
    subscribe(leader, 3)
    world.until(lambda: held(first, second) == t(0, 1, 2), polling=(first, second))


def test_counts_that_change_while_the_leaders_assignment_is_under_way_are_divided(world):
    member = world.member()
    member.hold_answers(Sync)
    world.until(lambda: member.letters and isinstance(member.letters[-1].request, Sync))
    assert member.member.phase is Phase.SYNCING
    subscribe(member, 3)
    member.release()
    world.until(lambda: held(member) == t(0, 1, 2), polling=(member,))


def test_partitions_that_appear_while_a_static_leader_restarts_are_divided(world):
    """It is given its predecessor's assignment, without a rebalance."""
    before = world.member(instance_id="i")
    world.share(before)
    before.kill()
    after = world.member(instance_id="i", topics={"t": 3})
    world.until(lambda: held(after) == t(0, 1, 2), polling=(after,))


def test_a_static_leader_that_restarts_with_the_same_topics_costs_no_generation(world):
    before = world.member(instance_id="i")
    world.share(before)
    generation = before.member.generation
    before.kill()
    after = world.member(instance_id="i")
    world.share(after)
    world.advance(1_000)
    assert after.member.generation == generation


def test_topics_that_a_follower_changes_while_it_joins_are_those_it_is_given(world):
    first = world.member(topics={"t": 2, "u": 2})
    world.until(lambda: len(first.assignment) == 4, polling=(first,))
    second = world.member()
    second.hold_answers(Sync)
    world.until(lambda: second.member.phase is Phase.SYNCING, polling=(first,))
    second.machine.subscribe({"u": 2}, world.now_ms)
    second.release()
    world.until(lambda: {p.topic for p in second.assignment} == {"u"}, polling=(first, second))
    world.until(lambda: first.assignment >= t(0, 1), polling=(first, second))
