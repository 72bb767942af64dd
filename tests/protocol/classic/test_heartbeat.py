"""Scenarios 83-95: heartbeats, sessions, and the timelines of awaiting join and sync."""

import pytest

from coordinator.core.group import GroupState
from coordinator.core.values.commands import SessionExpired
from coordinator.core.values.events import MemberEvicted
from tests.kit.classic_scenario import GROUP, ClassicScenario, code


@pytest.fixture
def s() -> ClassicScenario:
    return ClassicScenario()


def test_083_who_is_told_what(s):
    assert s.beat("m", 1) == "UNKNOWN_MEMBER_ID"
    a = s.f1()
    assert s.beat("m", 1) == "UNKNOWN_MEMBER_ID"
    assert s.beat(a, 2) == "ILLEGAL_GENERATION"
    assert s.beat(a, 1) == "NONE"
    s.leave(a)
    assert s.beat(a, 2) == "UNKNOWN_MEMBER_ID"
    s.group().transition_to(GroupState.PREPARING_REBALANCE, 0)
    s.group().state = GroupState.DEAD
    assert s.beat(a, 2) == "COORDINATOR_NOT_AVAILABLE"


def test_083_a_shard_that_was_taken_over_sends_away(s):
    a = s.f1()
    s.c.fail_next_append("fenced")
    s.commit({("t", 0): 1}, member_id=a, generation=1)
    assert s.beat(a, 1) == "NOT_COORDINATOR"


def test_084_a_heartbeat_in_a_join_phase_tells_to_rejoin_and_counts_as_life(s):
    a = s.f1(srt=500, rt=5000)
    t0 = s.c.now_ms
    s.join(rt=5000)
    for at in (400, 800, 1200):
        s.until(t0 + at)
        assert s.beat(a, 1) == "REBALANCE_IN_PROGRESS"


def test_085_silence_ends_a_session_to_the_millisecond(s):
    a = s.f1()
    t0 = s.c.now_ms
    s.until(t0 + 499)
    assert s.members() == [a]
    s.until(t0 + 500)
    assert (s.state, s.generation) == ("Empty", 2)
    assert s.beat(a, 1) == "UNKNOWN_MEMBER_ID"


def test_086_a_heartbeat_prolongs_the_session(s):
    a = s.f1(srt=1000)
    t0 = s.c.now_ms
    s.until(t0 + 500)
    assert s.beat(a, 1) == "NONE"
    s.until(t0 + 1100)
    assert s.beat(a, 1) == "NONE"


def test_087_a_commit_prolongs_the_session(s):
    a = s.f1(srt=1000)
    t0 = s.c.now_ms
    s.until(t0 + 500)
    assert s.commit_codes({("t", 0): 5}, member_id=a, generation=1) == ["NONE"]
    s.until(t0 + 1499)
    assert s.beat(a, 1) == "NONE"


def test_088_a_join_phase_ends_when_the_last_missing_session_does(s):
    a = s.f1(srt=1000, rt=2000)
    t0 = s.c.now_ms
    b = s.join(srt=1000, rt=2000)
    s.until(t0 + 500)
    assert s.beat(a, 1) == "REBALANCE_IN_PROGRESS"
    s.until(t0 + 1499)
    assert not b.done
    s.until(t0 + 1500)
    assert (code(b.response), b.response.generation_id) == ("NONE", 2)
    assert s.members() == [b.response.member_id]


def test_089_a_static_member_that_beats_but_does_not_rejoin(s):
    a_call = s.join(instance="A", srt=1000, rt=1200)
    s.advance(50)
    a = a_call.response.member_id
    s.sync(a, 1, {})
    t0 = s.c.now_ms
    b_call = s.join(srt=5000, rt=1200)
    for at in (500, 1000):
        s.until(t0 + at)
        assert s.beat(a, 1) == "REBALANCE_IN_PROGRESS"
    s.until(t0 + 1200)
    b = b_call.response
    assert (b.generation_id, b.leader) == (2, b.member_id)
    assert a in {m.member_id for m in b.members}
    assert s.beat(a, 1) == "ILLEGAL_GENERATION"
    s.sync(b.member_id, 2, {})
    s.until(t0 + 2199)
    assert s.beat(b.member_id, 2) == "NONE"
    s.until(t0 + 2200)
    assert s.beat(b.member_id, 2) == "REBALANCE_IN_PROGRESS"
    again = s.join(b.member_id, srt=5000, rt=1200).response
    assert (again.generation_id, [m.member_id for m in again.members]) == (3, [b.member_id])
    s.sync(b.member_id, 3, {})
    for _ in range(20):
        s.advance(200)
        assert s.beat(b.member_id, 3) == "NONE"


def test_090_the_new_member_limit_ends_a_join_that_waits_too_long():
    s = ClassicScenario(group_max_session_timeout_ms=10_000_000)
    a = s.f1(srt=1_000_000, rt=1_000_000)
    t0 = s.c.now_ms
    b = s.join(srt=1_000_000, rt=1_000_000)
    s.until(t0 + 299_999)
    assert not b.done
    s.until(t0 + 300_000)
    assert (code(b.response), b.response.member_id) == ("UNKNOWN_MEMBER_ID", "")
    assert s.members() == [a]
    causes = [e.cause.name for _, e in s.c.events if isinstance(e, MemberEvicted)]
    assert causes == ["NEW_MEMBER_TIMED_OUT"]


def test_091_a_member_parked_in_sync_outlives_its_session(s):
    first, second = s.join(srt=300), s.join(srt=5000, rt=5000)
    s.advance(100)
    t0 = s.c.now_ms
    a, b = first.response.member_id, second.response.member_id
    # B waits in SyncGroup while A, the leader, only beats.
    parked = s.sync(b, 1)
    for at in (250, 500, 750):
        s.until(t0 + at)
        assert s.beat(a, 1) == "NONE"
    s.sync(a, 1, {b: b"x"})
    assert parked.response.assignment == b"x"
    assert s.deadline(b) == t0 + 750 + 5000


def test_091_a_member_that_was_parked_in_sync_beyond_its_session_has_one_again(s):
    first, second = s.join(srt=5000, rt=5000), s.join(srt=300)
    s.advance(100)
    t0 = s.c.now_ms
    a, b = first.response.member_id, second.response.member_id
    parked = s.sync(b, 1)
    s.until(t0 + 750)
    s.sync(a, 1, {b: b"x"})
    assert parked.response.assignment == b"x"
    s.until(t0 + 750 + 299)
    assert s.members() == [a, b]
    s.until(t0 + 750 + 300)
    assert s.members() == [a]


def test_091_a_static_member_whose_sync_phase_ended_beyond_its_session_has_one_again(s):
    calls = [s.join(instance=name, srt=srt, rt=5000) for name, srt in (("L", 5000), ("F", 300))]
    s.advance(100)
    leader, follower = (call.response.member_id for call in calls)
    parked = s.sync(follower, 1)
    s.advance(400)
    s.join(leader, instance="L", srt=5000, rt=5000, metadata=b"changed")
    assert code(parked.response) == "REBALANCE_IN_PROGRESS"
    s.advance(299)
    assert s.members() == [leader, follower]
    s.advance(1)
    assert s.members() == [leader]


def test_091_a_member_that_was_parked_in_join_beyond_its_session_has_one_again(s):
    a, b = s.f2(rt=5000)
    parked = s.join(b, rt=5000, metadata=b"changed")
    for _ in range(2):
        s.advance(400)
        s.beat(a, 2)
    s.join(a, rt=5000)
    assert code(parked.response) == "NONE"
    s.advance(499)
    assert b in s.members()
    s.advance(1)
    assert b not in s.members()


def test_092_the_new_member_limit_is_off_once_the_join_is_answered():
    s = ClassicScenario()
    a = s.f1(srt=305_000)
    t0 = s.c.now_ms
    s.until(t0 + 300_000)
    assert s.members() == [a]
    s.until(t0 + 304_999)
    assert s.members() == [a]
    s.until(t0 + 305_000)
    assert s.state == "Empty"


def test_094_a_late_session_timer_changes_nothing(s):
    a = s.f1()
    for member_id in ("gone", a):
        s.c._step(SessionExpired(GROUP, member_id, s.c.now_ms - 1))
        assert (s.state, s.members()) == ("Stable", [a])
    s.group().state = GroupState.DEAD
    s.c._step(SessionExpired(GROUP, a, s.c.now_ms + 500))
    assert s.group().state is GroupState.DEAD


@pytest.mark.parametrize("call", ["beat", "commit", "fetch", "join", "sync"])
def test_095_what_does_not_prolong_a_session(s, call):
    a, b = s.f2()
    t0 = s.c.now_ms
    s.until(t0 + 250)
    s.beat(a, 2)
    match call:
        case "beat":
            assert s.beat(b, 7) == "ILLEGAL_GENERATION"
        case "commit":
            codes = s.commit_codes({("t", 0): 1}, member_id=b, generation=7)
            assert codes == ["ILLEGAL_GENERATION"]
        case "fetch":
            s.fetch()
        case "join":
            assert code(s.join(b).response) == "NONE"
        case "sync":
            assert code(s.sync(b, 7).response) == "ILLEGAL_GENERATION"
    s.until(t0 + 499)
    assert b in s.members()
    s.until(t0 + 500)
    assert b not in s.members()


# --- The four timelines of awaiting join and awaiting sync; seconds after 10:00 ---------------

S = 1000


def timeline() -> ClassicScenario:
    return ClassicScenario(group_initial_rebalance_delay_ms=0)


def three(s: ClassicScenario):
    """C1 (10 s), C2 (20 s, leads) and C3 (40 s) are answered at second 0."""
    calls = {}
    for name, srt in (("C2", 20), ("C1", 10), ("C3", 40)):
        calls[name] = s.join(srt=srt * S, rt=60 * S, client_id=name)
    s.advance(0)
    ids = {name: call.response.member_id for name, call in calls.items()}
    assert calls["C2"].response.leader == ids["C2"]
    return ids["C1"], ids["C2"], ids["C3"]


def test_timeline_1_deadlines_move_with_join_answer_sync_request_and_sync_answer():
    s = timeline()
    call = s.join(srt=5 * S, rt=60 * S)
    s.advance(0)
    member = call.response.member_id
    assert s.deadline(member) == 5 * S
    s.until(1 * S)
    s.c.hold_appends()
    parked = s.sync(member, 1, {member: b"a"})
    assert s.deadline(member) == 6 * S
    s.until(3 * S)
    s.c.release_appends()
    assert parked.done
    assert s.deadline(member) == 8 * S


def test_timeline_2_a_member_awaiting_sync_stays():
    s = ClassicScenario(group_initial_rebalance_delay_ms=0, offset_commit_timeout_ms=60 * S)
    c1, c2, c3 = three(s)
    assert [s.deadline(m) for m in (c1, c2, c3)] == [10 * S, 20 * S, 40 * S]
    s.until(3 * S)
    c1_sync = s.sync(c1, 1)
    assert s.deadline(c1) == 13 * S
    s.until(14 * S)
    assert c1 in s.members()
    assert not c1_sync.done
    s.until(19 * S)
    s.c.hold_appends()
    c2_sync = s.sync(c2, 1, {c1: b"1", c2: b"2", c3: b"3"})
    s.until(25 * S)
    assert not c2_sync.done
    s.c.release_appends()
    assert (c1_sync.response.assignment, c2_sync.response.assignment) == (b"1", b"2")
    assert (s.deadline(c1), s.deadline(c2)) == (35 * S, 45 * S)
    s.until(34 * S)
    assert s.beat(c1, 1) == "NONE"
    s.until(39 * S)
    assert s.sync(c3, 1).response.assignment == b"3"
    assert s.deadline(c3) == 79 * S


def two_stable(s: ClassicScenario):
    """C1 (10 s) and C2 (20 s) get their assignments at second 0."""
    first = s.join(srt=10 * S, rt=60 * S, client_id="C1")
    second = s.join(srt=20 * S, rt=60 * S, client_id="C2")
    s.advance(0)
    c1, c2 = first.response.member_id, second.response.member_id
    parked = s.sync(c2, 1)
    s.sync(c1, 1, {c1: b"1", c2: b"2"})
    assert parked.done
    assert (s.deadline(c1), s.deadline(c2)) == (10 * S, 20 * S)
    return c1, c2


def test_timeline_3_a_member_awaiting_join_stays():
    s = timeline()
    c1, c2 = two_stable(s)
    s.until(2 * S)
    c3_call = s.join(srt=40 * S, rt=60 * S, client_id="C3")
    s.until(3 * S)
    c1_call = s.join(c1, srt=10 * S, rt=60 * S)
    assert s.deadline(c1) == 10 * S  # A join request is no reason to move it.
    s.until(11 * S)
    assert c1 in s.members()
    s.until(15 * S)
    c2_call = s.join(c2, srt=20 * S, rt=60 * S)
    assert [c.response.generation_id for c in (c1_call, c2_call, c3_call)] == [2, 2, 2]
    c3 = c3_call.response.member_id
    assert [s.deadline(m) for m in (c1, c2, c3)] == [25 * S, 35 * S, 55 * S]


def test_timeline_4_a_member_that_never_rejoins_is_removed_and_gets_no_answer():
    s = timeline()
    c1, c2 = two_stable(s)
    s.until(2 * S)
    c3_call = s.join(srt=40 * S, rt=60 * S, client_id="C3")
    s.until(3 * S)
    c1_call = s.join(c1, srt=10 * S, rt=60 * S)
    s.until(20 * S - 1)
    assert not c1_call.done
    s.until(20 * S)
    assert c2 not in s.members()
    assert c1_call.response.generation_id == c3_call.response.generation_id == 2


def test_heartbeats_write_nothing(s):
    a, b = s.f2()
    before = s.c.stored().sequence
    for _ in range(20):
        s.advance(100)
        assert s.beat(a, 2) == s.beat(b, 2) == "NONE"
    assert s.beat("stranger", 2) == "UNKNOWN_MEMBER_ID"
    assert s.c.stored().sequence == before
