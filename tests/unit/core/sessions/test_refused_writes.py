"""Hand-offs, ends and kept names whose records the log refuses."""

from __future__ import annotations

from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.plan_journal import HandoffOutcome
from coordinator.core.values.session_messages import GoAway, GoAwayReason, Order
from coordinator.shard.followers import AckPolicy
from tests.unit.core.sessions.kit import g2, handing_over, with_policy


def test_a_refused_phase_is_written_again_after_a_while_and_not_at_once():
    world, a, b = g2()
    world.to(5_050)
    partition = a.active[0]
    world.hold()
    world.move(partition, b)
    world.refuse()
    assert not world.held, "nothing is written before its time"
    world.to(6_100)
    world.release()
    world.to(7_000)
    assert a.orders[partition].order in (Order.ACTIVE, Order.DRAIN)
    world.hold()
    a.ack(partition)
    world.refuse()
    assert not world.held
    assert a.commit(5, partition) == [ErrorCode.FENCED_TOKEN]
    world.to(world.now + 1_000)
    assert world.held
    world.release()
    assert world.group.holder(partition) != a.member_id


def test_a_node_with_too_few_followers_does_not_spin():
    """Writes are refused at once then, within the step that asks for them."""
    world, a, b = g2()
    partition = a.active[0]
    world.shard.followers.policy = AckPolicy(all_in_sync=True, min_in_sync=2)
    a.ack(partition)
    assert world.group.holder(partition) == a.member_id
    a.beats = False
    world.to(12_600)
    assert world.group.holder(partition) == a.member_id, "nobody is declared dead"
    assert world.group.members[b.member_id].last_beat_ms == 12_500, "renewed from memory"
    world.shard.followers.policy = AckPolicy()
    world.to(14_000)
    assert a.member_id not in world.group.members
    assert len(b.active) == 3


def test_a_refused_switch_by_force_keeps_to_the_delay():
    world, a, b, partition = handing_over(with_policy(handover_delay_ms=2_000))
    world.to(44_900)
    world.hold()
    world.to(45_000)
    world.refuse()
    world.release()
    world.to(46_500)
    assert world.group.holder(partition) == ""
    assert world.group.journal.handoffs[0].line.outcome is HandoffOutcome.FORCED
    world.to(48_000)
    assert partition in {*a.active, *b.active}


def test_an_end_that_the_log_refuses_is_written_again():
    world, a, b = g2()
    world.to(5_000)
    a.beats = False
    world.to(14_900)
    world.hold()
    world.to(15_000)
    world.refuse()
    assert a.member_id in world.group.members
    assert a.commit(5, a.active[0]) == [ErrorCode.UNKNOWN_MEMBER_ID]
    world.release()
    world.to(16_200)
    assert a.member_id not in world.group.members
    assert len(b.active) == 3


def test_a_leaver_hears_of_its_end_when_it_is_durable_at_last():
    world, a, b = g2()
    world.to(5_000)
    world.hold()
    a.leave("now")
    world.refuse()
    assert a.end is None
    world.release()
    world.to(6_100)
    assert a.end == GoAway(GoAwayReason.LEFT)
    assert len(b.active) == 3


def test_a_process_of_the_name_is_asked_to_come_later_while_the_log_has_refused_the_end():
    world, a, _ = g2()
    partitions = a.active
    world.to(5_000)
    world.hold()
    a.leave("now")
    world.refuse()
    new = world.member(a.name, a.topics, "i-new").attach(started_at_ms=5_000)
    assert new.reply.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert new.reply.retry_after_ms == 1_000
    world.release()
    world.to(6_000)
    new.attach(started_at_ms=5_000)
    world.to(7_100)
    assert new.active == partitions


def test_a_kept_name_is_freed_although_the_log_refused_it_once():
    world, a, b = g2()
    world.to(5_000)
    a.leave("return", 60_000)
    world.to(64_900)
    world.hold()
    world.to(65_000)
    world.refuse()
    world.release()
    world.to(66_200)
    assert len(b.active) == 3


def test_a_deadline_that_passes_while_a_record_is_in_flight_is_not_missed():
    """The record of another successor replaces the hand-off whose deadline has passed."""
    world, a, b, partition = handing_over()
    world.member("w-c", {"t": 3}).attach()
    world.to(35_000)
    world.hold()
    b.ack(partition, "refused", handoff_id=a.orders[partition].handoff_id)
    assert world.held
    world.to(35_200)
    assert order_of(a, partition) is Order.DRAIN
    world.release()
    assert order_of(a, partition) is Order.LOST
    token = a.orders[partition].token
    world.to(46_000)
    assert world.group.token(partition) > token


def order_of(member, partition):
    return member.orders[partition].order
