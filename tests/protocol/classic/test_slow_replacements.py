"""Rulings R23, R26-R28, R31 and R34: static members that restart while the log is slow, refuses,
or is gone."""

import pytest

from tests.kit.classic_scenario import SUPERSET, ClassicScenario, code, partition_codes
from tests.protocol.classic.test_slow_log import TIMEOUT, until_done

LONG = {"srt": 20_000, "rt": 20_000}
T0 = ("t", 0)


@pytest.fixture
def s() -> ClassicScenario:
    return ClassicScenario()


def restart_of(s: ClassicScenario, instance: str, **more):
    """The process of an instance has restarted: it joins without a member id."""
    return s.join(instance=instance, **{"protocols": SUPERSET, **LONG, **more})


def works(s: ClassicScenario, member_id: str, instance: str, share: bytes) -> bool:
    """The member is in force, and holds what it held."""
    return (
        s.beat(member_id, s.generation, instance=instance) == "NONE"
        and s.sync(member_id, s.generation, instance=instance).response.assignment == share
    )


def is_fenced(s: ClassicScenario, member_id: str, instance: str) -> bool:
    return s.beat(member_id, s.generation, instance=instance) == "FENCED_INSTANCE_ID"


# --- R27: the old id while the write is on its way ---------------------------------------------


@pytest.mark.parametrize("instance", ["L", "F"])
def test_the_old_id_is_fenced_when_the_new_one_is_durable(s, instance):
    ids = dict(zip("LF", s.s2(**LONG), strict=True))
    old, share = ids[instance], instance.lower().encode() + b"0"
    s.c.hold_appends()
    call = restart_of(s, instance)
    assert works(s, old, instance, share)
    assert s.beat(old, 1) == "NONE"
    s.c.release_appends()
    new = call.response.member_id
    assert works(s, new, instance, share)
    assert is_fenced(s, old, instance)
    s.restart()
    assert works(s, new, instance, share)
    assert is_fenced(s, old, instance)


def test_heartbeats_of_the_old_id_count_as_life(s):
    leader, old = s.s2(srt=1_000, rt=20_000)
    s.c.hold_appends()
    call = restart_of(s, "F", srt=1_000)
    call.cancel()  # Nothing but its heartbeats keeps the member alive.
    for _ in range(6):
        s.advance(600)
        assert [s.beat(leader, 1), s.beat(old, 1, instance="F")] == ["NONE", "NONE"]
    assert (s.state, s.generation) == ("Stable", 1)


def test_a_parked_restart_keeps_the_member_alive(s):
    leader, old = s.s2(srt=1_000, rt=20_000)
    s.c.hold_appends()
    call = restart_of(s, "F", srt=1_000)
    for _ in range(4):
        s.advance(900)
        s.beat(leader, 1)
    s.c.release_appends()
    assert code(call.response) == "NONE"
    assert is_fenced(s, old, "F")


@pytest.mark.parametrize("fate", ["stored", "refused"])
def test_what_the_old_id_stores_or_changes_is_decided_by_the_log(s, fate):
    _, old = s.s2(**LONG)
    s.c.hold_appends()
    restart_of(s, "F")
    commit = s.commit({T0: 5}, member_id=old, generation=1, instance="F")
    join = s.join(old, instance="F", protocols=SUPERSET, **LONG)
    if fate == "refused":
        s.c.fail_next_append("too_large")
    s.c.release_appends()
    expected = "NONE" if fate == "refused" else "FENCED_INSTANCE_ID"
    assert partition_codes(commit.response) == [expected]
    assert code(join.response) == expected
    assert s.stored(T0) == {T0: 5 if fate == "refused" else -1}
    assert (s.state, s.generation) == ("Stable", 1)


def test_a_leave_of_the_old_id_does_not_take_the_new_one_with_it(s):
    _, old = s.s2(**LONG)
    s.c.hold_appends()
    call = restart_of(s, "F")
    leave = s.send(
        type(s)
        .leave.__globals__["pb"]
        .LeaveGroupRequest(group_id="g", members=[{"member_id": old, "group_instance_id": "F"}])
    )
    assert not leave.done
    s.c.release_appends()
    assert code(leave.response.members[0]) == "FENCED_INSTANCE_ID"
    assert code(call.response) == "NONE"
    assert s.state == "Stable"


def test_an_operator_removes_the_instance_whoever_it_is_just_now(s):
    s.s2(**LONG)
    s.c.hold_appends()
    call = restart_of(s, "F")
    assert s.leave_codes(("", "F")) == ["NONE"]
    assert code(call.response) == "UNKNOWN_MEMBER_ID"
    s.c.release_appends()
    assert s.state == "PreparingRebalance"


# --- R26: its time is over ------------------------------------------------------------------------


def test_of_a_restart_whose_time_is_over_nobody_knows_yet(s):
    _, old = s.s2(**LONG)
    s.c.hold_appends()
    call = restart_of(s, "F")
    assert until_done(s, call) == TIMEOUT
    assert (code(call.response), call.response.member_id) == ("COORDINATOR_NOT_AVAILABLE", "")
    assert works(s, old, "F", b"f0")
    late = s.commit({T0: 1}, member_id=old, generation=1, instance="F")
    assert partition_codes(late.response) == ["NOT_COORDINATOR"], "the log is as slow for it"
    s.c.release_appends()
    assert is_fenced(s, old, "F"), "it was stored after all"
    again = restart_of(s, "F").response
    assert (code(again), again.generation_id, s.state) == ("NONE", 1, "Stable")
    s.restart()
    assert works(s, again.member_id, "F", b"f0")


def test_a_restart_that_is_refused_after_its_time_fences_nobody(s):
    _, old = s.s2(**LONG)
    s.c.hold_appends()
    call = restart_of(s, "F", protocols=("range",))
    s.advance(TIMEOUT)
    assert call.done
    s.c.fail_next_append("too_large")
    s.c.release_appends()
    assert works(s, old, "F", b"f0")
    member = s.group().members[old]
    assert [name for name, _ in member.protocols] == list(SUPERSET)
    s.restart()
    assert works(s, old, "F", b"f0")


def test_who_comes_again_before_the_log_has_spoken_waits_for_it(s):
    _, old = s.s2(**LONG)
    s.c.hold_appends()
    restart_of(s, "F")
    s.advance(TIMEOUT)
    again = restart_of(s, "F")
    s.advance(1_000)
    assert not again.done
    s.c.release_appends()
    new = again.response.member_id
    assert works(s, new, "F", b"f0")
    assert is_fenced(s, old, "F")
    s.restart()
    assert works(s, new, "F", b"f0")


def test_who_waits_for_its_turn_does_not_wait_for_ever(s):
    _, old = s.s2(**LONG)
    s.c.hold_appends()
    restart_of(s, "F")
    s.advance(1_000)
    waiting = restart_of(s, "L")
    assert until_done(s, waiting) == TIMEOUT
    assert code(waiting.response) == "COORDINATOR_NOT_AVAILABLE"
    s.c.release_appends()
    assert s.c.stored().sequence == 3, (
        "the first assignment, its promise, and F: nobody waits for L"
    )
    assert is_fenced(s, old, "F")


def test_a_log_that_cannot_be_reached_for_a_moment_delays_a_restart(s):
    _, old = s.s2(**LONG)
    for _ in range(3):
        s.c.fail_next_append("unavailable")
    call = restart_of(s, "F")
    assert s.beat(old, 1, instance="F") == "NONE"
    until_done(s, call)
    assert code(call.response) == "NONE"
    assert is_fenced(s, old, "F")


def test_a_log_that_stays_away_leaves_the_old_id_in_force(s):
    _, old = s.s2(**LONG)
    for _ in range(1_000):
        s.c.fail_next_append("unavailable")
    call = restart_of(s, "F")
    assert until_done(s, call) == TIMEOUT
    assert code(call.response) == "COORDINATOR_NOT_AVAILABLE"
    s.c.log.forget_failures()
    assert s.commit_codes({T0: 1}, member_id=old, generation=1, instance="F") == ["NONE"]
    s.advance(TIMEOUT)
    assert works(s, old, "F", b"f0")


# --- R28: several at a time -----------------------------------------------------------------------


@pytest.mark.parametrize("processes", [2, 3])
def test_processes_in_a_row_that_are_all_refused_leave_the_durable_one(s, processes):
    _, old = s.s2(**LONG)
    s.c.hold_appends()
    calls = [restart_of(s, "F", protocols=("range",), srt=300 + n) for n in range(processes)]
    assert [code(call.response) for call in calls[:-1]] == ["FENCED_INSTANCE_ID"] * (processes - 1)
    for _ in range(processes):
        s.c.fail_next_append("too_large")
    s.c.release_appends()
    assert code(calls[-1].response) == "UNKNOWN_SERVER_ERROR"
    s.c.log.forget_failures()
    assert works(s, old, "F", b"f0")
    assert s.group().members[old].session_timeout_ms == LONG["srt"]
    s.restart()
    assert works(s, old, "F", b"f0")


def test_of_processes_in_a_row_the_last_one_stays_and_the_next_one_follows_it(s):
    _, old = s.s2(**LONG)
    s.c.hold_appends()
    calls = [restart_of(s, "F") for _ in range(3)]
    s.c.release_appends()
    assert works(s, calls[-1].response.member_id, "F", b"f0")
    after = restart_of(s, "F").response
    assert code(after) == "NONE"
    assert works(s, after.member_id, "F", b"f0")
    assert is_fenced(s, old, "F")


def test_processes_that_are_superseded_while_they_wait_are_told_their_own_ids(s):
    ids = set(s.s2(**LONG))
    s.c.hold_appends()
    calls = [restart_of(s, instance) for instance in "LFFF"]
    for call in calls[1:3]:
        assert code(call.response) == "FENCED_INSTANCE_ID"
    s.c.release_appends()
    assert len(ids | {call.response.member_id for call in calls}) == 2 + 4


@pytest.mark.parametrize("fates", [("too_large", None), (None, "too_large"), (None, None)])
def test_two_processes_in_a_row(s, fates):
    """Memory and log agree on the member, whatever the results of the two writes."""
    _, old = s.s2(**LONG)
    s.c.hold_appends()
    first, second = restart_of(s, "F"), restart_of(s, "F")
    for fate in fates:
        if fate is not None:
            s.c.fail_next_append(fate)
        s.c.release_appends(hold_on=fate is fates[0])  # One entry at a time.
    assert code(first.response) == "FENCED_INSTANCE_ID"
    (member_id,) = [m for m in s.members() if s.group().members[m].instance_id == "F"]
    if code(second.response) == "NONE":
        assert second.response.member_id == member_id
    assert (member_id == old) == (fates == ("too_large", "too_large"))
    assert works(s, member_id, "F", b"f0")
    s.restart()
    assert works(s, member_id, "F", b"f0")


@pytest.mark.parametrize("kind", [None, "too_large"])
def test_two_instances_at_a_time_do_not_carry_each_other(s, kind):
    leader, follower = s.s2(**LONG)
    s.c.hold_appends()
    first, second = restart_of(s, "L"), restart_of(s, "F")
    if kind is not None:
        s.c.fail_next_append(kind)
    s.c.release_appends()
    new = second.response.member_id
    assert works(s, new, "F", b"f0")
    assert is_fenced(s, follower, "F")
    l_now = leader if kind else first.response.member_id
    assert code(first.response) == ("UNKNOWN_SERVER_ERROR" if kind else "NONE")
    assert works(s, l_now, "L", b"l0")
    assert s.group().leader_id == l_now
    s.restart()
    assert works(s, new, "F", b"f0")
    assert works(s, l_now, "L", b"l0")


def three_instances(s: ClassicScenario, **more) -> dict[str, str]:
    """Static L (leader), F and G, generation 1, Stable; their member ids."""
    calls = {name: s.join(instance=name, protocols=SUPERSET, **{**LONG, **more}) for name in "LFG"}
    s.advance(100)
    ids = {name: call.response.member_id for name, call in calls.items()}
    shares = dict.fromkeys(ids.values(), b"held")
    for name in "LFG":
        s.sync(ids[name], 1, shares, instance=name)
    return ids


def test_three_instances_at_a_time_are_replaced_one_after_the_other(s):
    ids = three_instances(s)
    s.c.hold_appends()
    calls = {name: restart_of(s, name) for name in "LFG"}
    for name in "LFG":
        s.c.release_appends(hold_on=True)
        new = calls[name].response.member_id
        assert new != ids[name]
        assert works(s, new, name, b"held")
        assert is_fenced(s, ids[name], name)


def test_a_third_instance_is_replaced_though_the_group_rebalances_before_its_turn(s):
    ids = three_instances(s)
    s.c.hold_appends()
    calls = {name: restart_of(s, name) for name in "LFG"}
    s.c.release_appends(hold_on=True)
    leader = calls["L"].response.member_id
    s.join(leader, instance="L", protocols=SUPERSET, **LONG)
    s.c.release_appends()
    for name in "FG":
        assert (code(calls[name].response), s.generation) == ("NONE", 2)
        assert calls[name].response.member_id not in ("", ids[name])
        assert is_fenced(s, ids[name], name)


def test_a_client_that_went_away_while_it_waited_replaces_nobody(s):
    _, old = s.s2(**LONG)
    s.c.hold_appends()
    restart_of(s, "L")
    restart_of(s, "F").cancel()
    s.c.release_appends()
    assert works(s, old, "F", b"f0")


def test_a_protocol_that_changes_at_its_turn_begins_a_join_phase(s):
    leader, _ = s.s2(**LONG)
    s.c.hold_appends()
    first = restart_of(s, "F", protocols=("roundrobin", "range"))
    second = restart_of(s, "L", protocols=("roundrobin", "range"))
    s.c.release_appends()
    assert [code(call.response) for call in (first, second)] == ["NONE", "NONE"]
    assert (s.state, s.generation) == ("CompletingRebalance", 2)
    assert leader not in s.members()


def test_a_protocol_that_changes_at_its_turn_takes_all_who_wait_into_the_join_phase(s):
    ids = three_instances(s)
    s.c.hold_appends()
    calls = {name: restart_of(s, name, protocols=("roundrobin", "range")) for name in "FLG"}
    s.c.release_appends()
    assert (s.state, s.generation) == ("CompletingRebalance", 2)
    for name in "FLG":
        assert code(calls[name].response) == "NONE"
        assert calls[name].response.member_id not in ("", ids[name])
    assert not set(ids.values()) & set(s.members())


# --- A rebalance in between ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", [None, "too_large"])
def test_a_rebalance_in_between_takes_the_waiting_process_in(s, kind):
    leader, old = s.s2(**LONG)
    s.c.hold_appends()
    call = restart_of(s, "F")
    s.join(leader, instance="L", protocols=SUPERSET, **LONG)
    if kind is not None:
        s.c.fail_next_append(kind)
    s.c.release_appends()
    assert (code(call.response), call.response.generation_id) == ("NONE", 2)
    assert old not in s.members()
    new = call.response.member_id
    s.sync(leader, 2, {leader: b"l1", new: b"f1"})
    assert works(s, new, "F", b"f1")
    s.restart()
    assert works(s, new, "F", b"f1")


def test_a_process_that_a_rebalance_took_in_is_answered_with_the_next_generation(s):
    ids = three_instances(s)
    s.c.hold_appends()
    call = restart_of(s, "F")
    s.join(ids["L"], instance="L", protocols=SUPERSET, **LONG)
    s.c.release_appends()
    assert s.state == "PreparingRebalance"  # It waits for G.
    assert not call.done
    s.join(ids["G"], instance="G", protocols=SUPERSET, **LONG)
    assert (code(call.response), call.response.generation_id) == ("NONE", 2)


def test_a_rebalance_after_its_time_fences_nobody_on_a_guess(s):
    leader, old = s.s2(**LONG)
    s.c.hold_appends()
    call = restart_of(s, "F")
    s.advance(TIMEOUT)
    assert code(call.response) == "COORDINATOR_NOT_AVAILABLE"
    s.join(leader, instance="L", protocols=SUPERSET, **LONG)
    assert s.beat(old, 1, instance="F") == "REBALANCE_IN_PROGRESS"
    again = s.join(old, instance="F", protocols=SUPERSET, **LONG)
    s.c.release_appends()
    assert (code(again.response), again.response.member_id) == ("NONE", old)


def test_a_restart_of_the_coordinator_in_between(s):
    _, old = s.s2(**LONG)
    s.c.hold_appends()
    restart_of(s, "F")
    s.restart()
    assert works(s, old, "F", b"f0")
    again = restart_of(s, "F").response
    assert works(s, again.member_id, "F", b"f0")


def test_a_shard_that_is_fenced_answers_everybody_who_waits(s):
    _, old = s.s2(**LONG)
    s.c.hold_appends()
    calls = [restart_of(s, "F"), restart_of(s, "L")]
    commit = s.commit({T0: 1}, member_id=old, generation=1, instance="F")
    s.c.fail_next_append("fenced")
    s.c.release_appends()
    assert [code(call.response) for call in calls] == ["NOT_COORDINATOR"] * 2
    assert partition_codes(commit.response) == ["NOT_COORDINATOR"]


# --- R31, R34 -------------------------------------------------------------------------------------


def test_a_new_static_member_that_restarts_while_it_joins_is_kept_by_its_call(s):
    s = ClassicScenario(group_initial_rebalance_delay_ms=10_000)
    first = s.join(instance="F", srt=100, rt=30_000)
    s.advance(50)
    second = s.join(instance="F", srt=100, rt=30_000, supports_skip_assignment=True)
    assert code(first.response) == "FENCED_INSTANCE_ID"
    s.advance(5_000)
    assert not second.done
    s.advance(5_000)
    response = second.response
    assert (code(response), response.generation_id) == ("NONE", 1)
    assert response.leader == response.member_id
    assert not response.skip_assignment, "there is no assignment yet"


@pytest.mark.parametrize(("new_srt", "alive_ms"), [(200, 199), (900, 899)])
def test_a_restarted_static_member_lives_by_its_new_session_timeout(s, new_srt, alive_ms):
    leader, _ = s.s2(srt=500, rt=20_000)
    new = restart_of(s, "F", srt=new_srt).response.member_id
    began = s.c.now_ms
    while s.c.now_ms < began + alive_ms:
        s.advance(1)
        if s.c.now_ms % 50 == 0:
            s.beat(leader, 1)
    assert new in s.members()
    s.advance(1)
    assert new not in s.members()
