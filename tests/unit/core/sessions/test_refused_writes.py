"""Hand-offs, ends and kept names whose records the log refuses."""

from __future__ import annotations

from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.plan_journal import HandoffOutcome
from coordinator.core.values.session_messages import GoAway, GoAwayReason, Order
from coordinator.shard.followers import AckPolicy
from tests.kit.session_scenario import g2, handing_over, with_policy


def test_a_refused_phase_is_written_again_after_a_while_and_not_at_once():
    scenario, a, b = g2()
    scenario.to(5_050)
    partition = a.active[0]
    scenario.hold()
    scenario.move(partition, b)
    scenario.refuse()
    assert not scenario.held, "nothing is written before its time"
    scenario.to(6_100)
    scenario.release()
    scenario.to(7_000)
    assert a.orders[partition].order in (Order.ACTIVE, Order.DRAIN)
    scenario.hold()
    a.ack(partition)
    scenario.refuse()
    assert not scenario.held
    assert a.commit(5, partition) == [ErrorCode.FENCED_TOKEN]
    scenario.to(scenario.now + 1_000)
    assert scenario.held
    scenario.release()
    assert scenario.group.holder(partition) != a.member_id


def test_a_node_with_too_few_followers_does_not_spin():
    """Writes are refused at once then, within the step that asks for them."""
    scenario, a, b = g2()
    partition = a.active[0]
    scenario.shard.followers.policy = AckPolicy(all_in_sync=True, min_in_sync=2)
    a.ack(partition)
    assert scenario.group.holder(partition) == a.member_id
    a.beats = False
    scenario.to(12_600)
    assert scenario.group.holder(partition) == a.member_id, "nobody is declared dead"
    assert scenario.group.members[b.member_id].last_beat_ms == 12_500, "renewed from memory"
    scenario.shard.followers.policy = AckPolicy()
    scenario.to(14_000)
    assert a.member_id not in scenario.group.members
    assert len(b.active) == 3


def test_a_refused_switch_by_force_keeps_to_the_delay():
    scenario, a, b, partition = handing_over(with_policy(handover_delay_ms=2_000))
    scenario.to(44_900)
    scenario.hold()
    scenario.to(45_000)
    scenario.refuse()
    scenario.release()
    scenario.to(46_500)
    assert scenario.group.holder(partition) == ""
    assert scenario.group.journal.handoffs[0].line.outcome is HandoffOutcome.FORCED
    scenario.to(48_000)
    assert partition in {*a.active, *b.active}


def test_an_end_that_the_log_refuses_is_written_again():
    scenario, a, b = g2()
    scenario.to(5_000)
    a.beats = False
    scenario.to(14_900)
    scenario.hold()
    scenario.to(15_000)
    scenario.refuse()
    assert a.member_id in scenario.group.members
    assert a.commit(5, a.active[0]) == [ErrorCode.UNKNOWN_MEMBER_ID]
    scenario.release()
    scenario.to(16_200)
    assert a.member_id not in scenario.group.members
    assert len(b.active) == 3


def test_a_leaver_hears_of_its_end_when_it_is_durable_at_last():
    scenario, a, b = g2()
    scenario.to(5_000)
    scenario.hold()
    a.leave("now")
    scenario.refuse()
    assert a.end is None
    scenario.release()
    scenario.to(6_100)
    assert a.end == GoAway(GoAwayReason.LEFT)
    assert len(b.active) == 3


def test_a_process_of_the_name_is_asked_to_come_later_while_the_log_has_refused_the_end():
    scenario, a, _ = g2()
    partitions = a.active
    scenario.to(5_000)
    scenario.hold()
    a.leave("now")
    scenario.refuse()
    new = scenario.member(a.name, a.topics, "i-new").attach(started_at_ms=5_000)
    assert new.reply.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert new.reply.retry_after_ms == 1_000
    scenario.release()
    scenario.to(6_000)
    new.attach(started_at_ms=5_000)
    scenario.to(7_100)
    assert new.active == partitions


def test_a_kept_name_is_freed_although_the_log_refused_it_once():
    scenario, a, b = g2()
    scenario.to(5_000)
    a.leave("return", 60_000)
    scenario.to(64_900)
    scenario.hold()
    scenario.to(65_000)
    scenario.refuse()
    scenario.release()
    scenario.to(66_200)
    assert len(b.active) == 3


def test_a_deadline_that_passes_while_a_record_is_in_flight_is_not_missed():
    """The record of another successor replaces the hand-off whose deadline has passed."""
    scenario, a, b, partition = handing_over()
    scenario.member("w-c", {"t": 3}).attach()
    scenario.to(35_000)
    scenario.hold()
    b.ack(partition, "refused", handoff_id=a.orders[partition].handoff_id)
    assert scenario.held
    scenario.to(35_200)
    assert order_of(a, partition) is Order.DRAIN
    scenario.release()
    assert order_of(a, partition) is Order.LOST
    token = a.orders[partition].token
    scenario.to(46_000)
    assert scenario.group.token(partition) > token


def order_of(member, partition):
    return member.orders[partition].order
