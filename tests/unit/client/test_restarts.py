"""A static member that restarts in the middle of a hand-over takes its place, not the claims of the
process before it."""

from __future__ import annotations

import pytest

from coordinator.client.member.classic.membership import MembershipPhase
from tests.unit.client.kit import World


@pytest.fixture
def world() -> World:
    return World("cooperative-sticky")


def test_what_a_process_was_to_give_back_is_handed_out_though_it_has_restarted(world):
    before = world.member(instance_id="i")
    world.share(before)
    other = world.member()
    world.advance(500)
    assert before.member.phase is MembershipPhase.REVOKING
    before.kill()
    after = world.member(instance_id="i")
    world.share(after, other)
    assert len(after.assignment) == len(other.assignment) == 1


def test_a_restart_between_two_rebalances_calls_for_none(world):
    before, other = world.member(instance_id="i"), world.member()
    world.share(before, other)
    generation = other.member.generation
    before.kill()
    after = world.member(instance_id="i")
    world.share(after, other)
    assert after.member.generation == other.member.generation == generation


@pytest.mark.parametrize("is_first", [True, False])
def test_the_leader_may_restart_too(world, is_first):
    """Its new process hands out nothing by itself: the assignment is durable."""
    first = world.member(instance_id="i")
    world.share(first)
    second = world.member(instance_id="j")
    world.advance(500)
    assert first.member.phase is MembershipPhase.REVOKING
    first.kill()
    second.kill()
    names = ("i", "j") if is_first else ("j", "i")
    again = []
    for name in names:
        again.append(world.member(instance_id=name))
        world.settle()
    world.share(*again)
    assert sorted(len(member.assignment) for member in again) == [1, 1]
