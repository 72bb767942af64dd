"""Scenarios 21-32: joining in two calls (KIP-394)."""

import pytest

from tests.kit.classic_scenario import GROUP, ClassicScenario, code


@pytest.fixture
def s() -> ClassicScenario:
    return ClassicScenario()


def pend(s: ClassicScenario, **more) -> str:
    response = s.join(two_phase=True, **more).response
    assert code(response) == "MEMBER_ID_REQUIRED"
    return response.member_id


def test_021_phase_one_hands_out_an_id_and_changes_nothing_else(s):
    member_id = pend(s)
    assert member_id.startswith("client-")
    assert (s.state, s.generation, s.members()) == ("Empty", 0, [])
    s.advance(499)
    assert member_id in s.group().pending_member_ids


def test_021_phase_one_leaves_a_stable_group_stable(s):
    s.f1()
    pend(s)
    assert (s.state, s.generation) == ("Stable", 1)


def test_022_phase_two_makes_the_member(s):
    member_id = pend(s)
    call = s.join(member_id, two_phase=True)
    assert not call.done
    s.advance(50)
    response = call.response
    assert (code(response), response.generation_id) == ("NONE", 1)
    assert response.member_id == member_id


def test_023_a_refused_phase_two_leaves_the_id_pending(s):
    member_id = pend(s)
    refused = s.join(member_id, two_phase=True, protocols=())
    assert code(refused.response) == "INCONSISTENT_GROUP_PROTOCOL"
    assert member_id in s.group().pending_member_ids
    call = s.join(member_id, two_phase=True)
    s.advance(50)
    assert code(call.response) == "NONE"


def test_025_a_pending_id_is_forgotten_after_its_session_timeout(s):
    a = s.f1()
    t0 = s.c.now_ms
    p = pend(s)
    s.until(t0 + 300)
    assert s.beat(a, 1) == "NONE"
    s.until(t0 + 499)
    assert p in s.group().pending_member_ids
    s.until(t0 + 500)
    assert p not in s.group().pending_member_ids
    assert (s.state, s.members()) == ("Stable", [a])
    s.until(t0 + 501)
    assert code(s.join(p, two_phase=True).response) == "UNKNOWN_MEMBER_ID"


def test_026_a_pending_id_holds_an_ordinary_join_phase_open(s):
    _, _, p, a_call, b_call = s.p3()
    assert not a_call.done
    p_call = s.join(p)
    for call in (a_call, b_call, p_call):
        assert (code(call.response), call.response.generation_id) == ("NONE", 3)
    assert s.state == "CompletingRebalance"
    assert not s.group().pending_member_ids


def test_027_the_phase_ends_when_the_pending_id_expires(s):
    _, _, _, a_call, b_call = s.p3()
    s.advance(99)
    assert not a_call.done
    s.advance(1)
    assert a_call.response.generation_id == b_call.response.generation_id == 3


def test_028_the_phase_ends_when_the_pending_id_leaves(s):
    _, _, p, a_call, b_call = s.p3()
    assert s.leave_codes(p) == ["NONE"]
    assert code(a_call.response) == code(b_call.response) == "NONE"


def test_029_a_pending_id_with_an_instance_id_is_our_error_and_does_no_harm(s):
    s.f1()
    p = pend(s)
    assert code(s.join(p, instance="i").response) == "UNKNOWN_SERVER_ERROR"
    assert (s.state, p in s.group().pending_member_ids) == ("Stable", True)


def test_030_a_pending_id_leaves_a_stable_group_without_a_rebalance(s):
    s.f1()
    p = pend(s)
    assert s.leave_codes(p) == ["NONE"]
    assert (s.state, s.generation) == ("Stable", 1)


def test_031_a_pending_id_does_not_survive_a_restart(s):
    s.f1()
    p = pend(s)
    s.restart()
    assert code(s.join(p, two_phase=True).response) == "UNKNOWN_MEMBER_ID"


def test_032_a_group_of_pending_ids_is_not_expired(s):
    s = ClassicScenario(offsets_retention_check_interval_ms=100)
    p = pend(s, srt=1000)
    s.advance(250)
    assert s.c.state(GROUP) is not None
    assert "GroupRemoved" not in [type(event).__name__ for _, event in s.c.events]
    call = s.join(p, two_phase=True)
    s.advance(50)
    assert code(call.response) == "NONE"
