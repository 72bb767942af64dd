"""Topics of members, which differ or change while they run: the largest counts are divided."""

from __future__ import annotations

import pytest

from coordinator.assignors import Subscription
from coordinator.assignors.consumer_protocol import (
    Assignment,
    PreviousAssignment,
    encode_assignment,
    encode_subscription,
)
from coordinator.client.member.calls import GenerationMember, Sync, Synced
from coordinator.client.member.classic.assigning import read_assignment, share_out, subscriptions
from coordinator.client.member.classic.membership import MembershipPhase
from tests.unit.client.kit import World, t

OURS = Subscription(("t",))
NONE = PreviousAssignment(())


@pytest.fixture(params=["cooperative-sticky", "range"])
def world(request) -> World:
    return World(request.param)


def subscribe(player, count: int) -> None:
    player.machine.subscribe({"t": count}, player.world.now_ms)
    player.turn()


def advance(world: World, *players) -> None:
    for _ in range(20):
        world.advance(100)
        for player in players:
            player.poll()


def held(*players) -> frozenset:
    return frozenset().union(*(player.assignment for player in players))


def test_partitions_that_a_leader_finds_are_divided(world):
    first, second = world.member(), world.member()
    world.share(first, second)
    (leader,) = (player for player in (first, second) if player.member.is_leader)
    subscribe(leader, 4)
    world.until(lambda: held(first, second) == t(0, 1, 2, 3), polling=(first, second))
    assert [len(first.assignment), len(second.assignment)] == [2, 2]


def test_partitions_that_a_follower_finds_are_divided_and_cost_one_generation(world):
    first, second = world.member(), world.member()
    world.share(first, second)
    (follower,) = (player for player in (first, second) if not player.member.is_leader)
    (leader,) = {first, second} - {follower}
    generation = follower.member.generation
    subscribe(follower, 3)
    world.until(lambda: held(first, second) == t(0, 1, 2), polling=(first, second))
    assert follower.member.generation == generation + 1
    subscribe(leader, 3)
    advance(world, first, second)
    assert follower.member.generation == generation + 1


def test_members_of_different_topics_are_assigned_theirs(world):
    first, second = world.member(topics={"t": 3}), world.member(topics={"u": 2})
    world.until(lambda: len(held(first, second)) == 5, polling=(first, second))
    assert first.assignment == t(0, 1, 2)
    assert {partition.topic for partition in second.assignment} == {"u"}
    assert first.warnings + second.warnings == []


def test_the_larger_of_two_counts_is_divided_and_the_leader_warns_once(world):
    first, second = world.member(topics={"t": 4}), world.member(topics={"t": 2})
    world.until(lambda: held(first, second) == t(0, 1, 2, 3), polling=(first, second))
    advance(world, first, second)
    third = world.member(topics={"t": 2})
    players = (first, second, third)
    world.until(lambda: all(player.assignment for player in players), polling=players)
    advance(world, *players)
    assert held(*players) == t(0, 1, 2, 3)
    told = [line for player in players for line in player.warnings]
    assert len(told) == 2  # The second names the third member as well.
    assert "members declare different numbers of partitions of t: 2 by " in told[0]
    assert told[0].endswith("; 4 are assigned")
    assert max(player.member.generation for player in players) < 6


def test_a_leader_names_topics_that_no_member_counts():
    """A member of another library subscribes to a topic and declares no number."""
    declared = GenerationMember(
        "ours", None, dict(subscriptions(["range"], OURS, NONE, {"t": 2}))["range"]
    )
    foreign = GenerationMember("theirs", None, encode_subscription(Subscription(("t", "x"))))
    division = share_out("range", "ours", {"t": 2}, (declared, foreign))
    given = {m: read_assignment(data).partitions for m, data in division.assignments}
    assert given == {"ours": t(0), "theirs": t(1)}
    assert division.warnings == (
        "no member declares the number of partitions of x, so none is assigned; subscribed: theirs",
    )


def test_counts_that_change_while_the_leaders_assignment_is_under_way_are_divided(world):
    member = world.member()
    member.hold_answers(Sync)
    world.until(lambda: member.letters and isinstance(member.letters[-1].request, Sync))
    assert member.member.phase is MembershipPhase.SYNCING
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
    world.until(lambda: second.member.phase is MembershipPhase.SYNCING, polling=(first,))
    second.machine.subscribe({"u": 2}, world.now_ms)
    second.release()
    world.until(lambda: {p.topic for p in second.assignment} == {"u"}, polling=(first, second))
    world.until(lambda: first.assignment >= t(0, 1), polling=(first, second))


def test_topics_that_change_while_it_joins_a_leader_of_another_library_are_joined_with(world):
    """A leader of another library does not say which counts it has divided."""
    one = world.member()
    one.hold_answers(Sync)
    world.until(lambda: one.member.phase is MembershipPhase.SYNCING)
    one.machine.subscribe({"u": 2}, world.now_ms)
    (letter,) = one.letters
    one.receive(letter, Synced(assignment=encode_assignment(Assignment(tuple(t(0, 1))))))
    assert one.member.phase is MembershipPhase.JOINING
