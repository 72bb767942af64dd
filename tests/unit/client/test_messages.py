"""The tables of what ownership means, message by message: two machines, one coordinator, no luck.

Each row holds single messages back and delivers them in a named phase.
"""

from __future__ import annotations

import pytest

from coordinator.client import RebalanceInProgress, StaleMember
from coordinator.client.member.calls import Beat, CommitCall, Join, Sync
from coordinator.client.member.classic.membership import MembershipPhase
from coordinator.client.transport.wire import encode
from coordinator.core.group import GroupState
from tests.kit.client_scenario import ClientScenario, Lost, Player

EAGER, COOPERATIVE = "range", "cooperative-sticky"
STORED, REFUSED, WAITS = "stored", "refused", "waits, then is stored"


def played_to(phase: str, scenario: ClientScenario, one: Player, two: Player) -> None:
    """Bring a rebalance that `two` has begun to a phase, with `one` the leader."""
    one.hold(Sync, Beat)
    scenario.advance(10)
    if phase == "preparing":
        assert scenario.coordinator.state("g") is GroupState.PREPARING_REBALANCE
        return
    one.deliver(Beat)
    scenario.until(
        lambda: scenario.coordinator.state("g") is GroupState.AWAITING_SYNC, polling=(one,)
    )
    if phase == "completing":
        return
    one.deliver(Sync)
    scenario.until(
        lambda: (
            one.member.phase is MembershipPhase.STABLE
            and two.member.phase is MembershipPhase.STABLE
        )
    )
    if phase == "stable":
        return
    assert phase == "handed over"
    scenario.share(one, two)


# When the request arrives that was sent before the rebalance: the group's phase, and what becomes
# of a commit of what stays with its member and of what goes to another one.
COMMITS = [
    # assignor, phase, stays, goes
    (EAGER, "preparing", STORED, STORED),
    (EAGER, "completing", REFUSED, REFUSED),
    (EAGER, "stable", REFUSED, REFUSED),
    (EAGER, "handed over", REFUSED, REFUSED),
    (COOPERATIVE, "preparing", STORED, STORED),
    (COOPERATIVE, "completing", WAITS, WAITS),
    (COOPERATIVE, "handed over", STORED, REFUSED),
]


@pytest.mark.parametrize(("assignor", "phase", "stays", "goes"), COMMITS)
@pytest.mark.parametrize("moves", [False, True], ids=["stays", "goes"])
def test_a_commit_that_arrives_in_each_phase(assignor, phase, stays, goes, moves):
    other = ClientScenario(assignor)  # The same group, to know who will have what.
    first = other.member()
    other.share(first)
    second = other.member()
    other.share(first, second)
    scenario = ClientScenario(assignor)
    one = scenario.member()
    scenario.share(one)
    number = min((second if moves else first).assignment).partition
    expected = goes if moves else stays
    one.hold(CommitCall)
    operation = one.begin_commit({number: 7})
    two = scenario.member()
    played_to(phase, scenario, one, two)
    one.letter(CommitCall).deliver()
    one.deliver(CommitCall)
    if expected == WAITS:
        # Nobody has given the partition back yet: it is stored before that happens.
        scenario.settle()
        assert operation.is_waiting
    one.release()
    scenario.settle()
    assert operation.is_done
    if expected == REFUSED:
        assert isinstance(operation.error, StaleMember | RebalanceInProgress)
        assert scenario.stored(number) == -1
    else:
        assert operation.error is None
        assert scenario.stored(number) == 7


# How a holding ends, and what its owner hears of it with the next poll.
def give_back(scenario: ClientScenario, one: Player) -> None:
    scenario.member()
    scenario.until(lambda: one.member.phase is MembershipPhase.REVOKING)
    one.poll()
    one.poll()


def overlook(scenario: ClientScenario, one: Player) -> None:
    scenario.member()
    scenario.until(lambda: one.member.phase is MembershipPhase.REVOKING)
    scenario.advance(one.member.revocations.next_deadline() - scenario.now_ms)


def hear_and_overlook(scenario: ClientScenario, one: Player) -> None:
    scenario.member()
    scenario.until(lambda: one.member.phase is MembershipPhase.REVOKING)
    one.poll()
    scenario.advance(one.member.revocations.next_deadline() - scenario.now_ms)


def lose_the_session(scenario: ClientScenario, one: Player) -> None:
    one.hold(Beat)
    scenario.advance(one.member.session_ends_ms - scenario.now_ms)


def be_forgotten(scenario: ClientScenario, one: Player) -> None:
    one.hold(Beat)
    scenario.until(lambda: one.letters)
    scenario.coordinator.send(encode(one.member.leave_request("an operator's")))
    one.release()
    scenario.settle()


def hang(scenario: ClientScenario, one: Player) -> None:
    scenario.advance(one.member.config.max_poll_interval_ms + 1)


def close(scenario: ClientScenario, one: Player) -> None:
    one.leave()


ENDS = [
    (give_back, [], "it was given back"),
    (overlook, ["Lost"], "before the deadline"),
    (hear_and_overlook, ["Lost"], "before the deadline"),
    (lose_the_session, ["Lost"], "a whole session"),
    (be_forgotten, ["Lost"], "UNKNOWN_MEMBER_ID"),
    (hang, ["Lost"], "no progress"),
    (close, ["Lost", "Stopping"], "closed"),
]


@pytest.mark.parametrize("assignor", [EAGER, COOPERATIVE])
@pytest.mark.parametrize(("end", "heard", "reason"), ENDS, ids=[end.__name__ for end, *_ in ENDS])
def test_once_a_holding_has_ended_nothing_is_sent_for_it(assignor, end, heard, reason):
    scenario = ClientScenario(assignor)
    one = scenario.member(max_poll_interval_ms=5_000)
    scenario.share(one)
    held = {p.partition: one.holding(p.partition) for p in one.assignment}
    end(scenario, one)
    gone = min(n for n, holding in held.items() if not one.machine.ledger.lasts(holding))
    for holdings in (None, [held[gone]]):
        sent = len(scenario.commits_sent)
        with pytest.raises(StaleMember, match=reason):
            one.commit({gone: 9}, holdings=holdings)
        assert len(scenario.commits_sent) == sent
    events = one.poll()
    assert [type(event).__name__ for event in events][: len(heard)] == heard
    assert all(reason in event.reason for event in events if isinstance(event, Lost))
    scenario.advance(6_000)  # Joined again, it may have the same partition: another holding.
    one.poll()
    with pytest.raises(StaleMember):
        one.commit({gone: 9}, holdings=[held[gone]])
    assert scenario.stored(gone) == -1


def test_the_answer_to_a_heartbeat_of_the_time_before_says_nothing_of_the_new_one():
    """REBALANCE_IN_PROGRESS of the old generation comes when the new one is stable."""
    scenario = ClientScenario(COOPERATIVE)
    one = scenario.member()
    scenario.share(one)
    one.hold_answers(Beat)
    scenario.until(lambda: one.letters)
    late = one.letter(Beat)
    late.fail()  # Its answer is lost; the member asks again, and hears of the round.
    two = scenario.member()
    one.release()
    scenario.share(one, two)
    held = one.assignment
    scenario.advance(300)
    assert one.poll() == []
    assert one.assignment == held


def test_a_join_whose_answer_is_lost_is_sent_again_under_the_same_id():
    scenario = ClientScenario(COOPERATIVE)
    one = scenario.member()
    one.two_phase = True
    one.hold_answers(Join)
    scenario.settle()
    one.letter(Join).hand_in()  # MEMBER_ID_REQUIRED
    scenario.advance(10)
    known = one.member.member_id
    one.letter(Join).fail()
    one.release()
    scenario.share(one)
    assert one.member.member_id == known
    assert one.hang_ups == 1


def test_a_heartbeat_that_is_out_does_not_put_off_the_end_of_a_revocation():
    scenario = ClientScenario(EAGER)
    one = scenario.member(session_timeout_ms=20_000)
    scenario.share(one)
    scenario.member()
    scenario.until(lambda: one.member.phase is MembershipPhase.REVOKING)
    one.hold(Beat)
    scenario.until(lambda: one.letters)
    scenario.advance(one.member.revocations.next_deadline() - scenario.now_ms - 1)
    assert one.member.phase is MembershipPhase.REVOKING
    scenario.advance(1)
    assert [type(event) for event in one.poll()] == [Lost]
    one.release()
    scenario.share(*scenario.players)


def test_of_two_commits_in_reverse_order_the_later_to_arrive_stays():
    scenario = ClientScenario(EAGER)
    one = scenario.member()
    scenario.share(one)
    one.hold(CommitCall)
    operations = [one.begin_commit({0: offset}) for offset in (1, 2)]
    for letter in reversed(one.letters):
        letter.deliver()
    one.release()
    assert [operation.error for operation in operations] == [None, None]
    assert scenario.stored(0) == 1
