"""Scenarios 159-170: listing, describing, and what a restart brings back."""

import pytest

from coordinator.v1 import admin_pb2 as admin
from tests.kit.classic_scenario import ClassicScenario, code


@pytest.fixture
def s() -> ClassicScenario:
    return ClassicScenario()


def listed(s: ClassicScenario, states=(), types=()) -> dict[str, str]:
    call = s.send(admin.ListGroupsRequest(states_filter=states, types_filter=types))
    assert code(call.response) == "NONE"
    return {g.group_id: g.group_state for g in call.response.groups}


def test_159_groups_are_filtered_by_state_and_type(s):
    s.f1()
    s.commit({("t", 0): 1}, group="simple")
    s.join(group="third")
    everything = {"g": "Stable", "simple": "Empty", "third": "PreparingRebalance"}
    assert listed(s) == everything
    assert listed(s, states=["sTABLE", "Empty"]) == {"g": "Stable", "simple": "Empty"}
    assert listed(s, types=["Classic"]) == everything
    assert listed(s, states=["Stable"], types=["consumer"]) == {}
    assert listed(s, states=["no such state"]) == {}


def test_159_groups_are_found_by_a_part_of_their_id_and_the_first_are_shown(s):
    s.f1()
    for group in ("Orders-2", "orders-1", "orders-3"):
        s.commit({("t", 0): 1}, group=group)
    ask = admin.ListGroupsRequest(group_id_contains="ORDERS", limit=2)
    reply = s.send(ask).response
    assert [g.group_id for g in reply.groups] == ["Orders-2", "orders-1"]
    assert reply.matching == 3
    everything = s.send(admin.ListGroupsRequest()).response
    assert {g.group_id: g.member_count for g in everything.groups}["g"] == 1
    assert everything.matching == 4


def test_160_describe_shows_what_is_in_force_only(s):
    leader, follower = s.s2()
    group = s.describe()
    assert (group.group_state, group.protocol_type, group.protocol_data) == (
        "Stable",
        "consumer",
        "range",
    )
    by_id = {m.member_id: m for m in group.members}
    assert by_id[leader].member_assignment == b"l0"
    assert by_id[follower].group_instance_id == "F"
    assert by_id[leader].client_host == "/127.0.0.1"
    s.join(leader, instance="L", protocols=("range", "roundrobin"))
    s.join(follower, instance="F", protocols=("range", "roundrobin"))
    group = s.describe()
    assert (group.group_state, group.protocol_data) == ("CompletingRebalance", "")
    assert {(m.member_metadata, m.member_assignment) for m in group.members} == {(b"", b"")}


def test_160_an_unknown_group_is_dead_or_not_found(s):
    group = s.describe("nobody")
    assert (code(group), group.group_state, len(group.members)) == ("NONE", "Dead", 0)
    assert code(s.describe("nobody", report_unknown_groups=True)) == "GROUP_ID_NOT_FOUND"


def test_163_members_do_not_notice_a_restart(s):
    a, b = s.f2()
    s.restart()
    assert (s.state, s.generation, s.group().leader_id) == ("Stable", 2, a)
    assert (s.beat(a, 2), s.beat(b, 2)) == ("NONE", "NONE")
    assert s.sync(b, 2).response.assignment == b"b0"
    assert s.commit_codes({("t", 0): 1}, member_id=a, generation=2) == ["NONE"]
    assert s.generation == 2


def test_163_the_leader_stays_though_an_absent_static_member_came_before_it(s):
    _, follower = s.s2(srt=5_000)
    rejoin = s.join(follower, instance="F", protocols=("roundrobin",), srt=5_000)
    s.advance(500)  # L does not join.
    assert rejoin.response.leader == follower
    s.sync(follower, 2, {follower: b"all"})
    s.restart()
    assert (s.state, s.members()[1], s.group().leader_id) == ("Stable", follower, follower)
    assert s.join(follower, instance="F", protocols=("roundrobin",)).done is False
    assert s.state == "PreparingRebalance"  # A leader that joins again wants a new assignment.


def test_164_sessions_start_anew_at_their_full_length(s):
    a, _ = s.f2()
    s.advance(400)
    s.restart()
    t0 = s.c.now_ms
    s.until(t0 + 499)
    assert a in s.members()
    s.until(t0 + 500)
    assert s.state == "Empty"


def lost_generation(s: ClassicScenario):
    """F2, then C joins and generation 3 is handed out, but the process dies before a sync."""
    a, b = s.f2()
    c_call = s.join()
    calls = [s.join(a), s.join(b)]
    assert {call.response.generation_id for call in [*calls, c_call]} == {3}
    s.restart()
    return a, b, c_call.response.member_id


def test_165_the_last_durable_generation_lives_again(s):
    a, _, c = lost_generation(s)
    assert (s.state, s.generation) == ("Stable", 2)
    assert s.beat(a, 2) == "NONE"
    assert s.beat(a, 3) == "ILLEGAL_GENERATION"
    assert s.beat(c, 3) == "UNKNOWN_MEMBER_ID"


def test_166_a_lost_generation_is_never_handed_out_again(s):
    a, b, _ = lost_generation(s)
    calls = [s.join(a), s.join(b)]
    generation = calls[0].response.generation_id
    assert generation > 3
    assert s.beat(a, 3) == "ILLEGAL_GENERATION"
    assert s.commit_codes({("t", 0): 1}, member_id=a, generation=3) == ["ILLEGAL_GENERATION"]
    assert code(s.sync(a, 3).response) == "ILLEGAL_GENERATION"


def test_166_a_chain_of_lost_generations_is_remembered(s):
    a, b = s.f2()
    for expected in (3, 4, 5):
        calls = [s.join(a, metadata=str(expected).encode()), s.join(b)]
        assert calls[0].response.generation_id == expected
    s.restart()
    calls = [s.join(a, metadata=b"x"), s.join(b)]
    assert calls[0].response.generation_id > 5


def test_166_a_second_lost_generation_is_handed_out_when_its_floor_is_durable(s):
    a, b = s.f2()
    s.join(a, metadata=b"3"), s.join(b)
    s.c.hold_appends()
    call = s.join(a, metadata=b"4")
    s.join(b)
    assert not call.done
    s.c.release_appends()
    assert call.response.generation_id == 4


def test_166_even_the_first_generation_of_a_group_is_handed_out_once(s):
    a = s.join()
    s.advance(50)
    assert a.response.generation_id == 1
    s.restart()
    assert s.state == "Empty"
    assert s.beat(a.response.member_id, 1) == "UNKNOWN_MEMBER_ID"
    b = s.join()
    s.advance(50)
    assert b.response.generation_id == 2


@pytest.mark.parametrize("kind", ["too_large", "full"])
def test_166_nobody_hears_of_a_generation_that_the_log_did_not_promise(s, kind):
    """The promises of two groups make one entry, which is split if it is too large."""
    calls = [s.join(), s.join(group="h")]
    for _ in range(3):
        s.c.fail_next_append(kind)
    s.advance(50)
    expected = "UNKNOWN_SERVER_ERROR" if kind == "too_large" else "COORDINATOR_NOT_AVAILABLE"
    assert [code(call.response) for call in calls] == [expected] * 2
    s.c.log.forget_failures()
    again = s.join(calls[0].response.member_id)
    assert (code(again.response), again.response.generation_id) == ("NONE", 1)


def test_166_a_rejoin_after_a_lost_rebalance_does_not_bring_an_old_generation(s):
    a, b, _ = lost_generation(s)
    call = s.join(b)  # It may have heard of generation 3.
    assert s.state == "PreparingRebalance"
    s.join(a)
    assert call.response.generation_id == 4


def test_167_what_the_log_holds_is_what_comes_back(s):
    s.commit({("t", 0): 1}, group="offsets")
    s.commit({("t", 0): 2, ("t", 1): 9}, group="offsets")
    s.commit({("t", 0): 1}, group="deleted")
    s.send(admin.DeleteGroupsRequest(groups_names=["deleted"]))
    s.restart()
    assert s.c.state("offsets").value == "Empty"
    assert s.stored(group="offsets") == {("t", 0): 2, ("t", 1): 9}
    assert s.c.state("deleted") is None


def test_168_a_rebalance_after_a_restart_works(s):
    a, b = s.f2()
    s.restart()
    new = s.join()
    calls = [s.join(a), s.join(b)]
    generations = {call.response.generation_id for call in [new, *calls]}
    assert len(generations) == 1
    assert s.state == "CompletingRebalance"
