"""Messages of a member: its log, its state, and what a commit waits for. Message by message."""

from __future__ import annotations

import itertools
import re

import pytest

from coordinator.client import RebalanceInProgress, StaleMember, Unavailable
from coordinator.client.member.calls import (
    Beat,
    CallUnanswered,
    Code,
    CommitCall,
    Committed,
    FindCoordinator,
    Join,
    Level,
    Overloaded,
    Sync,
)
from coordinator.client.member.part import Leaving
from coordinator.v1 import group_pb2 as pb
from tests.kit.client_scenario import ClientScenario, Player

ASSIGNORS = ["range", "cooperative-sticky"]


@pytest.fixture(params=ASSIGNORS)
def scenario(request) -> ClientScenario:
    return ClientScenario(request.param)


def lines(player: Player, level: Level = Level.INFO) -> list[str]:
    """Lines of a level, without the name."""
    for _, text in player.logged:
        assert re.match(r"member \S+( an id yet)? of group g: ", text), text
        assert "\n" not in text
    return [text.partition(" of group g: ")[2] for at, text in player.logged if at is level]


def warnings(player: Player) -> list[str]:
    return lines(player, Level.WARNING)


def ms(player: Player) -> int:
    return round(player.machine.state.since.timestamp() * 1000)


def leave_of(player: Player) -> pb.LeaveGroupRequest:
    member = {"member_id": player.member.member_id}
    return pb.LeaveGroupRequest(group_id="g", members=[member])


def down(scenario: ClientScenario, **settings) -> Player:
    """A member without a server."""
    player = scenario.member(**settings)
    player.hold(FindCoordinator)
    player.turn()
    return player


def refuse_connections(player: Player, ms: int) -> None:
    """Let time pass; each attempt fails at once."""
    for _ in range(0, ms, 10):
        player.scenario.advance(10)
        for letter in list(player.letters):
            letter.fail(CallUnanswered("connection refused"))


# --- The log ---


def test_the_life_of_a_member_is_told_line_by_line(scenario):
    one = scenario.member(client_id="worker-1")
    scenario.share(one)
    two = scenario.member()
    scenario.share(one, two)
    one.leave()
    warnings = lines(one)
    assert re.fullmatch(r"joined generation 1, as leader of 1: [a-z-]+", warnings[0])
    assert warnings[1] == "assigned t-0…1"
    assert any(re.fullmatch(r"revoking t-[01](…1)?, .* within 2000 ms", line) for line in warnings)
    assert any(re.fullmatch(r"gives back t-[01](…1)?", line) for line in warnings)
    assert warnings[-1] == "left: closed"
    assert lines(one, Level.WARNING) == []


def test_a_static_member_that_is_closed_says_that_its_place_is_kept(scenario):
    one = scenario.member(instance_id="i")
    scenario.share(one)
    one.leave()
    assert (
        lines(one)[-1] == "closed without leaving: its place is kept until its session ends: closed"
    )


def test_a_late_poll_is_warned_of(scenario):
    one = scenario.member()
    scenario.share(one)
    two = scenario.member()
    for _ in range(300):
        scenario.advance(10)
        two.poll()
    (late,) = lines(one, Level.WARNING)
    assert re.fullmatch(r"late poll, lost t-[01](…1)?: it was not given back before .*", late)


def test_a_stale_commit_is_warned_of(scenario):
    one = scenario.member()
    with pytest.raises(StaleMember):
        one.commit({0: 1})
    one.turn()
    (warning,) = lines(one, Level.WARNING)
    assert warning.startswith("stale commit: nothing was sent")
    assert "t-0" in warning


def test_a_commit_that_the_coordinator_finds_stale_is_warned_of(scenario):
    one = scenario.member()
    scenario.share(one)
    one.hold(Beat)
    scenario.coordinator.send(leave_of(one))
    with pytest.raises(StaleMember):
        one.commit({0: 1})
    assert any(line.startswith("stale commit: UNKNOWN_MEMBER_ID") for line in warnings(one))


def test_a_lost_session_is_warned_of_with_what_was_lost(scenario):
    one = scenario.member()
    scenario.share(one)
    one.hold(object)
    scenario.advance(2_100)
    assert any(line.startswith("lost t-0…1: the coordinator has not") for line in warnings(one))


# --- Silence ---


def test_a_server_that_is_down_at_start_is_told_within_two_seconds(scenario):
    one = down(scenario)
    refuse_connections(one, 2_000)
    (told,) = warnings(one)
    assert told.startswith("coordinator unreachable since ")
    assert "at a:1, b:2" in told or "at b:2, a:1" in told
    assert "connection refused" in told
    assert lines(one) == []


def test_a_server_that_hangs_at_start_is_told_within_two_seconds(scenario):
    """The call has a time-out of its own, which is longer."""
    one = down(scenario, session_timeout_ms=45_000)
    assert one.machine.next_deadline() == scenario.now_ms + 1_250
    scenario.advance(2_000)
    (told,) = warnings(one)
    assert "no answer yet" in told


def test_it_is_told_again_at_growing_intervals_up_to_a_minute(scenario):
    one = down(scenario)
    times: list[int] = []
    for _ in range(2_600):
        refuse_connections(one, 100)
        if len(warnings(one)) > len(times):
            times.append(scenario.now_ms)
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert gaps[:5] == pytest.approx([2_500, 5_000, 10_000, 20_000, 40_000], abs=200)
    assert gaps[5:] == pytest.approx([60_000] * len(gaps[5:]), abs=200)
    assert len(gaps) >= 6


def test_it_is_told_when_the_coordinator_answers_again(scenario):
    one = down(scenario)
    refuse_connections(one, 5_000)
    one.release()
    scenario.share(one)
    assert lines(one)[0].startswith("the coordinator answers again, after 5.")
    silent = len(one.logged)
    scenario.advance(10_000)
    assert len(one.logged) == silent


def test_heartbeats_that_a_loading_node_answers_are_not_told_as_its_return(scenario):
    """It keeps its members, and refuses all else until it has loaded the group."""
    one = scenario.member(session_timeout_ms=60_000)
    scenario.share(one)
    before = len(lines(one))
    one.hold(CommitCall)
    one.begin_commit({0: 5})
    for _ in range(100):
        scenario.advance(100)
        for letter in list(one.letters):
            letter.fail(Committed(codes=(Code.COORDINATOR_LOAD_IN_PROGRESS,), message="it loads"))
    assert lines(one)[before:] == []
    assert any("COORDINATOR_LOAD_IN_PROGRESS: it loads" in line for line in warnings(one))
    one.release()
    scenario.advance(5_000)
    (line,) = (line for line in lines(one) if "answers again" in line)
    assert 10 <= float(line.split()[-2]) < 16


def test_a_coordinator_that_goes_away_later_is_told_of_too(scenario):
    one = scenario.member(session_timeout_ms=60_000)
    scenario.share(one)
    one.hold(Beat, FindCoordinator)
    for _ in range(60):
        scenario.advance(100)
        for letter in list(one.letters):
            letter.fail(CallUnanswered("gone"))
    assert any("coordinator unreachable" in line and "gone" in line for line in warnings(one))


def test_a_join_that_waits_for_others_is_no_silence(scenario):
    """Its answer takes as long as the slowest member."""
    slow = scenario.member()
    scenario.share(slow)
    one = scenario.member()
    scenario.advance(1_900)
    assert warnings(one) == []


@pytest.mark.parametrize("failure", [Overloaded("full", 100), CallUnanswered("")])
def test_a_coordinator_that_never_serves_is_silence_even_if_one_is_found(scenario, failure):
    one = scenario.member()
    one.hold(Join)
    for _ in range(200):
        scenario.advance(10)
        for letter in list(one.letters):
            letter.fail(failure)
    assert len(warnings(one)) == 1


def test_a_member_that_is_closed_or_idle_is_silent(scenario):
    one = down(scenario)
    one.machine.close(Leaving("closed"), scenario.now_ms)
    scenario.advance(100_000)
    assert warnings(one) == []


# --- The state ---


def test_the_state_in_each_phase_and_since_when(scenario):
    one = down(scenario)
    assert one.machine.state == "connecting"
    began_ms = scenario.now_ms
    refuse_connections(one, 500)
    assert one.machine.state == "connecting"
    assert ms(one) == began_ms
    assert "connection refused" in one.machine.state.last_error
    assert not one.machine.is_connected
    one.release()
    one.hold(Join)
    one.turn()
    scenario.until(lambda: one.machine.state == "joining")
    one.hold(Sync)
    one.deliver(Join)
    scenario.until(lambda: one.machine.state == "syncing")
    assert one.machine.is_connected
    one.release()
    scenario.advance(10)
    assert one.machine.state == "stable"
    assert one.machine.state.last_error is None
    since_ms = ms(one)
    scenario.advance(500)
    assert ms(one) == since_ms
    one.poll()
    scenario.member()
    scenario.until(lambda: one.machine.state == "revoking")
    one.leave()
    assert one.machine.state == "stopped"
    assert one.machine.state.last_error is None


def test_an_idle_member_says_why(scenario):
    one = scenario.member(max_poll_interval_ms=300)
    one.poll()
    scenario.advance(600)
    assert one.machine.state == "idle"
    assert "no progress" in one.machine.state.last_error
    scenario.share(one)
    assert one.machine.state.last_error is None


def test_a_refused_member_says_why():
    scenario = ClientScenario("range")
    scenario.share(scenario.member())
    refused = scenario.member(assignors=("sticky",))
    scenario.advance(100)
    assert refused.machine.state == "stopped"
    assert "INCONSISTENT_GROUP_PROTOCOL" in refused.machine.state.last_error
    assert repr(refused.machine.state).startswith("<stopped since ")


# --- What a commit waits for ---


@pytest.mark.parametrize("held", ["request", "answer"])
def test_a_commit_ends_at_its_timeout_and_says_that_no_answer_came(scenario, held):
    one = scenario.member()
    scenario.share(one)
    (one.hold if held == "request" else one.hold_answers)(CommitCall)
    commit = one.begin_commit({0: 1}, timeout_ms=700)
    scenario.advance(690)
    assert not commit.is_done
    scenario.advance(10)
    assert isinstance(commit.error, Unavailable)
    assert "within 0.7 s: the call has had no answer" in str(commit.error)
    assert one.letters == [], "its call is given up"


def test_a_commit_to_a_coordinator_that_is_gone_says_why(scenario):
    one = scenario.member(session_timeout_ms=60_000)
    scenario.share(one)
    one.hold(CommitCall)
    commit = one.begin_commit({0: 1}, timeout_ms=700)
    one.letter(CommitCall).fail(CallUnanswered("connection refused"))
    one.hold(FindCoordinator)
    refuse_connections(one, 700)
    assert "within 0.7 s: connection refused" in str(commit.error)


def test_a_commit_that_waits_for_an_assignment_says_so():
    scenario = ClientScenario("cooperative-sticky", partitions=4)
    leader = scenario.member()
    scenario.share(leader)
    follower = scenario.member()
    scenario.share(leader, follower)
    kept = min(p.partition for p in follower.assignment)
    scenario.member()
    leader.hold(Sync)
    scenario.until(lambda: follower.machine.state == "syncing")
    commit = follower.begin_commit({kept: 3}, timeout_ms=900)
    scenario.advance(900)
    assert isinstance(commit.error, RebalanceInProgress)
    assert "waited 0.9 s for the assignment of the next generation" in str(commit.error)
    assert "syncing" in str(commit.error)
