"""A group moves from range to cooperative-sticky and back, member by member, under work."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coordinator.client import FatalError, StaleMember
from coordinator.client.member.calls import Join
from coordinator.client.member.classic.assignor_choice import REFUSALS_MAX
from coordinator.client.member.classic.membership import MembershipPhase
from coordinator.v1 import group_pb2 as pb
from tests.kit.client_scenario import ClientScenario, Lost, Player, t

RANGE = {"assignors": ("range",)}
COOPERATIVE = {"assignors": ("cooperative-sticky",)}
BOTH = {"assignors": ("cooperative-sticky", "range")}
NEW_DEFAULT = {"assignors": ("cooperative-sticky",), "fallback_assignor": "range"}
PARTITIONS = 6


class Group:
    """Members that poll every 30 ms; nothing may ever be held by two of them."""

    def __init__(self, *settings: dict) -> None:
        self.scenario = ClientScenario("range", partitions=PARTITIONS)
        self.members = [self.scenario.member(**one) for one in settings]
        self.settle()

    def work(self, ms: int) -> None:
        for now in range(0, ms, 10):
            self.scenario.advance(10)
            for member in self.members if now % 30 == 0 else []:
                member.poll()
            held = [p for member in self.members for p in member.assignment]
            assert len(held) == len(set(held)), "held by two"

    def settle(self) -> None:
        for _ in range(100):
            self.work(100)
            if sum(len(member.assignment) for member in self.members) == PARTITIONS:
                return
        raise AssertionError("something stays without an owner")

    def restart(self, number: int, settings: dict, *, end: Callable[[Player], object]) -> Player:
        end(self.members.pop(number))
        self.work(50)
        self.members.insert(number, self.scenario.member(**settings))
        self.work(200)
        return self.members[number]

    def restart_all(self, settings: dict, *, end: Callable[[Player], object]) -> None:
        for number in range(len(self.members)):
            self.restart(number, settings, end=end)
            self.settle()

    @property
    def assignor(self) -> str:
        return self.scenario.coordinator.shard.machine.groups["g"].protocol_name


@pytest.mark.parametrize("end", [Player.leave, Player.kill], ids=["leaves", "killed"])
@pytest.mark.parametrize("first", [RANGE, NEW_DEFAULT], ids=["from range", "by the default"])
def test_two_rolling_restarts_move_a_group_over_and_two_more_move_it_back(end, first):
    group = Group(RANGE, RANGE, RANGE)
    for settings, assignor in [
        (first, "range"),
        (BOTH, {"range", "cooperative-sticky"}),
        (COOPERATIVE, "cooperative-sticky"),
        (BOTH, {"range", "cooperative-sticky"}),
        (RANGE, "range"),
    ]:
        group.restart_all(settings, end=end)
        assert group.assignor in assignor
    assert [member.left_because for member in group.members] == [[]] * 3


def test_one_with_the_new_default_joins_a_group_on_range_and_says_how_to_move_over():
    group = Group(RANGE, RANGE)
    new = group.restart(0, NEW_DEFAULT, end=Player.leave)
    group.settle()
    assert new.assignment
    assert group.assignor == "range"
    assert not new.member.assignors.is_cooperative
    (said,) = new.warnings
    assert "refuses cooperative-sticky" in said
    assert "['cooperative-sticky', 'range']" in said
    assert "twice" in said


def test_ones_with_the_new_default_alone_are_cooperative():
    group = Group(NEW_DEFAULT, NEW_DEFAULT)
    assert group.assignor == "cooperative-sticky"
    assert all(member.member.assignors.is_cooperative for member in group.members)
    assert [member.warnings for member in group.members] == [[], []]


def test_one_that_fell_back_and_lost_everything_follows_a_group_that_has_moved():
    """Its session ends unseen; meanwhile the others are on cooperative-sticky."""
    group = Group(RANGE, NEW_DEFAULT)
    cut = group.members[1]
    assert not cut.member.assignors.is_cooperative
    cut.paused = True
    group.work(2_500)
    group.restart(0, COOPERATIVE, end=Player.leave)
    assert group.assignor == "cooperative-sticky"
    cut.paused = False
    group.settle()
    assert cut.member.assignors.is_cooperative
    assert cut.assignment
    refusals = [text for text in cut.warnings if "refuses" in text]
    assert len(refusals) == 2
    assert "twice" not in refusals[1]


def test_one_that_names_range_alone_is_refused_by_a_cooperative_group_and_shown_the_way():
    group = Group(COOPERATIVE)
    refused = group.scenario.member(**RANGE)
    group.work(200)
    assert refused.member.phase is MembershipPhase.STOPPED
    assert isinstance(refused.machine.failure, FatalError)
    assert refused.machine.failure.code == "INCONSISTENT_GROUP_PROTOCOL"
    assert "assignors=['cooperative-sticky', 'range']" in str(refused.machine.failure)
    assert group.members[0].assignment == t(*range(PARTITIONS))


def test_a_group_that_follows_neither_refuses_the_default_for_good():
    group = Group({"assignors": ("roundrobin",)})
    refused = group.scenario.member(**NEW_DEFAULT)
    group.work(500)
    assert refused.member.phase is MembershipPhase.STOPPED
    assert refused.machine.failure.code == "INCONSISTENT_GROUP_PROTOCOL"
    assert len(refused.warnings) == REFUSALS_MAX, "the last says that it has stopped"


def test_it_holds_nothing_when_it_begins_to_be_eager():
    """Its JoinGroup is on the way with all it has, when the group becomes one of range."""
    group = Group(NEW_DEFAULT)
    late = group.members[0]
    held = late.holding(0)
    late.hold(Join)
    second = group.scenario.member(**COOPERATIVE)
    group.work(300)
    assert late.letter(Join)
    second.leave()
    group.scenario.coordinator.send(
        pb.LeaveGroupRequest(group_id="g", members=[{"member_id": late.member.member_id}])
    )
    successor = group.scenario.member(**RANGE)
    group.scenario.advance(100)
    assert successor.poll()
    late.release()
    group.scenario.advance(10)
    assert late.warnings
    assert late.assignment == frozenset()
    assert late.poll()[0] == Lost(t(*range(PARTITIONS)), "INCONSISTENT_GROUP_PROTOCOL")
    with pytest.raises(StaleMember):
        late.commit({0: 1}, holdings=[held])
    group.members.append(successor)
    group.settle()
    assert group.assignor == "range"
    assert late.assignment
