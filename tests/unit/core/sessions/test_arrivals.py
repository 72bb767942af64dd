"""Members whose admission takes long, and groups that fall empty: what is left of them."""

from __future__ import annotations

from tests.unit.core.sessions.kit import World


def test_an_attach_is_answered_by_the_result_of_its_record_however_late():
    """Answered earlier, its process would attach again, and the log would have it twice."""
    world = World()
    world.hold()
    a = world.member("w-a", {"t": 4}).attach()
    world.to(6_000)
    assert a.reply is None
    first = a.stream
    a.attach()
    world.release()
    assert len(world.group.members) == 1
    world.to(6_200)
    assert len(a.active) == 4
    assert a.stream != first


def test_a_group_whose_only_member_returns_has_its_state():
    world = World()
    a = world.member("w-a", {"t": 4}).attach()
    a.leave("return", 60_000)
    assert world.group.current_state() is world.group.state


def test_a_process_that_was_not_heard_when_its_name_fell_free_is_admitted_when_it_is_heard():
    world = World()
    old = world.member("w-a", {"t": 2}).attach()
    heir = world.member("w-a", {"t": 2}, "i-2").attach()
    heir.beats = False
    world.to(20_000)
    old.beats = False
    world.to(40_000)
    assert not world.group.members
    heir.beat()
    assert heir.member_id in world.group.members
    heir.beats = True
    world.to(40_200)
    assert len(heir.active) == 2
