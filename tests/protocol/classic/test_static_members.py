"""Scenarios 105-125: static membership (KIP-345, KIP-814)."""

import pytest

from coordinator.core.values.errors import InvariantViolated
from tests.kit.classic_scenario import SUPERSET, ClassicScenario, code
from tests.protocol.classic.test_join_phase import make_group


@pytest.fixture
def s() -> ClassicScenario:
    return ClassicScenario()


def join_static(s: ClassicScenario, instance: str, member_id: str = "", **more):
    return s.join(member_id, instance=instance, **{"protocols": SUPERSET, **more})


def test_105_a_replaced_member_that_was_awaited_in_sync_causes_no_second_rebalance(s):
    leader, follower = s.s2()
    calls = [join_static(s, "L", leader), join_static(s, "F", follower)]
    assert [c.response.generation_id for c in calls] == [2, 2]
    replaced = join_static(s, "F")  # Between join and sync: a rebalance.
    again = join_static(s, "L", leader)
    new_follower = replaced.response.member_id
    assert again.response.generation_id == 3
    s.sync(leader, 3, {}), s.sync(new_follower, 3)
    for _ in range(5):
        s.advance(250)
        assert (s.beat(leader, 3), s.beat(new_follower, 3)) == ("NONE", "NONE")


def test_105_a_late_follower_that_restarts_is_awaited_under_its_new_id(s):
    leader, follower = s.s2()
    join_static(s, "L", leader), join_static(s, "F", follower)
    s.sync(leader, 2, {})
    assert s.state == "Stable"  # F's sync is awaited still.
    new = join_static(s, "F").response.member_id
    s.sync(new, 2)
    for _ in range(5):
        s.advance(250)
        assert (s.beat(leader, 2), s.beat(new, 2)) == ("NONE", "NONE")


def test_106_mismatched_identities(s):
    leader, follower = s.s2()
    assert code(join_static(s, "L", "unknown_member").response) == "FENCED_INSTANCE_ID"
    assert code(join_static(s, "L", follower).response) == "FENCED_INSTANCE_ID"
    assert code(join_static(s, "nope", leader).response) == "UNKNOWN_MEMBER_ID"


def test_107_an_outdated_member_id_is_fenced_everywhere(s):
    s.s2()
    assert code(s.sync("wrong", 1, instance="L").response) == "FENCED_INSTANCE_ID"
    assert s.beat("wrong", 1, instance="L") == "FENCED_INSTANCE_ID"
    codes = s.commit_codes({("t", 0): 1}, member_id="wrong", generation=1, instance="L")
    assert codes == ["FENCED_INSTANCE_ID"]


def test_108_a_restarted_follower_takes_its_place_without_a_rebalance(s):
    _, old = s.s2()
    response = join_static(s, "F").response
    assert (code(response), response.generation_id, s.state) == ("NONE", 1, "Stable")
    assert response.member_id != old
    assert not response.skip_assignment
    assert s.sync(response.member_id, 1).response.assignment == b"f0"


def test_109_an_unchanged_follower_with_its_id_is_answered_at_once(s):
    _, follower = s.s2()
    response = join_static(s, "F", follower).response
    assert (code(response), response.generation_id, s.state) == ("NONE", 1, "Stable")


def test_110_a_restarted_leader_is_told_to_skip_the_assignment(s):
    old, follower = s.s2()
    response = join_static(s, "L").response
    new = response.member_id
    assert (code(response), response.generation_id, response.leader) == ("NONE", 1, new)
    assert response.skip_assignment
    assert {m.member_id for m in response.members} == {new, follower}
    assert code(join_static(s, "L", old).response) == "FENCED_INSTANCE_ID"
    assert code(s.sync(old, 1, instance="L").response) == "FENCED_INSTANCE_ID"
    assert code(s.sync(old, 1).response) == "UNKNOWN_MEMBER_ID"


def test_111_a_leader_that_cannot_skip_does_not_learn_that_it_leads(s):
    old, _ = s.s2()
    response = join_static(s, "L", supports_skip_assignment=False).response
    assert (response.leader, response.skip_assignment) == (old, False)
    assert not response.members


def test_112_a_leader_with_its_id_rebalances(s):
    s = ClassicScenario()
    leader, follower = s.s2(srt=250)
    call = join_static(s, "L", leader, srt=250)
    s.advance(249)
    assert not call.done
    s.advance(1)
    assert call.response.generation_id == 2
    assert [m.member_id for m in call.response.members] == [leader]
    assert follower not in s.members()


def test_113_a_changed_follower_rebalances_and_may_come_to_lead(s):
    leader, follower = s.s2(srt=1000)
    call = join_static(s, "F", follower, srt=1000, protocols=("roundrobin",))
    s.advance(500)
    response = call.response
    assert (response.generation_id, response.leader) == (2, follower)
    assert {m.member_id for m in response.members} == {leader, follower}


def test_114_a_restart_that_changes_the_selected_protocol_rebalances(s):
    s.s2()
    assert not join_static(s, "F", protocols=("roundrobin",)).done
    assert s.state == "PreparingRebalance"


def test_115_a_restart_that_keeps_the_selected_protocol_does_not(s):
    _, old = s.s2()
    response = join_static(s, "F", protocols=("range",)).response
    assert (code(response), response.generation_id, s.state) == ("NONE", 1, "Stable")
    assert code(join_static(s, "F", old).response) == "FENCED_INSTANCE_ID"
    assert code(s.sync(old, 1, instance="F").response) == "FENCED_INSTANCE_ID"
    assert s.sync(response.member_id, 1).response.assignment == b"f0"


def test_116_a_replacement_that_is_not_stored_is_undone(s):
    _, old = s.s2()
    s.c.fail_next_append("too_large")
    response = join_static(s, "F", protocols=("range",), srt=300, rt=400).response
    assert (code(response), response.member_id) == ("UNKNOWN_SERVER_ERROR", "")
    assert (response.generation_id, s.state) == (1, "Stable")
    member = s.group().members[old]
    assert [name for name, _ in member.protocols] == list(SUPERSET)
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (500, 500)
    assert s.beat(old, 1, instance="F") == "NONE"
    assert code(s.sync(old, 1, instance="F").response) == "NONE"
    again = join_static(s, "F", old).response
    assert (code(again), again.generation_id) == ("NONE", 1)
    assert not join_static(s, "F", old, protocols=("range",)).done
    assert s.state == "PreparingRebalance"


def test_117_a_replacement_is_answered_when_it_is_durable(s):
    s.s2()
    s.c.hold_appends()
    call = join_static(s, "F")
    assert not call.done
    s.c.release_appends()
    assert call.response.generation_id == 1


def test_118_a_duplicate_fences_a_parked_join(s):
    _, follower = s.s2()
    join_static(s, "N")
    parked = join_static(s, "F", follower)
    duplicate = join_static(s, "F")
    response = parked.response
    assert (code(response), response.generation_id) == ("FENCED_INSTANCE_ID", -1)
    assert response.member_id == follower
    assert not duplicate.done


def test_119_a_duplicate_fences_a_parked_sync_and_rebalances(s):
    leader, follower = s.s2()
    calls = [join_static(s, "L", leader), join_static(s, "F", follower)]
    assert calls[1].response.generation_id == 2
    parked = s.sync(follower, 2, instance="F")
    duplicate = join_static(s, "F")
    assert code(parked.response) == "FENCED_INSTANCE_ID"
    assert s.state == "PreparingRebalance"
    s.advance(500)
    response = duplicate.response
    assert (response.generation_id, response.leader) == (3, response.member_id)
    assert [m.member_id for m in response.members] == [response.member_id]


def test_120_static_members_need_one_call(s):
    call = s.join(instance="I", two_phase=True)
    s.advance(50)
    assert code(call.response) == "NONE"


def test_121_five_restarts_give_five_ids_and_one_generation(s):
    s.s2()
    ids = [join_static(s, "L").response.member_id for _ in range(5)]
    assert len(set(ids)) == 5
    assert all(member_id.startswith("L-") for member_id in ids)
    assert (s.state, s.generation) == ("Stable", 1)


def test_122_a_silent_static_member_is_removed_like_any_other(s):
    leader, _follower = s.s2()
    s.advance(300)
    s.beat(leader, 1)
    s.advance(200)
    assert (s.state, s.members()) == ("PreparingRebalance", [leader])


def test_123_a_replacement_parked_in_a_join_phase_is_counted_once(s):
    leader, _follower = s.s2()
    join_static(s, "N")
    replaced = join_static(s, "F")
    assert s.group().parked_joins == 2
    again = join_static(s, "L", leader)
    assert replaced.response.generation_id == again.response.generation_id == 2


def test_124_a_replacement_survives_a_restart(s):
    _, old = s.s2()
    new = join_static(s, "F").response.member_id
    s.restart()
    assert s.beat(new, 1, instance="F") == "NONE"
    assert s.beat(old, 1, instance="F") == "FENCED_INSTANCE_ID"


def test_125_instance_ids_belong_to_one_member():
    group = make_group(("range",))
    member = group.members["m0"]
    member.assignment = b"kept"
    group.static_members["i"] = "m0"
    member.instance_id = "i"
    other = make_group(("range",)).members["m0"]
    other.member_id, other.instance_id = "m1", "i"
    with pytest.raises(InvariantViolated):
        group.add_member(other)
    with pytest.raises(InvariantViolated):
        group.rename_static_member("unknown", "m9")
    group.rename_static_member("i", "m9")
    assert (group.leader_id, group.members["m9"].assignment) == ("m9", b"kept")


def test_a_full_group_lets_a_restarted_static_member_back_in():
    s = ClassicScenario(group_max_size=2)
    s.s2()
    assert code(join_static(s, "F").response) == "NONE"
