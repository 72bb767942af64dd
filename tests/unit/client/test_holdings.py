"""Commits count for the holding that the owner knows: slow handlers, slow polls, fast heirs."""

from __future__ import annotations

import pytest

from coordinator.client import CommitFailed, StaleMember
from coordinator.client.member.calls import CommitCall
from coordinator.client.member.classic.membership import MembershipPhase
from coordinator.client.member.ledger import MEMBERSHIP
from coordinator.client.member.part import Leaving
from coordinator.v1 import group_pb2 as pb
from tests.kit.client_scenario import ClientScenario, Player, t

ASSIGNORS = ["range", "roundrobin", "sticky", "cooperative-sticky"]
EAGER, COOPERATIVE = "range", "cooperative-sticky"


@pytest.fixture(params=ASSIGNORS)
def scenario(request) -> ClientScenario:
    return ClientScenario(request.param)


def is_refused(scenario: ClientScenario, player: Player, offsets: dict[int, int], **more) -> bool:
    """True if nothing was sent, and nothing is stored."""
    sent, stored = len(scenario.commits_sent), [scenario.stored(n) for n in offsets]
    with pytest.raises(StaleMember):
        player.commit(offsets, **more)
    assert len(scenario.commits_sent) == sent, "refused before any call"
    assert [scenario.stored(n) for n in offsets] == stored
    return True


def kinds(events: list) -> list[str]:
    return [type(event).__name__ for event in events]


def taken_from(slow: Player, quick: Player) -> int:
    """The number of a partition that the quick one holds and the slow one held."""
    return min(p.partition for p in quick.assignment)


def commit_from_outside():
    topic = {"name": "t", "partitions": [{"partition_index": 1, "committed_offset": 0}]}
    return pb.OffsetCommitRequest(group_id="g", generation_id=-1, topics=[topic])


def play_slow_handler(scenario: ClientScenario) -> tuple[Player, Player, int]:
    """A handler runs through two members' rebalance; the second one has committed 500 already."""
    slow = scenario.member()
    scenario.share(slow)
    scenario.advance(50)
    quick = scenario.member()
    for _ in range(800):
        scenario.advance(10)
        quick.poll()
    moved = taken_from(slow, quick)
    quick.commit({moved: 500})
    return slow, quick, moved


def test_a_slow_handlers_late_commit_does_not_move_its_successors_offset_back(scenario):
    slow, _, moved = play_slow_handler(scenario)
    assert is_refused(scenario, slow, {moved: 10})
    assert scenario.stored(moved) == 500


def test_a_partition_that_went_and_came_back_between_two_polls_is_another_holding(scenario):
    slow, quick, moved = play_slow_handler(scenario)
    quick.leave()
    scenario.advance(8_000)
    assert slow.member.assigned == t(0, 1), "it has both again, and has not polled since"
    assert is_refused(scenario, slow, {moved: 10})
    held = slow.holding(moved)
    events = slow.poll()
    assert kinds(events) == ["Lost", "Granted"]
    assert t(moved) <= events[0].partitions & events[1].partitions
    assert is_refused(scenario, slow, {moved: 10}, holdings=[held])
    assert slow.commit({moved: 501}) == 1


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_a_member_that_gets_nothing_has_no_event_and_is_assigned(assignor):
    scenario = ClientScenario(assignor, partitions=1)
    one, two = scenario.member(), scenario.member()
    heard = {one: [], two: []}
    for _ in range(60):
        scenario.advance(10)
        for member, events in heard.items():
            events += member.poll()
    idle = two if one.assignment else one
    assert idle.machine.state == "stable"
    assert all(event.partitions for events in heard.values() for event in events)
    assert "Granted" not in kinds(heard[idle])
    assert idle.machine.ledger.known((MEMBERSHIP,))


@pytest.mark.parametrize("offset", [-1, -(2**63)])
def test_negative_offsets_are_refused_before_any_call(scenario, offset):
    one = scenario.member()
    scenario.share(one)
    with pytest.raises(CommitFailed, match=r"negative.*t-1") as refused:
        one.commit({0: 5, 1: offset})
    assert refused.value.code == "INVALID_ARGUMENT"
    assert scenario.commits_sent == []


@pytest.mark.parametrize("more", [{}, {"atomic": True}, {"expected": {}}, {"manifest": b"m"}])
def test_every_kind_of_commit_is_refused_once_lost(scenario, more):
    one = scenario.member()
    scenario.share(one)
    one.paused = True
    scenario.advance(2_100)
    assert is_refused(scenario, one, {0: 1}, **more)
    assert kinds(one.poll())[0] == "Lost"
    assert is_refused(scenario, one, {0: 1}, **more)


def test_a_pause_in_the_middle_of_a_revocation_loses_what_stays_too():
    """Both clocks have run out: the session's is the one that counts."""
    scenario = ClientScenario(COOPERATIVE, partitions=4)
    one = scenario.member()
    scenario.share(one)
    scenario.member()
    while one.member.phase is not MembershipPhase.REVOKING:
        scenario.advance(10)
    one.paused = True
    scenario.advance(4_000)
    stays = min(p.partition for p in one.assignment)
    assert is_refused(scenario, one, {stays: 1})


def test_having_finished_with_one_revocation_says_nothing_of_the_next():
    """Told of the first, it polls when the second is there: that poll is not for the second."""
    scenario = ClientScenario(EAGER)
    one = scenario.member()
    scenario.share(one)
    two = scenario.member()
    while not one.poll():
        scenario.advance(10)
        two.poll()
    for _ in range(400):  # The first one's deadline passes; it is given something again.
        scenario.advance(10)
        two.poll()
    assert kinds(one.poll()) == ["Lost", "Granted"]
    assert one.commit({min(one.assignment).partition: 1}) == 1
    two.leave()
    scenario.advance(200)
    assert one.member.phase is MembershipPhase.REVOKING
    assert kinds(one.poll()) == ["Revoking"]
    assert one.member.phase is MembershipPhase.REVOKING, "until the next poll"


def test_a_commit_on_the_way_when_its_holding_ends_is_the_servers_to_judge(scenario):
    one = scenario.member()
    scenario.share(one)
    one.hold_answers(CommitCall)
    answered, unanswered = one.begin_commit({0: 5}), one.begin_commit({1: 6})
    one.machine.close(Leaving("closed"), scenario.now_ms)
    one.turn()
    first, second = one.letters
    first.hand_in()
    assert answered.is_done
    assert answered.error is None
    second.fail()
    scenario.advance(100)
    assert isinstance(unanswered.error, StaleMember), "it is not sent a second time"
    assert len(scenario.commits_sent) == 2
    assert one.machine.is_closed


def test_shown_holdings_cover_every_partition_of_the_commit(scenario):
    one = scenario.member()
    scenario.share(one)
    assert is_refused(scenario, one, {0: 1, 1: 1}, holdings=[one.holding(0)])
    assert is_refused(scenario, one, {0: 1}, holdings=[])
    assert one.commit({0: 1, 1: 1}, holdings=[one.holding(0), one.holding(1)]) == 1


def test_a_holding_that_was_not_handed_out_cannot_be_had(scenario):
    one = scenario.member()
    with pytest.raises(StaleMember, match="not assigned"):
        one.holding(0)
    scenario.advance(100)
    with pytest.raises(StaleMember, match="no poll"):
        one.holding(0)


def test_one_that_stands_in_a_poll_hears_at_once_and_gives_back_with_the_next(scenario):
    one = scenario.member()
    scenario.share(one)
    two = scenario.member()
    began_ms = scenario.now_ms
    assert kinds(one.stand_in_poll(10_000)) == ["Revoking"]
    assert scenario.now_ms - began_ms <= 200, "with the heartbeat after"
    assert kinds(one.stand_in_poll(10_000))[-1:] in (["Granted"], [])
    scenario.share(one, two)
