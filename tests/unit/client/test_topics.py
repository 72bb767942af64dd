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
from tests.kit.client_scenario import ClientScenario, t

OURS = Subscription(("t",))
NONE = PreviousAssignment(())


@pytest.fixture(params=["cooperative-sticky", "range"])
def scenario(request) -> ClientScenario:
    return ClientScenario(request.param)


def subscribe(player, count: int) -> None:
    player.machine.subscribe({"t": count}, player.scenario.now_ms)
    player.turn()


def advance(scenario: ClientScenario, *players) -> None:
    for _ in range(20):
        scenario.advance(100)
        for player in players:
            player.poll()


def held(*players) -> frozenset:
    return frozenset().union(*(player.assignment for player in players))


def test_partitions_that_a_leader_finds_are_divided(scenario):
    first, second = scenario.member(), scenario.member()
    scenario.share(first, second)
    (leader,) = (player for player in (first, second) if player.member.is_leader)
    subscribe(leader, 4)
    scenario.until(lambda: held(first, second) == t(0, 1, 2, 3), polling=(first, second))
    assert [len(first.assignment), len(second.assignment)] == [2, 2]


def test_partitions_that_a_follower_finds_are_divided_and_cost_one_generation(scenario):
    first, second = scenario.member(), scenario.member()
    scenario.share(first, second)
    (follower,) = (player for player in (first, second) if not player.member.is_leader)
    (leader,) = {first, second} - {follower}
    generation = follower.member.generation
    subscribe(follower, 3)
    scenario.until(lambda: held(first, second) == t(0, 1, 2), polling=(first, second))
    assert follower.member.generation == generation + 1
    subscribe(leader, 3)
    advance(scenario, first, second)
    assert follower.member.generation == generation + 1


def test_members_of_different_topics_are_assigned_theirs(scenario):
    first, second = scenario.member(topics={"t": 3}), scenario.member(topics={"u": 2})
    scenario.until(lambda: len(held(first, second)) == 5, polling=(first, second))
    assert first.assignment == t(0, 1, 2)
    assert {partition.topic for partition in second.assignment} == {"u"}
    assert first.warnings + second.warnings == []


def test_the_larger_of_two_counts_is_divided_and_the_leader_warns_once(scenario):
    first, second = scenario.member(topics={"t": 4}), scenario.member(topics={"t": 2})
    scenario.until(lambda: held(first, second) == t(0, 1, 2, 3), polling=(first, second))
    advance(scenario, first, second)
    third = scenario.member(topics={"t": 2})
    players = (first, second, third)
    scenario.until(lambda: all(player.assignment for player in players), polling=players)
    advance(scenario, *players)
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


def test_counts_that_change_while_the_leaders_assignment_is_under_way_are_divided(scenario):
    member = scenario.member()
    member.hold_answers(Sync)
    scenario.until(lambda: member.letters and isinstance(member.letters[-1].request, Sync))
    assert member.member.phase is MembershipPhase.SYNCING
    subscribe(member, 3)
    member.release()
    scenario.until(lambda: held(member) == t(0, 1, 2), polling=(member,))


def test_partitions_that_appear_while_a_static_leader_restarts_are_divided(scenario):
    """It is given its predecessor's assignment, without a rebalance."""
    before = scenario.member(instance_id="i")
    scenario.share(before)
    before.kill()
    after = scenario.member(instance_id="i", topics={"t": 3})
    scenario.until(lambda: held(after) == t(0, 1, 2), polling=(after,))


def test_a_static_leader_that_restarts_with_the_same_topics_costs_no_generation(scenario):
    before = scenario.member(instance_id="i")
    scenario.share(before)
    generation = before.member.generation
    before.kill()
    after = scenario.member(instance_id="i")
    scenario.share(after)
    scenario.advance(1_000)
    assert after.member.generation == generation


def test_topics_that_a_follower_changes_while_it_joins_are_those_it_is_given(scenario):
    first = scenario.member(topics={"t": 2, "u": 2})
    scenario.until(lambda: len(first.assignment) == 4, polling=(first,))
    second = scenario.member()
    second.hold_answers(Sync)
    scenario.until(lambda: second.member.phase is MembershipPhase.SYNCING, polling=(first,))
    second.machine.subscribe({"u": 2}, scenario.now_ms)
    second.release()
    scenario.until(lambda: {p.topic for p in second.assignment} == {"u"}, polling=(first, second))
    scenario.until(lambda: first.assignment >= t(0, 1), polling=(first, second))


def test_topics_that_change_while_it_joins_a_leader_of_another_library_are_joined_with(scenario):
    """A leader of another library does not say which counts it has divided."""
    one = scenario.member()
    one.hold_answers(Sync)
    scenario.until(lambda: one.member.phase is MembershipPhase.SYNCING)
    one.machine.subscribe({"u": 2}, scenario.now_ms)
    (letter,) = one.letters
    one.receive(letter, Synced(assignment=encode_assignment(Assignment(tuple(t(0, 1))))))
    assert one.member.phase is MembershipPhase.JOINING
