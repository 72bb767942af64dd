"""Leases while the log is unavailable: renewed from memory, and nobody is declared dead."""

from __future__ import annotations

import pytest

from coordinator.core.sessions.handoff.phases import RETRY_MS
from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.records import SessionMemberEnded
from coordinator.core.values.session_messages import Order, StreamRefused
from coordinator.shard.followers import AckPolicy
from coordinator.shard.inputs import AppendFailure
from coordinator.shard.writes import BACKOFF_MS_MAX
from tests.kit.session_scenario import g2, handing_over, with_policy

ALONE = AckPolicy(all_in_sync=True, min_in_sync=2)


def away(scenario):
    scenario.is_away = True


def full(scenario):
    scenario.is_full = True


def without_followers(scenario):
    scenario.shard.followers.policy = ALONE


def end_outage(scenario):
    scenario.is_away = scenario.is_full = False
    scenario.shard.followers.policy = AckPolicy()


outages = pytest.mark.parametrize("begin_outage", [away, full, without_followers])


@outages
def test_a_member_that_is_heard_again_while_the_log_is_unavailable_lives_on(begin_outage):
    scenario, a, _b = g2()
    held = {partition: a.orders[partition].token for partition in a.active}
    scenario.to(5_000)
    a.beats = False
    begin_outage(scenario)
    scenario.to(40_000)
    assert not scenario.group.members[a.member_id].is_ended
    a.beats = True
    scenario.to(41_000)
    a.beat(whole=True)
    assert a.acks[-1][0] == 41_000
    assert {partition: a.orders[partition].token for partition in a.active} == held
    end_outage(scenario)
    scenario.to(60_000)
    assert {partition: a.orders[partition].token for partition in a.active} == held
    assert ends(scenario) == []


@outages
@pytest.mark.parametrize("back_ms", [15_500, 17_900, 20_010, 40_000])
def test_a_member_that_stays_silent_ends_when_the_log_is_back(begin_outage, back_ms):
    scenario, a, b = g2()
    scenario.to(5_000)
    a.beats = False
    begin_outage(scenario)
    scenario.to(back_ms)
    assert len(b.active) == 1, "nothing is granted"
    end_outage(scenario)
    # Tried again after the back-off; one that refuses at once is asked once a second.
    back_ms += BACKOFF_MS_MAX if begin_outage is away else RETRY_MS
    scenario.to(back_ms + 20)
    assert ends(scenario) == [a.member_id]
    scenario.to(back_ms + 120)
    assert len(b.active) == 3


@outages
def test_members_that_heartbeat_through_an_outage_notice_nothing(begin_outage):
    scenario, a, b = g2()
    begin_outage(scenario)
    before = len(a.received), len(b.received)
    scenario.to(120_000)
    assert (a.acks[-1][0], b.acks[-1][0]) == (120_000, 120_000)
    end_outage(scenario)
    scenario.to(180_000)
    assert (len(a.received), len(b.received)) == before
    assert scenario.state == "Stable"


@pytest.mark.parametrize("begin_outage", [away, full])
def test_a_member_that_was_refused_before_the_log_was_known_to_be_unavailable_resumes(begin_outage):
    """It has lost what it held, and attaches again when the end is not in the log after all."""
    scenario, a, _b = g2()
    scenario.to(5_000)
    a.beats = False
    scenario.hold()
    scenario.to(15_001)
    begin_outage(scenario)
    a.beat()
    assert isinstance(a.end, StreamRefused)
    scenario.release()
    assert not scenario.group.members[a.member_id].is_ended
    tokens = sorted(order.token for order in a.orders.values())
    scenario.to(16_000)
    end_outage(scenario)
    a.orders.clear()
    a.attach()
    a.beats = True
    scenario.to(30_000)
    assert ends(scenario) == []
    assert len(a.active) == 2
    assert sorted(order.token for order in a.orders.values()) > tokens, "granted anew"


def test_a_slow_append_is_no_unavailable_log():
    scenario, a, b = g2()
    scenario.to(5_000)
    a.beats = False
    scenario.to(14_900)
    scenario.hold()
    scenario.to(19_000)
    a.beat()
    assert a.end == StreamRefused(ErrorCode.UNKNOWN_MEMBER_ID, a.end.message)
    scenario.release()
    scenario.to(19_100)
    assert len(b.active) == 3


def test_the_end_of_a_lease_is_not_tried_again_while_the_log_is_away():
    scenario, a, _b = g2()
    scenario.to(5_000)
    a.beats = False
    scenario.hold()
    scenario.to(15_000)
    (append,) = scenario.held
    assert ended_by(append) == [a.member_id]
    fail(scenario, AppendFailure.UNAVAILABLE)
    scenario.to(18_000)
    assert [ended_by(append) for append in scenario.held] == [[]], "a question, and no end"
    a.beat()
    assert a.acks[-1][0] == 18_000


def test_a_log_that_cannot_be_reached_is_asked_once_for_all_leases_that_have_run_out():
    scenario, a, b = g2()
    scenario.to(5_000)
    a.beats = b.beats = False
    scenario.is_away = True
    scenario.to(17_000)
    for now_ms in range(17_000, 40_000, 50):
        scenario.to(now_ms)
        assert scenario.group.overdue == {a.member_id, b.member_id}
        assert scenario.shard.stats().pending_appends == 1
    scenario.is_away = False
    scenario.to(40_500)
    assert ends(scenario) == sorted([a.member_id, b.member_id])


def test_an_end_whose_write_has_no_known_result_stands():
    scenario, a, _b = g2()
    scenario.to(5_000)
    a.beats = False
    scenario.hold()
    scenario.to(15_000)
    fail(scenario, AppendFailure.AMBIGUOUS)
    assert scenario.group.members[a.member_id].is_ended
    a.beat()
    assert isinstance(a.end, StreamRefused)
    scenario.release()
    assert ends(scenario) == [a.member_id]


def test_a_lease_that_runs_out_behind_a_write_without_a_known_result_is_put_off():
    scenario, a, b = g2()
    scenario.to(5_000)
    a.beats = False
    scenario.hold()
    scenario.to(14_900)
    b.commit(7, b.active[0])
    fail(scenario, AppendFailure.AMBIGUOUS)
    scenario.to(15_500)
    assert not scenario.group.members[a.member_id].is_ended
    a.beat()
    scenario.release()
    scenario.to(16_000)
    assert ends(scenario) == []


def test_an_end_that_waits_behind_a_failing_write_is_taken_back_with_it():
    scenario, a, b = g2()
    scenario.to(5_000)
    a.beats = False
    scenario.to(14_900)
    scenario.hold()
    b.commit(7, b.active[0])
    scenario.to(15_000)
    assert scenario.group.members[a.member_id].is_ended, "it is queued"
    fail(scenario, AppendFailure.AMBIGUOUS)
    assert not scenario.group.members[a.member_id].is_ended
    scenario.release()
    assert ends(scenario) == [a.member_id], "the log is back: it was not heard"


def test_a_member_that_leaves_while_its_end_is_put_off_has_left():
    scenario, a, b = g2()
    scenario.to(5_000)
    a.beats = False
    scenario.is_away = True
    scenario.to(20_000)
    a.leave("now")
    assert scenario.group.members[a.member_id].is_ended
    scenario.is_away = False
    scenario.to(22_000)
    assert ends(scenario) == [a.member_id]
    assert len(b.active) == 3


def test_a_process_that_waits_for_the_name_inherits_when_the_log_is_back():
    scenario, a, _b = g2()
    scenario.to(5_000)
    a.beats = False
    partitions = a.active
    queued = scenario.member(a.name, a.topics, "i-new").attach(started_at_ms=5_000)
    scenario.is_away = True
    scenario.to(30_000)
    assert queued.active == []
    assert not scenario.group.members[a.member_id].is_ended
    scenario.is_away = False
    scenario.to(31_200)
    assert queued.active == partitions


def test_a_process_that_has_stopped_to_wait_for_the_name_is_forgotten():
    scenario, a, _b = g2()
    scenario.to(5_000)
    a.beats = False
    queued = scenario.member(a.name, a.topics, "i-new").attach(started_at_ms=9_000)
    scenario.to(14_900)
    scenario.hold()
    scenario.to(15_000)
    queued.cut()
    assert a.name in scenario.group.waiting, "it is a member by the write of that end"
    scenario.release(failing=AppendFailure.UNAVAILABLE)
    assert a.name not in scenario.group.waiting


def test_a_delay_is_counted_from_the_end_that_stands():
    scenario, a, b = g2(with_policy(handover_delay_ms=2_000))
    scenario.to(5_000)
    a.beats = False
    scenario.is_away = True
    scenario.to(15_100)
    assert not scenario.group.partition_states
    assert not any(topic.idle_spans for topic in scenario.group.topics.values())
    scenario.to(20_000)
    scenario.is_away = False
    while not ends(scenario):
        scenario.to(scenario.now + 10)
    scenario.to(scenario.now + 1_980)
    assert len(b.active) == 1
    scenario.to(scenario.now + 200)
    assert len(b.active) == 3


def test_a_hand_off_of_a_silent_holder_goes_on_when_the_log_is_back():
    scenario, a, b, partition = handing_over()
    a.beats = False
    scenario.is_away = True
    scenario.to(60_000)
    assert a.orders[partition].order is Order.DRAIN
    assert scenario.group.holder(partition) == a.member_id
    scenario.is_away = False
    scenario.to(62_000)
    assert partition in b.active


def test_a_new_owner_asks_nothing_of_the_last_one():
    scenario, a, b = g2()
    a.beats = False
    scenario.is_away = True
    scenario.to(30_000)
    scenario.is_away = False
    scenario.restart()
    a.attach()
    b.attach()
    a.beats = True
    scenario.to(60_000)
    assert ends(scenario) == []


def fail(scenario, failure):
    """Have the append that is held fail, and hold what follows."""
    (append,), scenario.held = scenario.held, []
    scenario._append(append, failure)


def ends(scenario):
    return [
        record.member_id for record in scenario.records if isinstance(record, SessionMemberEnded)
    ]


def ended_by(append):
    return [record.member_id for record in append.records if isinstance(record, SessionMemberEnded)]
