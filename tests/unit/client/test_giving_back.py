"""Partitions are given back one by one, each as soon as its owner has finished with it."""

from __future__ import annotations

import pytest

from coordinator.client.member import calls
from coordinator.client.member.classic.membership import MembershipPhase
from tests.kit.client_scenario import ClientScenario, Granted, Lost, Revoking, t


def give_back(player, *numbers: int) -> None:
    held = player.machine.ledger.current(t(*numbers))
    player.machine.give_back(held, player.scenario.now_ms)
    player.turn()


def receive(player) -> list:
    """Events, without the answer that a poll is."""
    return player.look()


def holds(player) -> frozenset:
    """Its partitions, after it has heard what there is to receive."""
    receive(player)
    return player.assignment


def revoked(scenario: ClientScenario, one) -> frozenset:
    """Let others join until some partitions of the one are being revoked; the owner is told."""
    scenario.until(lambda: one.member.phase is MembershipPhase.REVOKING)
    (revoking,) = [event for event in receive(one) if isinstance(event, Revoking)]
    return revoking.partitions


@pytest.fixture
def scenario() -> ClientScenario:
    return ClientScenario("cooperative-sticky", partitions=4)


@pytest.fixture
def one(scenario):
    one = scenario.member()
    scenario.until(lambda: one.member.phase is MembershipPhase.STABLE)
    assert receive(one)[0].partitions == t(0, 1, 2, 3)
    return one


def test_a_member_that_holds_on_to_a_partition_does_not_hold_up_a_rebalance(scenario, one):
    other = scenario.member()
    revoked(scenario, one)
    third = scenario.member()
    scenario.until(lambda: third.member.phase is MembershipPhase.STABLE)
    assert one.member.phase is MembershipPhase.REVOKING
    assert other.member.generation == third.member.generation


def test_a_rebalance_does_not_move_the_deadline(scenario, one):
    scenario.member()
    partitions = revoked(scenario, one)
    until_ms = one.member.revocations.next_deadline()
    scenario.advance(500)
    scenario.member()
    scenario.until(lambda: one.member.generation == 3)
    scenario.advance(until_ms - scenario.now_ms)
    (lost,) = [event for event in receive(one) if isinstance(event, Lost)]
    assert lost.partitions >= partitions


def test_a_partition_that_comes_back_while_it_is_revoked_is_another_holding(scenario, one):
    other = scenario.member()
    first, second = sorted(revoked(scenario, one))
    holding = one.holding(first.partition)
    other.leave()
    scenario.until(lambda: one.member.revocations.returned == {first, second})
    assert one.commit({first.partition: 5}) == 1
    give_back(one, first.partition)
    assert receive(one) == [Granted(frozenset({first}), one.member.generation)]
    assert one.holding(first.partition) is not holding
    assert not one.machine.ledger.lasts(holding)
    assert one.member.phase is MembershipPhase.REVOKING
    give_back(one, second.partition)
    assert one.member.phase is MembershipPhase.STABLE


def test_a_partition_that_comes_back_and_is_not_given_back_in_time_is_lost_first(scenario, one):
    other = scenario.member()
    partitions = revoked(scenario, one)
    other.leave()
    scenario.until(lambda: one.member.revocations.returned == partitions)
    scenario.advance(one.member.revocations.next_deadline() - scenario.now_ms)
    lost, assigned = receive(one)
    assert (type(lost), type(assigned)) == (Lost, Granted)
    assert lost.partitions == assigned.partitions == partitions


def test_a_partition_that_comes_back_before_its_owner_heard_stays(scenario, one):
    other = scenario.member()
    scenario.until(lambda: one.member.phase is MembershipPhase.REVOKING)
    holdings = [one.holding(number) for number in range(4)]
    other.leave()
    scenario.until(lambda: one.member.phase is MembershipPhase.STABLE)
    assert receive(one) == []
    assert all(map(one.machine.ledger.lasts, holdings))


def test_a_partition_that_nobody_asked_for_may_be_given_back(scenario, one):
    give_back(one, 2)
    scenario.until(lambda: one.member.phase is MembershipPhase.STABLE)
    assert receive(one) == [Granted(t(2), one.member.generation)]
    assert one.member.generation == 2


def test_the_group_is_told_why_a_partition_is_refused(scenario, one):
    one.hold(calls.Join)
    why = "HandlerStalled: no commit for 5000 ms"
    one.machine.give_back([one.holding(2)], scenario.now_ms, refused=why)
    one.turn()
    assert one.letter(calls.Join).request.reason == f"partitions are given back: {why}"


def test_an_answer_for_a_holding_gives_back_no_later_one_of_its_partition(scenario, one):
    answered = one.holding(2)
    give_back(one, 2)
    scenario.until(lambda: one.member.phase is MembershipPhase.STABLE)
    receive(one)
    one.machine.give_back([answered], scenario.now_ms)
    assert one.machine.ledger.lasts(one.holding(2))
    assert one.member.phase is MembershipPhase.STABLE


def test_a_member_that_drains_keeps_its_partitions_and_takes_no_more(scenario, one):
    other = scenario.member()
    first, second = sorted(revoked(scenario, one))
    give_back(one, first.partition, second.partition)
    scenario.until(lambda: holds(other))
    one.machine.part.drain(1, "", one.scenario.now_ms, leave=False)
    mine = sorted(one.assignment)
    give_back(one, mine[0].partition)
    scenario.until(lambda: holds(other) == {first, second, mine[0]})
    assert one.member.revocations.partitions == {mine[1]}
    assert one.commit({mine[1].partition: 5}) == 1


def test_an_eager_member_that_gives_up_one_partition_is_asked_for_all():
    scenario = ClientScenario("range", partitions=4)
    one = scenario.member()
    scenario.until(lambda: one.member.phase is MembershipPhase.STABLE)
    receive(one)
    give_back(one, 1)
    (revoking,) = receive(one)
    assert revoking.partitions == t(0, 2, 3)
