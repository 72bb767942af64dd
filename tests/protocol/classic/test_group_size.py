"""Scenarios 126-131: the group size limit (KIP-389), four members at most."""

import pytest

from tests.kit.classic_scenario import ClassicScenario, code

FULL = "GROUP_MAX_SIZE_REACHED"


def test_127_surplus_ids_are_refused_in_phase_two():
    s = ClassicScenario()
    ids = [s.join(two_phase=True).response.member_id for _ in range(5)]
    calls = [s.join(member_id, two_phase=True) for member_id in ids]
    assert (code(calls[4].response), calls[4].response.member_id) == (FULL, "")
    s.advance(200)
    assert [code(call.response) for call in calls] == ["NONE"] * 4 + [FULL]
    assert s.state == "CompletingRebalance"
    again = [s.join(member_id, two_phase=True) for member_id in ids]
    assert [code(call.response) for call in again[:4]] == ["NONE"] * 4
    assert code(again[4].response) == FULL


def test_127_a_surplus_id_that_was_refused_is_not_waited_for():
    s = ClassicScenario(group_max_size=2)
    a = s.f1(srt=5000, rt=5000)
    first, surplus = (
        s.join(two_phase=True, srt=5000, rt=5000).response.member_id for _ in range(2)
    )
    calls = [s.join(member_id, two_phase=True, srt=5000, rt=5000) for member_id in (first, a)]
    assert not any(call.done for call in calls)
    assert code(s.join(surplus, two_phase=True, srt=5000, rt=5000).response) == FULL
    assert [code(call.response) for call in calls] == ["NONE"] * 2


def test_127_a_member_of_a_full_join_phase_that_joins_again_keeps_its_seat():
    s = ClassicScenario(group_max_size=1)
    a = s.join(two_phase=True).response.member_id
    calls = [s.join(a, two_phase=True) for _ in range(2)]
    s.advance(200)
    assert [code(call.response) for call in calls] == ["REBALANCE_IN_PROGRESS", "NONE"]
    assert s.members() == [a]


@pytest.mark.parametrize("static", [True, False])
def test_128_the_fifth_of_five_is_refused(static):
    s = ClassicScenario()
    calls = [s.join(instance=f"i{n}" if static else None) for n in range(5)]
    s.advance(200)
    assert [code(call.response) for call in calls] == ["NONE"] * 4 + [FULL]


def test_129_a_full_stable_group_refuses_before_handing_out_an_id():
    s = ClassicScenario(group_max_size=1)
    s.f1()
    assert code(s.join(two_phase=True).response) == FULL
    assert s.state == "Stable"


def test_130_a_lowered_limit_costs_those_who_rejoin_last_their_seats():
    s = ClassicScenario(group_max_size=6)
    calls = [s.join(srt=5000) for _ in range(6)]
    s.advance(200)
    ids = [call.response.member_id for call in calls]
    for member_id in ids:
        s.sync(member_id, 1, {})
    s.c.shard.machine.context.config = _with_max(s, 4).groups
    rejoins = [s.join(member_id, srt=5000, metadata=b"new") for member_id in ids]
    assert [code(call.response) for call in rejoins] == ["NONE"] * 4 + [FULL] * 2
    assert (s.state, s.members()) == ("CompletingRebalance", ids[:4])


def _with_max(s: ClassicScenario, size: int):
    return s.c.settings.changed(group_max_size=size)


def test_131_a_group_loaded_over_the_limit_rebalances():
    s = ClassicScenario()
    a, b = s.f2()
    object.__setattr__(s.c, "settings", _with_max(s, 1))
    s.restart()
    assert (s.state, s.members()) == ("PreparingRebalance", [a, b])
    parked = s.join(a)
    assert not parked.done
    assert code(s.join(b).response) == FULL
    assert code(parked.response) == "NONE"
    assert s.members() == [a]
