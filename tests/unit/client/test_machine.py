"""The machine alone: which action is next, after what, and exactly when."""

from __future__ import annotations

import pytest

from coordinator.client import (
    CommitFailed,
    CoordinatorError,
    FatalError,
    StaleMember,
    Unavailable,
)
from coordinator.client.member.calls import (
    Answer,
    Beat,
    BrokenCall,
    CallUnanswered,
    Cancel,
    Code,
    CommitCall,
    Dropped,
    FetchCall,
    FindCoordinator,
    Found,
    HangUp,
    Join,
    LeaveCall,
    MemberCall,
    Overloaded,
    RefusedCall,
    Sync,
    Unimplemented,
)
from coordinator.client.member.classic.membership import MembershipPhase
from coordinator.client.member.classic.part import ClassicPart
from coordinator.client.member.machine import MemberMachine
from coordinator.client.member.part import Leaving
from coordinator.client.settings.configs import ClassicConfig
from coordinator.v1.errors_pb2 import ErrorCode
from tests.kit.client_scenario import ClientScenario, Player

PAUSE_MS = 50
"""The first pause of a back-off, half of its limit."""

FAILURES = {
    # failure: is the coordinator looked for? after how many milliseconds?
    CallUnanswered("gone"): (True, PAUSE_MS),
    Unimplemented("what?"): (True, PAUSE_MS),
    Dropped("busy"): (False, PAUSE_MS),
    Overloaded("full", 1_000): (False, 1_000 + PAUSE_MS),
}
FATAL = [
    (RefusedCall("who?", "PERMISSION_DENIED"), FatalError),
    (RefusedCall("too large", "RESOURCE_EXHAUSTED"), FatalError),
    (RefusedCall("no such field", "INVALID_ARGUMENT"), CoordinatorError),
    (BrokenCall(OSError("no such file")), CoordinatorError),
]


@pytest.fixture
def scenario() -> ClientScenario:
    return ClientScenario("range")


def stable(scenario: ClientScenario) -> Player:
    one = scenario.member()
    scenario.share(one)
    return one


def out(one: Player, kind: type):
    """Have the next request of a kind sent, and lost before it arrives."""
    one.hold(kind)
    one.scenario.until(lambda: any(isinstance(letter.request, kind) for letter in one.letters))
    return one.letter(kind)


@pytest.mark.parametrize("kind", [Join, Sync, Beat])
@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: type(failure).__name__)
def test_a_request_of_the_protocol_that_fails_is_repeated_after_its_back_off(
    scenario, kind, failure
):
    one = scenario.member()
    looks, after_ms = FAILURES[failure]
    out(one, kind).fail(failure)
    one.turn()
    assert one.hang_ups == looks
    assert one.machine.next_deadline() == scenario.now_ms + after_ms
    scenario.advance(after_ms - 1)
    assert not one.letters
    scenario.advance(1)
    assert one.letter(kind).request
    one.release()
    scenario.share(one)


@pytest.mark.parametrize("kind", [Join, Sync, Beat])
@pytest.mark.parametrize(("failure", "error"), FATAL, ids=lambda value: getattr(value, "code", ""))
def test_a_request_that_is_refused_for_good_stops_the_member(scenario, kind, failure, error):
    one = scenario.member()
    out(one, kind).fail(failure)
    one.turn()
    assert one.machine.part.state() == "stopped"
    assert type(one.machine.failure) is error
    assert one.machine.next_deadline() is None
    assert [type(event).__name__ for event in one.poll()][-1] == "Stopping"


@pytest.mark.parametrize(("kind", "stops"), [(Join, True), (Sync, False), (Beat, False)])
def test_who_has_a_place_keeps_it_while_its_token_may_be_exchanged(scenario, kind, stops):
    one = scenario.member()
    out(one, kind).fail(RefusedCall("expired", "UNAUTHENTICATED"))
    one.turn()
    assert (one.machine.part.state() == "stopped") is stops


@pytest.mark.parametrize(
    ("failure", "calls", "error"),
    [
        (CallUnanswered("gone"), 2, None),
        (Dropped("busy"), 2, None),
        (Overloaded("full", 100), 2, None),
        (Unimplemented("what?"), 2, None),
        (RefusedCall("who?", "UNAUTHENTICATED"), 1, CommitFailed),
        (RefusedCall("no", "INVALID_ARGUMENT"), 1, CommitFailed),
        (BrokenCall(ValueError("it is no number")), 1, ValueError),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_becomes_of_a_commit_whose_call_fails(scenario, failure, calls, error):
    one = stable(scenario)
    one.hold(CommitCall)
    operation = one.begin_commit({0: 5})
    one.letter(CommitCall).fail(failure)
    one.release()
    scenario.advance(500)
    assert operation.is_done
    assert len(scenario.commits_sent) == calls - 1
    assert (operation.error is None) if error is None else (type(operation.error) is error)
    assert one.member.phase is MembershipPhase.STABLE


def test_nobody_answers_a_commit_for_thirty_seconds(scenario):
    one = scenario.member(session_timeout_ms=60_000)
    scenario.share(one)
    one.hold(CommitCall, FindCoordinator)
    operation = one.begin_commit({0: 5})
    began_ms = scenario.now_ms
    while not operation.is_done:
        assert scenario.now_ms <= began_ms + 41_000
        scenario.advance(1_000, step_ms=1_000)
    assert scenario.now_ms >= began_ms + 30_000
    assert isinstance(operation.error, Unavailable)


@pytest.mark.parametrize("waits_for", ["its back-off", "a connection"])
def test_a_commit_that_waits_ends_with_its_holding(scenario, waits_for):
    one = stable(scenario)
    if waits_for == "a connection":
        out(one, Beat).fail()
        one.hold(FindCoordinator, CommitCall)
        operation = one.begin_commit({0: 5})
    else:
        one.hold(CommitCall, Beat)
        operation = one.begin_commit({0: 5})
        one.letter(CommitCall).fail(Overloaded("full", 5_000))
    ends_ms = one.member.session_ends_ms
    scenario.advance(ends_ms - scenario.now_ms - 1)
    assert not operation.is_done
    scenario.advance(1)
    assert isinstance(operation.error, StaleMember)
    assert scenario.commits_sent == []


def test_who_waits_for_the_coordinator_is_served_in_order_and_fails_one_by_one(scenario):
    one = stable(scenario)
    one.hold(FindCoordinator)
    out(one, Beat).fail()
    first, second = one.begin_commit({0: 1}), one.begin_commit({1: 2})
    one.deliver(Beat)
    for _ in range(2):
        one.letter(FindCoordinator).fail()
        one.turn()
    assert first.due_ms is not None, "both addresses have failed: it pauses"
    assert second.due_ms is None, "it has the next look"
    one.receive(one.letter(FindCoordinator), Found("a:1"))
    one.release()
    scenario.advance(200)
    assert [first.error, second.error] == [None, None]
    assert [sent.commit.offsets for sent in scenario.commits_sent] == [
        {(("t", 1)): 2},
        {("t", 0): 1},
    ]


def test_a_failure_of_an_older_connection_does_not_close_the_newer(scenario):
    one = stable(scenario)
    one.hold_answers(CommitCall, FetchCall)
    one.begin_commit({0: 1})
    one.machine.fetch(None, scenario.now_ms)
    one.turn()
    fetch, commit = one.letter(FetchCall), one.letter(CommitCall)
    one.letters.remove(fetch)  # Its failure is slower to come.
    commit.fail()
    one.turn()
    scenario.advance(PAUSE_MS)
    assert one.hang_ups == 1
    assert one.letter(CommitCall).call.connection == fetch.call.connection + 1
    one.machine.handle(Answer(fetch.call, CallUnanswered("the old one")), scenario.now_ms)
    one.turn()
    assert one.hang_ups == 1


def test_an_operation_that_nobody_waits_for_is_cancelled(scenario):
    one = stable(scenario)
    one.hold(CommitCall)
    operation = one.begin_commit({0: 5})
    letter = one.letter(CommitCall)
    one.machine.abandon(operation)
    assert one.machine.next_action(scenario.now_ms) == Cancel(letter.call)
    one.machine.handle(Answer(letter.call, CallUnanswered("late")), scenario.now_ms)
    assert one.machine.next_action(scenario.now_ms) is None, "it is not repeated"


# --- The end ---


@pytest.mark.parametrize(
    ("settings", "leave", "leaves"),
    [
        ({}, None, True),
        ({}, False, False),
        ({"instance_id": "i"}, None, False),
        ({"instance_id": "i"}, True, True),
    ],
)
def test_a_static_member_leaves_only_if_it_is_told_to(scenario, settings, leave, leaves):
    one = scenario.member(**settings)
    scenario.share(one)
    one.hold(LeaveCall)
    one.machine.close(Leaving("closed", leave), scenario.now_ms)
    one.turn()
    assert [type(letter.request) for letter in one.letters] == [LeaveCall] * leaves
    if leaves:
        one.letter(LeaveCall).fail()
        one.turn()
    assert one.machine.is_closed
    assert one.hang_ups == 1


def test_closing_gives_up_the_request_that_is_out(scenario):
    one = scenario.member()
    out(one, Join)
    one.machine.close(Leaving("closed"), scenario.now_ms)
    one.turn()
    assert one.letters == []
    assert one.machine.is_closed
    one.machine.close(Leaving("again"), scenario.now_ms)
    assert one.machine.next_action(scenario.now_ms) is None


def test_a_machine_that_was_never_started_asks_nothing_and_closes():
    machine = MemberMachine(ClassicPart, ClassicConfig(group_id="g", topics={}), ["a"], lambda: 0.5)
    assert machine.next_action(0) is None
    assert machine.next_deadline() is None
    machine.close(Leaving("closed"), 0)
    assert machine.next_action(0) is None
    assert machine.is_closed


# --- Time ---


def test_others_that_beat_have_it_beat_and_its_next_is_an_interval_later(scenario):
    one = stable(scenario)
    scenario.advance(30)
    one.machine.part.send_heartbeat_now(scenario.now_ms)
    one.hold(Beat)
    one.turn()
    assert one.letter(Beat).sent_at_ms == scenario.now_ms
    one.release()
    assert one.machine.next_deadline() == scenario.now_ms + 100


def test_a_beat_waits_for_an_answer_a_quarter_of_the_session(scenario):
    one = stable(scenario)
    assert out(one, Beat).call.timeout_ms == 500


def test_work_shown_in_time_moves_the_deadline(scenario):
    one = scenario.member(max_poll_interval_ms=70)
    scenario.share(one)
    polled_ms = scenario.now_ms
    assert one.machine.next_deadline() == polled_ms + 71
    scenario.advance(20)
    one.alive()
    assert one.machine.next_deadline() == polled_ms + 91


def test_every_code_there_is_a_rule_for_is_the_coordinators():
    assert {code.value for code in Code} <= set(ErrorCode.keys())


def test_actions_come_one_at_a_time_and_hanging_up_comes_first(scenario):
    one = stable(scenario)
    one.hold(Beat)
    letter = out(one, Beat)
    one.letters.remove(letter)
    one.machine.handle(Answer(letter.call, CallUnanswered("gone")), scenario.now_ms)
    assert one.machine.next_action(scenario.now_ms) == HangUp()
    assert one.machine.next_action(scenario.now_ms) is None
    find = one.machine.next_action(scenario.now_ms + PAUSE_MS)
    assert isinstance(find, MemberCall)
    assert isinstance(find.request, FindCoordinator)
