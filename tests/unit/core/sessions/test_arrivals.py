"""Members whose admission takes long, and groups that fall empty: what is left of them."""

from __future__ import annotations

from tests.kit.session_scenario import SessionScenario


def test_an_attach_is_answered_by_the_result_of_its_record_however_late():
    """Answered earlier, its process would attach again, and the log would have it twice."""
    scenario = SessionScenario()
    scenario.hold()
    a = scenario.member("w-a", {"t": 4}).attach()
    scenario.to(6_000)
    assert a.reply is None
    first = a.stream
    a.attach()
    scenario.release()
    assert len(scenario.group.members) == 1
    scenario.to(6_200)
    assert len(a.active) == 4
    assert a.stream != first


def test_a_group_whose_only_member_returns_has_its_state():
    scenario = SessionScenario()
    a = scenario.member("w-a", {"t": 4}).attach()
    a.leave("return", 60_000)
    assert scenario.group.current_state() is scenario.group.state


def test_a_process_that_was_not_heard_when_its_name_fell_free_is_admitted_when_it_is_heard():
    scenario = SessionScenario()
    old = scenario.member("w-a", {"t": 2}).attach()
    queued = scenario.member("w-a", {"t": 2}, "i-2").attach()
    queued.beats = False
    scenario.to(20_000)
    old.beats = False
    scenario.to(40_000)
    assert not scenario.group.members
    queued.beat()
    assert queued.member_id in scenario.group.members
    queued.beats = True
    scenario.to(40_200)
    assert len(queued.active) == 2
