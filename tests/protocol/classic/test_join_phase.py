"""Scenarios 44-59: how a join phase ends, generations, leaders, protocols, states."""

from collections import Counter

import pytest

from coordinator.core.classic import protocols
from coordinator.core.classic.group import TRANSITIONS, ClassicGroup, ClassicMember
from coordinator.core.group import GroupState
from coordinator.core.values.commands import CompleteJoinPhase
from coordinator.core.values.errors import InvariantViolated, Refused
from coordinator.shard.inputs import Tick
from tests.kit.classic_scenario import GROUP, SUPERSET, ClassicScenario, code


def test_044_a_member_that_does_not_rejoin_is_dropped():
    s = ClassicScenario()
    a, b = s.f2()
    c_call = s.join()
    a_call = s.join(a)
    s.advance(499)
    assert not a_call.done
    s.advance(1)
    assert a_call.response.generation_id == c_call.response.generation_id == 3
    assert s.beat(b, 2) == "UNKNOWN_MEMBER_ID"


def test_045_the_timers_of_a_dropped_member_die_with_it():
    s = ClassicScenario()
    a, b = s.f2(srt=5000)
    c_call = s.join(srt=5000)
    s.join(a, srt=5000)
    s.advance(500)
    c = c_call.response.member_id
    assert b not in s.members()
    s.sync(a, 3, {}), s.sync(c, 3)
    for _ in range(10):
        s.advance(1000)
        assert (s.beat(a, 3), s.beat(c, 3)) == ("NONE", "NONE")
    assert s.generation == 3


def test_046_a_join_phase_lasts_for_the_longest_rebalance_timeout():
    s = ClassicScenario()
    first = s.join(rt=300, srt=5000)
    second = s.join(rt=900, srt=5000)
    s.until(100)
    a, b = first.response.member_id, second.response.member_id
    s.sync(a, 1), s.sync(b, 1)
    t0 = s.c.now_ms
    third = s.join(rt=300, srt=5000)
    a_call = s.join(a, rt=300, srt=5000)
    s.until(t0 + 500)
    assert s.beat(b, 1) == "REBALANCE_IN_PROGRESS"
    s.until(t0 + 899)
    assert not third.done
    s.until(t0 + 900)
    assert a_call.response.generation_id == third.response.generation_id == 2


def test_047_an_absent_static_member_stays_and_is_listed():
    s = ClassicScenario()
    leader, follower = s.s2(srt=1000)
    new = s.join(instance="N", srt=1000, protocols=SUPERSET)
    leader_call = s.join(leader, instance="L", srt=1000, protocols=SUPERSET)
    s.advance(500)
    response = leader_call.response
    assert (response.generation_id, response.leader) == (2, leader)
    assert {m.member_id for m in response.members} == {
        leader,
        follower,
        new.response.member_id,
    }


def test_049_050_a_phase_in_which_only_static_members_are_missing_is_extended():
    s = ClassicScenario()
    leader, follower = s.s2(srt=1000)
    t0 = s.c.now_ms
    x_call = s.join(srt=1000, protocols=SUPERSET)
    s.until(t0 + 500)
    x = x_call.response
    assert (x.generation_id, x.leader, len(x.members)) == (2, x.member_id, 3)
    assert s.leave_codes((follower, "F")) == ["NONE"]
    s.until(t0 + 1000)
    assert (s.state, s.generation, s.members()) == ("PreparingRebalance", 2, [leader])
    s.until(t0 + 1500)
    assert (s.state, s.generation) == ("Empty", 3)
    assert s.group().leader_id is None


@pytest.mark.parametrize("beat_at", [50, 100, 250, 400])  # Each lies elsewhere on the wheel.
def test_a_session_that_ends_with_the_phase_ends_first(beat_at):
    s = ClassicScenario()
    leader, _ = s.s2()
    t0 = s.c.now_ms
    s.until(t0 + beat_at)
    s.beat(leader, 1)
    x = s.join(protocols=SUPERSET)
    # The leader's session and the join phase both end 500 later.
    s.until(t0 + beat_at + 500)
    assert [m.member_id for m in x.response.members] == [x.response.member_id]


def test_052_a_phase_nobody_joined_keeps_its_generation():
    s = ClassicScenario()
    leader, follower = s.s2(srt=30_000, rt=10_000)
    t0 = s.c.now_ms
    x = s.join(srt=30_000, rt=10_000, protocols=SUPERSET)
    x.cancel()  # It came and went: a rebalance is on, and nobody has joined.
    for at in (10_000, 20_000):
        s.until(t0 + at)
        assert (s.state, s.generation) == ("PreparingRebalance", 1)
        assert s.beat(leader, 1) == s.beat(follower, 1) == "REBALANCE_IN_PROGRESS"
    calls = [
        s.join(m, instance=i, srt=30_000, rt=10_000, protocols=SUPERSET)
        for m, i in ((leader, "L"), (follower, "F"))
    ]
    assert [call.response.generation_id for call in calls] == [2, 2]


@pytest.mark.parametrize("state", ["none", "Empty", "Dead"])
def test_053_a_late_join_timer_does_nothing(state):
    s = ClassicScenario()
    if state != "none":
        a = s.f1()
        s.leave(a)
        if state == "Dead":
            s.group().transition_to(GroupState.DEAD, s.c.now_ms)
    before = s.generation
    s.c._step(CompleteJoinPhase(GROUP, before))
    s.c._step(Tick())
    assert s.generation == before


def make_group(*member_protocols: tuple[str, ...]) -> ClassicGroup:
    group = ClassicGroup("g", {}, Counter(), 0)
    group.protocol_type = "consumer"
    for number, names in enumerate(member_protocols):
        group.add_member(
            ClassicMember(
                f"m{number}",
                instance_id=None,
                client_id="c",
                client_host="h",
                rebalance_timeout_ms=500,
                session_timeout_ms=500,
                protocols=tuple((name, b"") for name in names),
                now_ms=0,
            )
        )
    return group


def test_055_a_removed_leader_is_succeeded():
    group = make_group(("range",), ("range",))
    assert group.leader_id == "m0"
    group.remove_member("m0")
    assert group.leader_id == "m1"
    group.remove_member("m1")
    assert group.leader_id is None


def test_055_the_leader_is_kept_if_it_joined_else_one_who_did_leads():
    group = make_group(("range",), ("range",))
    assert not group.elect_joined_leader()
    group.park_join(group.members["m1"], 1)
    assert group.elect_joined_leader()
    assert group.leader_id == "m1"
    group.park_join(group.members["m0"], 2)
    assert group.elect_joined_leader()
    assert group.leader_id == "m1"


@pytest.mark.parametrize(("others", "selected"), [(0, "range"), (1, "range"), (2, "roundrobin")])
def test_056_most_votes_win_and_a_tie_is_the_leaders(others, selected):
    group = make_group(("range", "roundrobin"), *[("roundrobin", "range")] * others)
    assert protocols.select(group) == selected


def accepts(group: ClassicGroup, names: tuple[str, ...], protocol_type: str = "consumer") -> bool:
    try:
        protocols.check_acceptable(group, protocol_type, names)
    except Refused:
        return False
    return True


def test_057_only_a_protocol_that_all_list_is_selected():
    group = make_group(("range", "roundrobin"), ("roundrobin",), ("sticky", "roundrobin"))
    assert protocols.select(group) == "roundrobin"


def test_058_what_a_group_can_follow():
    group = make_group()
    assert accepts(group, ("anything",))
    group = make_group(("range", "roundrobin"))
    group.state = GroupState.STABLE
    assert accepts(group, ("roundrobin", "foo"))
    assert accepts(group, ("range", "foo"))
    assert not accepts(group, ("foo", "bar"))
    group = make_group(("range", "roundrobin"), ("roundrobin", "blah"))
    group.state = GroupState.STABLE
    assert not accepts(group, ("range", "foo"))
    assert not accepts(group, ("roundrobin",), "other")


@pytest.mark.parametrize("after", TRANSITIONS)
@pytest.mark.parametrize("before", TRANSITIONS)
def test_059_only_the_legal_transitions_happen(before, after):
    pr, cr = GroupState.PREPARING_REBALANCE, GroupState.AWAITING_SYNC
    stable, empty, dead = GroupState.STABLE, GroupState.EMPTY, GroupState.DEAD
    legal_from = {
        pr: {stable, cr, empty},
        cr: {pr},
        stable: {cr},
        empty: {pr},
        dead: set(TRANSITIONS),
    }
    legal = before in legal_from[after]
    assert (after in TRANSITIONS[before]) == legal
    group = ClassicGroup("g", {}, Counter(), 0)
    group.state = before
    if legal:
        group.transition_to(after, 7)
        assert (group.state, group.state_changed_at_ms) == (after, 7)
    else:
        with pytest.raises(InvariantViolated):
            group.transition_to(after, 7)


def test_060_the_group_empties_when_its_last_member_goes_silent():
    s = ClassicScenario()
    s.f1()
    s.advance(500)
    assert (s.state, s.generation) == ("Empty", 2)
    assert code(s.describe()) == "NONE"
