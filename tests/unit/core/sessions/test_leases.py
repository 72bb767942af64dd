"""Leases on the coordinator's side: what renews them, when they end, and what follows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordinator.core.pauses import Pause
from coordinator.core.sessions import lease
from coordinator.core.sessions.handoff.phases import RETRY_MS
from coordinator.core.values.errors import SESSION_ENDED, ErrorCode
from coordinator.core.values.policy import OnStall
from coordinator.core.values.records import PolicyStored, SessionMemberStored
from coordinator.core.values.replies import ListLogEndsReply
from coordinator.core.values.requests import ListLogEnds
from coordinator.core.values.session_messages import Order, StreamRefused
from coordinator.shard.inputs import AppendFailure
from tests.kit.session_scenario import (
    GROUP,
    ScenarioMember,
    SessionScenario,
    g2,
    handing_over,
    with_policy,
)


def refused(member: ScenarioMember) -> bool:
    end = member.end
    return isinstance(end, StreamRefused) and end.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_end_of_a_lease_is_told_when_it_is_durable():
    scenario, a, b = g2()
    scenario.to(5_000)
    a.beats = False
    scenario.to(14_900)
    scenario.hold()
    scenario.to(16_000)
    assert a.end is None
    assert len(b.active) == 1
    scenario.release()
    assert refused(a)


def test_a_heartbeat_after_the_end_is_refused_although_the_record_is_held():
    scenario, a, b = g2()
    scenario.to(5_000)
    a.beats = False
    scenario.to(14_900)
    scenario.hold()
    scenario.to(15_001)
    a.beat()
    assert refused(a)
    assert not [at for at, _ in a.acks if at > 5_000]
    a.attach()
    assert a.reply.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert a.reply.message == SESSION_ENDED  # Not the classic advice, to join anew.
    scenario.release()
    scenario.to(15_200)
    assert len(b.active) == 3
    a.attach()
    assert a.reply.error is ErrorCode.NONE


def test_an_end_that_the_log_refuses_is_written_again():
    scenario, a, b = g2()
    scenario.to(5_000)
    a.beats = False
    scenario.to(14_900)
    scenario.hold()
    scenario.to(15_001)
    scenario.release(failing=AppendFailure.TOO_LARGE)
    a.beat()
    assert refused(a)
    assert len(b.active) == 1
    scenario.to(16_200)
    assert a.member_id not in scenario.group.members
    assert len(b.active) == 3


def test_an_end_that_the_log_cannot_take_for_long_is_written_when_it_can():
    scenario, a, b = g2()
    scenario.to(5_000)
    a.beats = False
    scenario.to(14_900)
    for _ in range(12):
        scenario.hold()
        scenario.to(scenario.now + 1_000)
        scenario.release(failing=AppendFailure.UNAVAILABLE)
    assert len(b.active) == 1
    assert b.member_id in scenario.group.members, "leases are renewed from memory"
    assert b.acks[-1][0] > scenario.now - 2_600
    scenario.to(scenario.now + 5_000)
    assert len(b.active) == 3


def test_a_switch_that_the_log_refuses_is_decided_again_later_and_not_at_once():
    scenario, a, b, partition = handing_over()
    scenario.hold()
    a.ack(partition)
    scenario.release(failing=AppendFailure.TOO_LARGE)
    assert partition not in b.active
    assert a.commit(80, partition) == [ErrorCode.FENCED_TOKEN]
    scenario.to(scenario.now + RETRY_MS)
    assert partition in b.active


def test_commits_and_acks_do_not_renew():
    scenario, a, _ = g2()
    scenario.to(2_500)
    a.beats = False
    for at in range(3_000, 12_500, 500):
        scenario.to(at)
        assert a.commit(at, a.active[0]) == [ErrorCode.NONE]
        a.ack(a.active[0], "ready")
    scenario.to(12_499)
    assert a.member_id in scenario.group.members
    scenario.to(12_500)
    assert a.member_id not in scenario.group.members


def test_a_heartbeat_in_the_last_millisecond_counts():
    scenario, a, _ = g2()
    scenario.to(5_000)
    a.beats = False
    scenario.to(14_999)
    a.beat()
    scenario.to(24_998)
    assert a.member_id in scenario.group.members
    scenario.to(24_999)
    assert a.member_id not in scenario.group.members


def test_a_late_loop_grants_a_quarter_although_nobody_saw_a_pause():
    scenario, a, b = g2()
    scenario.to(5_000)
    a.beats = False
    scenario.now = 15_000 + 2_501
    b.beat()
    scenario.to(17_501 + 2_499)
    assert a.member_id in scenario.group.members
    scenario.to(17_501 + 2_500)
    assert a.member_id not in scenario.group.members


def test_a_short_pause_grants_nothing():
    scenario, a, _b = g2()
    scenario.to(5_000)
    a.beats = False
    scenario.to(14_000)
    scenario.pauses = (Pause(14_000, 16_400),)
    scenario.to(15_000)
    assert a.member_id not in scenario.group.members


def test_who_is_heard_in_the_quarter_stays():
    scenario, a, b = g2()
    scenario.to(7_600)
    a.beats = False
    scenario.now = 18_000
    scenario.pauses = (Pause(7_600, 18_000),)
    b.beat()
    scenario.to(19_000)
    a.beat()
    scenario.to(28_999)
    assert a.member_id in scenario.group.members
    scenario.to(29_000)
    assert a.member_id not in scenario.group.members, "the excuse was used for another lease"


# --- A changed lease ---


def change_lease(scenario: SessionScenario, lease_ms: int) -> None:
    scenario.store(PolicyStored(GROUP, replace(scenario.group.policy, lease_ms=lease_ms)))


def test_a_shorter_lease_that_nobody_has_heard_is_not_on_record():
    scenario, a, _ = g2(with_policy(lease_ms=45_000))
    change_lease(scenario, 3_000)
    scenario.to(20_000)
    a.beats = False
    a.attach()
    scenario.to(20_100)
    scenario.restart()
    scenario.to(20_100 + 44_999)
    assert a.member_id in scenario.group.members, "a new owner counts the longer one, too"


def test_a_shorter_lease_that_is_heard_is_on_record():
    scenario, a, _ = g2(with_policy(lease_ms=45_000))
    change_lease(scenario, 3_000)
    scenario.to(20_000)
    a.beats = False
    a.attach()
    scenario.to(20_500)
    a.beat()
    newest = [r for r in scenario.records if isinstance(r, SessionMemberStored)][-1]
    assert newest.lease_ms == 3_000
    scenario.to(23_499)
    assert a.member_id in scenario.group.members
    scenario.to(23_500)
    assert a.member_id not in scenario.group.members


def test_a_longer_lease_is_on_record_before_it_is_told():
    scenario, a, _ = g2(with_policy(lease_ms=3_000))
    change_lease(scenario, 45_000)
    scenario.to(2_000)
    scenario.hold()
    a.attach()
    assert a.reply is None
    scenario.release()
    assert a.reply.lease_ms == 45_000
    newest = [r for r in scenario.records if isinstance(r, SessionMemberStored)][-1]
    assert newest.lease_ms == 45_000


# --- A new owner ---


@pytest.mark.parametrize(("members", "grace_ms"), [(2, 0), (6, 0), (10_000, 15_000)])
def test_a_new_owner_grants_time_for_all_to_attach(members, grace_ms):
    assert lease.grace_ms(members) == grace_ms


def test_a_new_owner_declares_nobody_dead_before_a_full_lease_and_the_grace():
    scenario = SessionScenario()
    many = [scenario.member(f"m-{n}", {"t": 1}).attach() for n in range(20)]
    scenario.to(200)
    for each in many[1:]:
        each.beats = False
    scenario.restart()
    scenario.to(200 + 10_029)
    assert len(scenario.group.members) == 20
    scenario.to(200 + 10_030)
    assert len(scenario.group.members) == 0


def test_a_new_owner_counts_the_lease_alone_from_the_first_heartbeat():
    scenario = SessionScenario()
    many = [scenario.member(f"m-{n}", {"t": 1}).attach() for n in range(20)]
    scenario.to(200)
    scenario.restart()
    scenario.to(1_000)
    for each in many:
        each.beats = False
        each.attach()
    scenario.to(10_999)
    assert len(scenario.group.members) == 20
    scenario.to(11_000)
    assert not scenario.group.members


# --- Ends without consent ---


def test_the_successor_of_a_dead_member_waits_for_the_delay_too():
    scenario, a, b, partition = handing_over(with_policy(handover_delay_ms=2_000))
    a.beats = False
    scenario.to(16_999)
    assert partition not in b.active
    scenario.to(17_200)
    assert partition in b.active


def test_a_new_owner_waits_for_the_delay_of_an_end_that_it_has_not_seen():
    scenario, a, b = g2(with_policy(handover_delay_ms=20_000))
    scenario.to(5_000)
    a.beats = False
    scenario.to(15_001)
    scenario.restart()
    b.attach()
    scenario.to(35_000)
    assert len(b.active) == 1
    scenario.to(35_200)
    assert len(b.active) == 3


# --- Progress ---


def stalled(on_stall: OnStall) -> tuple[SessionScenario, ScenarioMember, ScenarioMember]:
    scenario, a, b = g2(with_policy(max_idle_ms=5_000, on_stall=on_stall))
    a.beats = b.beats = False
    for at in (2_500, 5_000):
        scenario.to(at)
        a.beat(progress=0)
        b.beat(progress=at)
    return scenario, a, b


def test_a_worker_that_stands_still_is_reported_and_receives_nothing():
    scenario, a, _b = stalled(OnStall.REPORT)
    scenario.to(6_500)
    assert {order.order for order in a.orders.values()} == {Order.ACTIVE}
    assert not scenario.group.members[a.member_id].receives
    a.beat(progress=1)
    assert scenario.group.members[a.member_id].receives


def test_a_worker_that_stands_still_is_forced():
    scenario, a, b = stalled(OnStall.RELEASE)
    assert {order.order for order in a.orders.values()} == {Order.LOST}
    scenario.to(7_500)
    b.beat(progress=7_500)
    a.beat(progress=0)
    assert len(a.acks[-1][1].expiring) == 2
    scenario.to(14_999)
    assert len(b.active) == 1
    b.beat(progress=14_999)
    scenario.to(15_100)
    assert len(b.active) == 3, "a lease after the last heartbeat that renewed them"


# --- A stream that takes nothing ---


def test_a_stream_that_takes_nothing_for_a_lease_is_ended():
    scenario, a, _b = g2()
    scenario.deaf.add(a.stream)
    scenario.to(12_400)
    assert a.stream in scenario.streams
    scenario.to(15_000)
    assert a.stream not in scenario.streams
    assert isinstance(a.end, StreamRefused)
    member = scenario.group.members[a.member_id]
    assert member.is_suspect
    a.attach()
    assert a.reply.error is ErrorCode.NONE
    assert len(a.active) == 2


# --- Log ends ---


def ends_of(scenario: SessionScenario) -> dict[tuple[str, int], int]:
    call = scenario.new_call()
    scenario.send(ListLogEnds(call_id=call, group_id=GROUP))
    reply = scenario.replies[call]
    assert isinstance(reply, ListLogEndsReply)
    return {(end.topic, end.partition): end.offset for end in reply.ends}


def test_log_ends_in_a_heartbeat_are_the_groups():
    scenario, a, b = g2()
    mine, theirs = a.active[0], b.active[0]
    a.beat(log_ends=((*mine, 70),))
    assert ends_of(scenario) == {mine: 70}
    assert a.acks[-1][1].number == a.number
    b.beat(log_ends=((*theirs, 5),))
    a.beat(log_ends=((*mine, 71),))
    assert ends_of(scenario) == {mine: 71, theirs: 5}


def test_log_ends_of_partitions_that_a_member_does_not_hold_do_not_count():
    scenario, a, b = g2()
    a.beat(log_ends=tuple((*key, 7) for key in (b.active[0], ("t", 3), ("t", -1), ("strange", 0))))
    assert ends_of(scenario) == {}


def test_the_delay_holds_for_the_next_one_when_nobody_was_left_to_declare_the_partition():
    scenario = SessionScenario(with_policy(handover_delay_ms=30_000))
    a = scenario.member("", {"t": 1}, "i-1").attach()
    scenario.to(1_000)
    a.beats = False
    scenario.to(11_000)
    assert a.end is not None
    b = scenario.member("", {"t": 1}, "i-2").attach()
    scenario.to(39_000)
    assert not b.active
    scenario.to(41_100)
    assert b.active


def test_the_delay_holds_for_a_process_of_the_name_that_comes_back_on_another_stream():
    scenario = SessionScenario(with_policy(handover_delay_ms=30_000))
    a = scenario.member("w-a", {"t": 1}, "i-1").attach(started_at_ms=1)
    scenario.to(1_000)
    a.beats = False
    queued = scenario.member("w-a", {"t": 1}, "i-2").attach(started_at_ms=2)
    scenario.to(12_000)
    queued.cut()
    queued.beats = True
    queued.attach(started_at_ms=2)
    scenario.to(39_000)
    assert not queued.active
    scenario.to(42_000)
    assert queued.active


def test_a_silent_member_ends_with_its_lease_and_its_partitions_go_on():
    scenario, a, b = g2()
    scenario.to(5_000)
    a.beats = False
    held = a.active
    scenario.to(14_999)
    assert a.member_id in scenario.group.members
    scenario.to(15_000)
    assert a.member_id not in scenario.group.members
    assert a.commit(5, held[0]) == [ErrorCode.UNKNOWN_MEMBER_ID]
    scenario.to(15_099)
    assert len(b.active) == 1
    scenario.to(15_100)
    assert len(b.active) == 3
    assert isinstance(a.end, StreamRefused)


def test_an_end_is_decided_once_although_its_record_is_held():
    scenario, a, b = g2()
    scenario.to(5_000)
    a.beats = False
    stream = a.stream
    scenario.to(14_900)
    scenario.hold()
    scenario.to(15_001)
    a.stream = stream
    a.beat()
    assert not [ack for at, ack in a.acks if at > 14_900]
    assert a.commit(5, a.active[0]) == [ErrorCode.UNKNOWN_MEMBER_ID]
    scenario.to(16_000)
    assert len(b.active) == 1
    scenario.release()
    scenario.to(16_200)
    assert len(b.active) == 3
