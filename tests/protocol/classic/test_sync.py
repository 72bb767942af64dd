"""Scenarios 61-82: SyncGroup."""

import pytest

from tests.kit.classic_scenario import ClassicScenario, code


@pytest.fixture
def s() -> ClassicScenario:
    return ClassicScenario()


def cr(s: ClassicScenario):
    """F2's members and a third, C, in CompletingRebalance with generation 3."""
    a, b = s.f2()
    c_call = s.join()
    s.join(a), s.join(b)
    assert (s.state, s.generation) == ("CompletingRebalance", 3)
    return a, b, c_call.response.member_id


def test_061_strangers_are_unknown(s):
    assert code(s.sync("m", 1).response) == "UNKNOWN_MEMBER_ID"
    s.f1()
    assert code(s.sync("m", 1).response) == "UNKNOWN_MEMBER_ID"


def test_062_a_wrong_generation_is_illegal_in_every_state(s):
    a, b, _ = cr(s)
    assert code(s.sync(a, 7).response) == "ILLEGAL_GENERATION"
    s.join(b, metadata=b"changed")
    assert s.state == "PreparingRebalance"
    assert code(s.sync(a, 7).response) == "ILLEGAL_GENERATION"


def test_063_the_old_generation_is_illegal_after_a_rebalance(s):
    a, _, _ = cr(s)
    assert code(s.sync(a, 2).response) == "ILLEGAL_GENERATION"


@pytest.mark.parametrize("leader", [True, False])
@pytest.mark.parametrize(
    "wrong",
    [
        {"protocol_type": "whatever"},
        {"protocol_name": "whatever"},
        {"protocol_type": "whatever", "protocol_name": "range"},
        {"protocol_type": "consumer", "protocol_name": "whatever"},
    ],
)
def test_064_protocol_type_and_name_are_checked_if_given(s, leader, wrong):
    a, b, _ = cr(s)
    response = s.sync(a if leader else b, 3, **wrong).response
    assert code(response) == "INCONSISTENT_GROUP_PROTOCOL"
    assert s.state == "CompletingRebalance"


def test_064_both_absent_or_both_right_are_accepted(s):
    a, b, _ = cr(s)
    follower = s.sync(b, 3, protocol_type="consumer", protocol_name="range")
    assert code(s.sync(a, 3, {a: b"x", b: b"y"}).response) == "NONE"
    response = follower.response
    assert (response.protocol_type, response.protocol_name) == ("consumer", "range")
    assert response.assignment == b"y"


def test_065_an_empty_assignment_is_an_assignment(s):
    a = s.join()
    s.advance(50)
    response = s.sync(a.response.member_id, 1, {}).response
    assert (code(response), response.assignment, s.state) == ("NONE", b"", "Stable")


def test_066_a_follower_may_come_after_the_leader(s):
    a, b, _ = cr(s)
    s.sync(a, 3, {a: b"x", b: b"y"})
    assert s.state == "Stable"
    assert s.sync(b, 3).response.assignment == b"y"


def test_067_a_follower_that_comes_first_waits_for_the_leader(s):
    a, b, _ = cr(s)
    follower = s.sync(b, 3)
    assert not follower.done
    leader = s.sync(a, 3, {a: b"x", b: b"y"})
    assert (leader.response.assignment, follower.response.assignment) == (b"x", b"y")


def test_068_members_left_out_get_nothing_and_strangers_are_ignored(s):
    a, b, _ = cr(s)
    follower = s.sync(b, 3)
    s.sync(a, 3, {a: b"x", "stranger": b"z"})
    assert (code(follower.response), follower.response.assignment) == ("NONE", b"")
    assert "stranger" not in s.members()


def test_069_an_assignment_from_a_follower_is_ignored(s):
    a, b, _ = cr(s)
    assert not s.sync(b, 3, {a: b"usurped"}).done
    assert s.sync(a, 3, {a: b"x"}).response.assignment == b"x"


def test_070_in_a_join_phase_the_answer_is_to_rejoin(s):
    a, b, _ = cr(s)
    s.join(b, metadata=b"changed")
    assert code(s.sync(a, 3).response) == "REBALANCE_IN_PROGRESS"


def test_070_before_the_first_generation_no_protocol_is_wrong(s):
    s.join()
    [a] = s.members()
    call = s.sync(a, 0, {}, protocol_type="consumer", protocol_name="range")
    assert code(call.response) == "REBALANCE_IN_PROGRESS"


def test_071_followers_are_released_when_the_leader_stays_silent(s):
    a, b, _c = cr(s)
    parked = s.sync(b, 3)
    s.advance(499)
    assert not parked.done
    s.advance(1)
    assert code(parked.response) == "REBALANCE_IN_PROGRESS"
    assert a not in s.members()


def test_072_a_second_sync_of_a_member_takes_the_place_of_the_first(s):
    a, b, _ = cr(s)
    first, second = s.sync(b, 3), s.sync(b, 3)
    assert code(first.response) == "REBALANCE_IN_PROGRESS"
    s.sync(a, 3, {b: b"y"})
    assert second.response.assignment == b"y"


def test_073_members_that_never_sync_are_removed_though_they_beat(s):
    members, t0 = s.n3()
    s.until(t0 + 250)
    assert [s.beat(m, 1) for m in members] == ["NONE"] * 3
    s.until(t0 + 500)
    assert [s.beat(m, 1) for m in members] == ["UNKNOWN_MEMBER_ID"] * 3
    assert (s.state, s.generation) == ("Empty", 2)


def test_073_a_sync_phase_lasts_the_longest_rebalance_timeout(s):
    calls = [s.join(srt=5_000, rt=rt) for rt in (2_000, 500)]
    s.advance(100)
    members = [call.response.member_id for call in calls]
    s.advance(1_999)
    assert s.members() == members
    s.advance(1)
    assert s.members() == []


def test_074_the_sync_timer_outlives_the_switch_to_stable(s):
    members, t0 = s.n3()
    s.until(t0 + 250)
    s.sync(members[0], 1, dict.fromkeys(members, b"x"))
    assert s.state == "Stable"
    for m in members[1:]:
        assert s.beat(m, 1) == "NONE"
    s.until(t0 + 500)
    assert [s.beat(m, 1) for m in members] == [
        "REBALANCE_IN_PROGRESS",
        "UNKNOWN_MEMBER_ID",
        "UNKNOWN_MEMBER_ID",
    ]


def test_075_only_the_followers_that_did_not_sync_are_removed(s):
    members, t0 = s.n3()
    s.until(t0 + 250)
    s.sync(members[0], 1, {}), s.sync(members[1], 1)
    s.beat(members[2], 1)
    s.until(t0 + 500)
    assert [s.beat(m, 1) for m in members] == [
        "REBALANCE_IN_PROGRESS",
        "REBALANCE_IN_PROGRESS",
        "UNKNOWN_MEMBER_ID",
    ]


def test_073_a_static_member_that_never_syncs_is_removed_like_any_other(s):
    calls = {name: s.join(instance=name, srt=5_000) for name in "LF"}
    s.advance(100)
    leader, follower = (call.response.member_id for call in calls.values())
    s.sync(leader, 1, {leader: b"l", follower: b"f"})
    s.advance(499)
    assert s.beat(follower, 1, instance="F") == "NONE"
    s.advance(1)
    assert s.members() == [leader]
    assert s.beat(leader, 1) == "REBALANCE_IN_PROGRESS"


def test_076_nothing_happens_when_all_have_synced(s):
    members, t0 = s.n3()
    s.until(t0 + 250)
    for m in members:
        s.sync(m, 1, {})
    for at in (501, 750):
        s.until(t0 + at)
        assert [s.beat(m, 1) for m in members] == ["NONE"] * 3
    assert (s.state, s.generation) == ("Stable", 1)


def test_077_a_sync_timer_of_an_earlier_generation_has_no_effect(s):
    members, t0 = s.n3()
    s.until(t0 + 400)
    # The leader moves the group on before anyone has synced.
    calls = [s.join(m, metadata=b"changed") for m in members]
    assert [c.response.generation_id for c in calls] == [2, 2, 2]
    s.until(t0 + 600)
    assert (s.state, s.generation, len(s.members())) == ("CompletingRebalance", 2, 3)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("too_large", "UNKNOWN_SERVER_ERROR"),
        ("full", "COORDINATOR_NOT_AVAILABLE"),
        ("fenced", "NOT_COORDINATOR"),
    ],
)
def test_079_080_a_refused_write_answers_all_syncs_and_rebalances(s, kind, expected):
    a, b, _ = cr(s)
    parked = s.sync(b, 3)
    s.c.fail_next_append(kind)
    leader = s.sync(a, 3, {a: b"x", b: b"y"})
    assert {code(leader.response), code(parked.response)} == {expected}
    if kind == "fenced":
        assert s.beat(a, 3) == "NOT_COORDINATOR"
    else:
        assert s.state == "PreparingRebalance"
        assert all(m.assignment == b"" for m in s.group().members.values())


def test_080_an_ambiguous_write_is_resolved_by_its_sequence_number(s):
    a, _, _ = cr(s)
    before = s.c.stored().sequence
    s.c.fail_next_append("ambiguous")
    assert code(s.sync(a, 3, {a: b"x"}).response) == "NONE"
    assert s.c.stored().sequence == before + 1  # Written once.


def test_080_what_an_ambiguous_write_did_stays_open_while_its_retry_is_refused(s):
    a, _, _ = cr(s)
    s.c.fail_next_append("ambiguous")
    s.c.fail_next_append("unavailable")  # This says nothing of the first attempt.
    s.c.fail_next_append("too_large")
    assert code(s.sync(a, 3, {a: b"x"}).response) == "NONE"
    s.restart()
    assert (s.state, s.generation) == ("Stable", 3)


def test_081_a_late_result_does_not_disturb_a_group_that_moved_on(s):
    a, b, _c = cr(s)
    s.c.hold_appends()
    leader = s.sync(a, 3, {a: b"x"})
    parked = s.join(b, metadata=b"changed")
    assert code(leader.response) == "REBALANCE_IN_PROGRESS"
    s.c.release_appends()
    assert s.state == "PreparingRebalance"
    assert not parked.done


def test_081_a_late_result_does_not_complete_the_sync_phase_of_a_later_generation(s):
    a = s.join(srt=5_000, rt=5_000)
    s.advance(50)
    a = a.response.member_id
    s.c.hold_appends()
    s.sync(a, 1, {a: b"a1"})
    calls = [s.join(srt=5_000, rt=5_000), s.join(a, srt=5_000, rt=5_000)]
    assert (s.state, s.generation) == ("CompletingRebalance", 2)
    s.c.release_appends()
    assert {call.response.generation_id for call in calls} == {2}
    assert s.state == "CompletingRebalance"
    b = calls[0].response.member_id
    assert not s.sync(b, 2).done
    assert s.sync(a, 2, {a: b"a2", b: b"b2"}).response.assignment == b"a2"
    assert s.sync(b, 2).response.assignment == b"b2"


def test_079_a_member_whose_sync_was_refused_beyond_its_session_has_one_again(s):
    call = s.join(instance="A", srt=300, rt=400)
    s.advance(50)
    a = call.response.member_id
    s.c.hold_appends()
    s.sync(a, 1, {a: b"a1"})
    s.advance(350)
    s.c.fail_next_append("too_large")
    s.c.release_appends()
    assert s.state == "PreparingRebalance"
    s.advance(299)
    assert s.members() == [a]
    s.advance(1)
    assert s.state == "Empty"


def test_082_no_sync_is_answered_before_the_log_has_acknowledged(s):
    a, b, _ = cr(s)
    s.c.hold_appends()
    leader, follower = s.sync(a, 3, {a: b"x", b: b"y"}), s.sync(b, 3)
    s.advance(100)
    assert not leader.done
    assert not follower.done
    assert s.describe().group_state == "CompletingRebalance"
    s.c.release_appends()
    assert (leader.response.assignment, follower.response.assignment) == (b"x", b"y")
    assert s.state == "Stable"


def test_082_a_log_that_takes_too_long_is_reported_as_not_available():
    s = ClassicScenario(offset_commit_timeout_ms=300)
    a, _b, _ = cr(s)
    s.c.hold_appends()
    leader = s.sync(a, 3, {a: b"x"})
    s.advance(299)
    assert not leader.done
    s.advance(1)
    assert code(leader.response) == "COORDINATOR_NOT_AVAILABLE"
    assert s.state == "PreparingRebalance"


def test_a_leader_that_syncs_again_gets_the_assignment_that_is_on_its_way(s):
    a, b, _ = cr(s)
    s.c.hold_appends()
    follower = s.sync(b, 3)
    first = s.sync(a, 3, {a: b"x", b: b"y"})
    second = s.sync(a, 3, {a: b"usurped", b: b"usurped"})
    assert code(first.response) == "REBALANCE_IN_PROGRESS"
    s.c.release_appends()
    assert (second.response.assignment, follower.response.assignment) == (b"x", b"y")
    s.restart()
    assert [s.sync(m, 3).response.assignment for m in (a, b)] == [b"x", b"y"]
