"""A store that was put back: what it has forgotten may be held by members that live."""

from __future__ import annotations

from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.records import (
    PartitionsGranted,
    PartitionSwitched,
    Record,
    SessionMemberEnded,
)
from coordinator.core.values.session_messages import Order
from coordinator.shard.inputs import AppendFailure
from tests.kit.session_scenario import SessionScenario, g2, with_policy


def granted(scenario: SessionScenario, since: int) -> list[Record]:
    """Records of grants from one position of the log on."""
    found = scenario.records[since:]
    return [
        record
        for record in found
        if (isinstance(record, PartitionsGranted) and record.grants)
        or (isinstance(record, PartitionSwitched) and record.token)
    ]


def test_others_wait_for_the_delay_after_the_end_of_a_session_that_the_store_has_forgotten():
    """Its member works on until it hears of that, at most until its lease ends."""
    scenario, a, b = g2(with_policy(handover_delay_ms=20_000))
    a.cut()
    scenario.restart()
    b.attach()
    scenario.to(5_000)
    a.attach(epoch=9, is_ahead=True)
    scenario.to(30_000)
    assert (a.active, len(b.active)) == ([], 1)
    scenario.to(31_200)
    assert len(a.active) + len(b.active) == 3


def test_a_member_that_knows_a_later_epoch_gets_a_new_session_and_loses_all():
    scenario, a, _b = g2()
    scenario.to(5_000)
    scenario.restart()
    session, claimed = a.reply.session_id, a.active
    highest = max(token for *_, token in a.held)
    scenario.hold()
    a.attach(session_id=session, epoch=9, is_ahead=True)
    assert a.reply is None, "the fence is proved by an append"
    scenario.release()
    assert a.reply.session_id != session
    assert {(o.topic, o.partition): o.order for o in a.reply.orders.partitions} == dict.fromkeys(
        claimed, Order.LOST
    )
    ended = [record for record in scenario.records if isinstance(record, SessionMemberEnded)]
    assert [record.cause.value for record in ended] == ["restored"]
    scenario.to(16_000)
    assert a.active
    assert min(token for *_, token in a.held) > highest
    a.cut()
    a.beats = True
    session = a.reply.session_id
    a.attach(session_id=session)
    assert a.reply.session_id == session, "not refused, nor restored, for ever"


def test_what_a_session_held_that_the_store_has_forgotten_waits_for_the_end_of_its_lease():
    """The answer may be lost, and its process acts on."""
    scenario, a, b = g2()
    scenario.to(5_000)
    a.attach(epoch=9, is_ahead=True)
    a.beats = False
    since = len(scenario.records)
    scenario.to(14_999)
    assert granted(scenario, since) == []
    scenario.to(15_200)
    assert len(b.active) == 3


def test_nothing_is_granted_after_a_store_was_put_back_until_the_longest_lease_has_passed():
    scenario, a, b = g2()
    scenario.to(5_000)
    a.beats = b.beats = False
    a.clock.stops_all()
    scenario.restart()
    since = len(scenario.records)
    a.attach(epoch=9, is_ahead=True)
    b.attach(held=())  # The log says that it holds one, which is not granted anew.
    c = scenario.member("w-c", {"t": 3}).attach()
    a.beats = b.beats = True
    for moment in (5_100, 6_500, 10_000, 14_999):
        scenario.to(moment)
        assert granted(scenario, since) == []
    scenario.to(15_200)
    assert sorted(a.active + b.active + c.active) == [("t", 0), ("t", 1), ("t", 2)]


def test_claims_that_the_log_confirms_go_on_after_a_store_was_put_back():
    scenario, a, b = g2()
    scenario.to(5_000)
    scenario.restart()
    before = b.held
    a.attach(epoch=9, is_ahead=True)
    b.attach()
    b.beats = True
    scenario.to(14_000)
    assert b.held == before


def test_a_hand_off_waits_for_nobody_to_act_after_a_store_was_put_back():
    scenario, a, b = g2()
    partition = a.active[0]
    scenario.move(partition, b)
    scenario.restart()
    b.attach()
    a.attach()
    scenario.member("w-c", {"t": 1}).attach(epoch=9, is_ahead=True)
    a.ack(partition)
    assert scenario.group.holder(partition) == ""
    scenario.to(10_000)
    assert scenario.group.holder(partition) == ""
    scenario.to(11_300)
    assert scenario.group.holder(partition)


def test_a_plan_that_was_being_computed_when_a_store_proved_to_be_put_back_is_made_again():
    scenario = SessionScenario()
    scenario.compute_ms = 1_000
    a = scenario.member("w-a", {"t": 6_000}).attach()
    scenario.to(150)
    scenario.member("w-b", {"t": 6_000}).attach(epoch=9, is_ahead=True)
    scenario.to(9_999)
    assert granted(scenario, 0) == []
    scenario.to(12_000)
    assert len(a.active) == 3_000


def test_an_epoch_that_was_invented_holds_nothing_back_later():
    scenario, a, b = g2()
    scenario.to(40_000)
    a.attach(epoch=2**60, is_ahead=True)
    since = len(scenario.records)
    b.leave("now")
    scenario.to(41_200)
    assert granted(scenario, since)


def test_a_fenced_node_does_not_end_a_session_of_a_later_epoch():
    scenario, a, _b = g2()
    scenario.restart()
    scenario.hold()
    a.attach(epoch=9, is_ahead=True)
    scenario.release(failing=AppendFailure.FENCED)
    assert a.reply.error is ErrorCode.NOT_COORDINATOR
    assert not any(isinstance(record, SessionMemberEnded) for record in scenario.records)
