"""A static member that restarts in the middle of a hand-over takes its place, not the claims of the
process before it."""

from __future__ import annotations

import pytest

from coordinator.client.member.classic.membership import MembershipPhase
from tests.kit.client_scenario import ClientScenario


@pytest.fixture
def scenario() -> ClientScenario:
    return ClientScenario("cooperative-sticky")


def test_what_a_process_was_to_give_back_is_handed_out_though_it_has_restarted(scenario):
    before = scenario.member(instance_id="i")
    scenario.share(before)
    other = scenario.member()
    scenario.advance(500)
    assert before.member.phase is MembershipPhase.REVOKING
    before.kill()
    after = scenario.member(instance_id="i")
    scenario.share(after, other)
    assert len(after.assignment) == len(other.assignment) == 1


def test_a_restart_between_two_rebalances_calls_for_none(scenario):
    before, other = scenario.member(instance_id="i"), scenario.member()
    scenario.share(before, other)
    generation = other.member.generation
    before.kill()
    after = scenario.member(instance_id="i")
    scenario.share(after, other)
    assert after.member.generation == other.member.generation == generation


@pytest.mark.parametrize("is_first", [True, False])
def test_the_leader_may_restart_too(scenario, is_first):
    """Its new process hands out nothing by itself: the assignment is durable."""
    first = scenario.member(instance_id="i")
    scenario.share(first)
    second = scenario.member(instance_id="j")
    scenario.advance(500)
    assert first.member.phase is MembershipPhase.REVOKING
    first.kill()
    second.kill()
    names = ("i", "j") if is_first else ("j", "i")
    again = []
    for name in names:
        again.append(scenario.member(instance_id=name))
        scenario.settle()
    scenario.share(*again)
    assert sorted(len(member.assignment) for member in again) == [1, 1]
