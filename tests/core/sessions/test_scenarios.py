"""Scenarios of session groups: who is told what, and when."""

from __future__ import annotations

from coordinator.core.errors import ErrorCode
from coordinator.core.session_values.messages import Order
from coordinator.core.session_values.requests import GoAway, GoAwayReason, StreamRefused
from tests.core.sessions.kit import World, g1, g2


def test_a_member_alone_gets_all_a_window_later():
    world = World()
    a = world.member("w-a", {"t": 4}).attach()
    assert a.reply.lease_ms == 10_000
    assert a.reply.wanted.why == "window"
    assert not a.reply.wanted.partitions
    assert world.state == "Assigning"
    world.to(99)
    assert not a.active
    world.to(100)
    assert a.active == [("t", n) for n in range(4)]
    assert [a.orders["t", n].token for n in range(4)] == [1, 2, 3, 4]
    assert world.state == "Stable"


def test_nobody_is_answered_before_the_record_is_durable():
    world = World()
    world.hold()
    a = world.member("w-a", {"t": 4}).attach()
    assert a.reply is None
    world.release()
    assert a.reply.error is ErrorCode.NONE


def test_a_stream_that_ends_moves_nothing_and_resumes():
    world, a, b = g2()
    tokens = dict(a.orders)
    world.to(3_000)
    a.cut()
    records = len(world.records)
    world.to(4_000)
    assert world.group.members[a.member_id].is_suspect
    a.beats = True
    a.attach()
    assert dict(a.orders).keys() == tokens.keys()
    assert [order.token for order in a.orders.values()] == [o.token for o in tokens.values()]
    assert len(world.records) == records
    assert not world.group.members[a.member_id].is_suspect
    assert len(b.active) == 1


def test_a_newer_stream_supersedes_and_an_older_one_is_refused():
    world, a, _ = g2()
    old = a.stream
    a.attach()
    assert world.streams.get(old) is None
    a.attach(stream_number=1)
    assert a.reply.error is ErrorCode.FENCED_INSTANCE_ID


def test_a_silent_member_ends_with_its_lease_and_its_partitions_go_on():
    world, a, b = g2()
    world.to(5_000)
    a.beats = False
    held = a.active
    world.to(14_999)
    assert a.member_id in world.group.members
    world.to(15_000)
    assert a.member_id not in world.group.members
    assert a.commit(5, held[0]) == [ErrorCode.UNKNOWN_MEMBER_ID]
    world.to(15_099)
    assert len(b.active) == 1
    world.to(15_100)
    assert len(b.active) == 3
    assert isinstance(a.end, StreamRefused)


def test_an_end_is_decided_once_although_its_record_is_held():
    world, a, b = g2()
    world.to(5_000)
    a.beats = False
    stream = a.stream
    world.to(14_900)
    world.hold()
    world.to(15_001)
    a.stream = stream
    a.beat()
    assert not [ack for at, ack in a.acks if at > 14_900]
    assert a.commit(5, a.active[0]) == [ErrorCode.UNKNOWN_MEMBER_ID]
    world.to(16_000)
    assert len(b.active) == 1
    world.release()
    world.to(16_200)
    assert len(b.active) == 3


def test_leaving_now_frees_and_leaving_gently_hands_over():
    world, a, b = g2()
    world.to(5_000)
    a.leave("drain", 20_000)
    world.to(5_100)
    drained = [o for o in a.orders.values() if o.order is Order.DRAIN]
    assert len(drained) == 2
    assert len(b.active) == 1
    for order in drained:
        a.ack((order.topic, order.partition))
    assert len(b.active) == 3
    assert a.end == GoAway(GoAwayReason.DRAINED)

    world, a, b = g2()
    world.to(5_000)
    a.leave("now")
    assert a.end == GoAway(GoAwayReason.LEFT)
    world.to(5_100)
    assert len(b.active) == 3


def test_another_member_gets_its_share_by_draining():
    world, a = g1()
    world.to(2_000)
    b = world.member("w-b", {"t": 4}).attach()
    world.to(2_100)
    draining = [place for place, order in a.orders.items() if order.order is Order.DRAIN]
    assert len(draining) == 1, "a budget of one"
    assert a.commit(7, draining[0]) == [ErrorCode.NONE]
    a.ack(draining[0], position=9)
    assert a.commit(8, draining[0], token=1) == [ErrorCode.FENCED_TOKEN]
    assert b.active == draining
    assert b.orders[draining[0]].offset == 7
    again = [place for place, order in a.orders.items() if order.order is Order.DRAIN]
    assert len(again) == 1, "the next one, in the same step"
    a.ack(again[0])
    assert len(a.active) == len(b.active) == 2
    assert world.state == "Stable"


def test_who_does_not_release_is_forced_and_waited_for():
    world, a = g1()
    world.to(5_000)
    b = world.member("w-b", {"t": 4}).attach()
    world.to(35_099)
    draining = next(place for place, o in a.orders.items() if o.order is Order.DRAIN)
    began = next(at for at, w in a.told if any(o.order is Order.DRAIN for o in w.partitions))
    world.to(began + 30_000)
    assert a.orders[draining].order is Order.LOST
    heard = max(at for at, _ in a.acks if at < began + 30_000)
    world.to(heard + 9_999)
    assert draining not in b.active
    assert a.acks[-1][1].not_renewed == (draining,)
    world.to(heard + 10_000)
    assert draining in b.active


def test_a_restart_moves_nothing_and_forgets_nobody():
    world, a, b = g2()
    held = {member.name: list(member.held) for member in (a, b)}
    world.to(10_001)
    a.beats = False
    world.restart()
    world.to(14_000)
    b.attach()
    assert list(b.held) == held[b.name]
    world.to(20_000)
    assert a.member_id in world.group.members
    world.to(20_101)
    assert len(b.active) == 3
    assert min(token for *_, token in b.held if token > 3) > 3


def test_a_name_that_returns_gets_its_own_back():
    world, a, b = g2()
    held = a.active
    world.to(5_000)
    a.leave("return", 60_000)
    world.to(29_000)
    assert len(b.active) == 1
    world.to(30_000)
    again = world.member(a.name, {"t": 3}, "i-2").attach()
    assert again.active == held
    assert {t for *_, t in again.held}.isdisjoint({1, 2, 3})


def test_a_name_that_does_not_return_is_given_up():
    world, a, b = g2()
    world.to(5_000)
    a.leave("return", 60_000)
    world.to(64_999)
    assert len(b.active) == 1
    world.to(65_100)
    assert len(b.active) == 3


def test_a_group_is_empty_after_a_name_has_returned_and_left():
    world, a, _b = g2()
    a.leave("return", 60_000)
    world.to(1_000)
    a.incarnation, a.beats = "i-new", True
    a.attach(held=())
    assert not world.group.kept_names
    for member in world.members:
        member.leave("now")
    assert world.state == "Empty"
