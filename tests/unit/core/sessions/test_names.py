"""Names of members: who waits for one, who inherits, and what is reserved for one."""

from __future__ import annotations

import pytest

from coordinator.core.sessions.plan.plan_input import input_of
from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.plans import FREE
from coordinator.core.values.policy import Mode
from coordinator.core.values.session_messages import GoAway, GoAwayReason, Order, Standing
from tests.kit.session_scenario import (
    ScenarioMember,
    SessionScenario,
    g2,
    handing_over,
    with_policy,
)

SUPERSEDED = GoAway(GoAwayReason.SUPERSEDED)


def waiting() -> tuple[SessionScenario, ScenarioMember, ScenarioMember, ScenarioMember]:
    """Two members, and a process that waits for the name of the first."""
    scenario, a, b = g2()
    scenario.to(5_000)
    queued = scenario.member(a.name, {"t": 3}, "i-2").attach(started_at_ms=5_000)
    assert queued.reply.standing is Standing.WAITING
    return scenario, a, b, queued


def test_a_waiting_process_is_told_how_long_at_most_and_its_heartbeats_are_answered():
    scenario, a, _b, queued = waiting()
    assert queued.reply.retry_after_ms == 10_000
    scenario.to(8_000)
    assert [ack.number for _, ack in queued.acks] == [1]
    assert not queued.orders
    assert queued.member_id not in scenario.group.members
    assert len(a.active) == 2


def test_a_waiting_process_inherits_at_the_end_of_the_lease_with_the_same_record():
    scenario, a, b, queued = waiting()
    held = a.active
    a.beats = False
    scenario.to(14_999)
    assert not queued.active
    scenario.to(15_000)
    assert queued.active == held
    scenario.to(16_500)
    assert len(b.active) == 1


def test_a_waiting_process_waits_for_the_delay_after_an_end_by_time():
    scenario, a, b = g2(with_policy(handover_delay_ms=2_000))
    held = a.active
    scenario.to(5_000)
    queued = scenario.member(a.name, {"t": 3}, "i-2").attach()
    a.beats = False
    scenario.to(16_999)
    assert not queued.active
    scenario.to(17_000)
    assert queued.active == held
    assert len(b.active) == 1


def test_a_waiting_process_that_comes_again_during_the_delay_goes_on_waiting():
    scenario, a, b = g2(with_policy(handover_delay_ms=2_000))
    held = a.active
    scenario.to(5_000)
    queued = scenario.member(a.name, {"t": 3}, "i-2").attach(started_at_ms=5_000)
    a.beats = False
    scenario.to(16_000)
    session = queued.reply.session_id
    queued.attach(started_at_ms=5_000)
    assert (queued.reply.standing, queued.reply.retry_after_ms) == (Standing.WAITING, 1_000)
    assert queued.reply.session_id == session
    other = scenario.member(a.name, {"t": 3}, "i-0").attach(started_at_ms=4_000)
    assert other.reply.error is ErrorCode.UNRELEASED_INSTANCE_ID
    scenario.to(17_000)
    assert queued.active == held
    assert len(b.active) == 1


def test_names_that_are_back_get_their_own_from_before_their_leases_ended():
    scenario = SessionScenario(with_policy(handover_delay_ms=5_000))
    members = [scenario.member(name, {"t": 8}) for name in ("w-a", "w-b")]
    for at_ms, member in zip((0, 5_000), members, strict=True):
        scenario.to(at_ms)
        member.releases = True
        member.attach()
    scenario.member("w-c", {"t": 8}).attach(capacity=0.0)  # The group is not empty meanwhile.
    scenario.to(20_000)
    held = {member.name: member.active for member in members}
    assert [len(partitions) for partitions in held.values()] == [4, 4]
    for member in members:
        member.beat()
        member.cut()
    scenario.to(30_000)
    assert len(scenario.group.members) == 1
    back = [scenario.member(name, {"t": 8}, f"{name}-2").attach() for name in sorted(held)]
    scenario.to(36_000)
    assert {member.name: member.active for member in back} == held


def test_what_a_living_member_gives_up_is_not_its_own_any_more():
    scenario, a, _b = g2()
    scenario.to(5_000)
    a.ack(a.active[0])
    state, _ = input_of(scenario.group, scenario.now)
    assert FREE in state.topics[0].at
    assert not state.previous


def test_a_waiting_process_that_comes_again_goes_on_waiting_on_its_newest_stream():
    scenario, a, _b, queued = waiting()
    session, first = queued.reply.session_id, queued.stream
    queued.attach(started_at_ms=5_000)
    assert queued.reply.session_id == session
    assert first not in scenario.streams
    clone = scenario.member(a.name, {"t": 3}, "i-2").attach(started_at_ms=5_000, stream_number=1)
    assert clone.reply.error is ErrorCode.FENCED_INSTANCE_ID
    a.leave("now")
    assert len(scenario.group.members) == 2


def test_a_waiting_process_that_was_silent_when_the_name_became_free_is_admitted_once():
    scenario, a, _b, queued = waiting()
    session = queued.reply.session_id
    a.beats = queued.beats = False
    scenario.to(16_000)
    assert len(scenario.group.members) == 1
    queued.attach(started_at_ms=5_000, topics=(("t", 4),))
    assert (queued.reply.standing, queued.reply.session_id) == (Standing.MEMBER, session)
    assert not scenario.group.waiting
    assert scenario.group.members[queued.member_id].record.topics == (("t", 4),)


@pytest.mark.parametrize("incarnation", ["i-2", "i-3"])
def test_a_return_is_inherited_at_once_also_if_a_silent_process_waited(incarnation):
    scenario, a, _b, queued = waiting()
    held = a.active
    queued.beats = False
    scenario.to(16_000)
    a.leave("return", 60_000)
    again = queued if incarnation == "i-2" else scenario.member(a.name, {"t": 3}, incarnation)
    again.attach(started_at_ms=6_000)
    assert again.reply.standing is Standing.MEMBER
    assert again.active == held


def test_a_waiting_process_that_leaves_or_loses_its_stream_inherits_nothing():
    scenario, a, b, queued = waiting()
    queued.leave("now")
    assert queued.end == GoAway(GoAwayReason.LEFT)
    assert queued.member_id not in scenario.group.members
    queued.attach()
    queued.cut()
    assert not scenario.group.waiting
    a.leave("now")
    scenario.to(scenario.now + 2_000)
    assert len(b.active) == 3


def test_a_waiting_process_that_stands_still_inherits_nothing():
    scenario, a, b, queued = waiting()
    queued.beats = False
    scenario.to(16_000)
    a.leave("now")
    scenario.to(17_000)
    assert not queued.active
    assert len(b.active) == 3


def test_a_process_that_comes_while_the_end_is_written_is_a_member_when_it_is():
    scenario, a, _b = g2()
    scenario.to(5_000)
    scenario.hold()
    a.leave("now")
    again = scenario.member(a.name, {"t": 3}, "i-2").attach()
    assert again.reply is None
    scenario.release()
    assert again.reply.standing is Standing.MEMBER


def test_what_is_drained_goes_on_and_the_rest_is_inherited():
    scenario, a, b, partition = handing_over()
    rest = [held for held in a.active if held != partition]
    queued = scenario.member(a.name, {"t": 3}, "i-2").attach()
    a.leave("now")
    assert partition in b.active
    assert queued.active == rest


def test_what_the_old_one_prepared_is_ordered_anew():
    scenario, a, b, partition = handing_over(with_policy(mode=Mode.WARM))
    before = b.orders[partition]
    assert before.order is Order.WARM
    scenario.to(6_100)
    queued = scenario.member(b.name, {"t": 3}, "i-2").attach()
    b.leave("now")
    after = queued.orders[partition]
    assert after.order is Order.WARM
    assert after.handoff_id != before.handoff_id
    assert after.remaining_ms == before.remaining_ms - 1_000, "no change gives more time"
    queued.ack(partition, "ready")
    assert a.orders[partition].order is Order.DRAIN


# --- Members that announce to return ---


def test_a_return_keeps_what_is_held_and_passes_on_what_is_drained():
    scenario, a, b, partition = handing_over()
    kept = [held for held in a.active if held != partition]
    a.leave("return", 60_000)
    assert partition in b.active
    scenario.to(20_000)
    plans = scenario.planned_at_ms
    again = scenario.member(a.name, {"t": 3}, "i-2").attach()
    assert again.active == kept
    scenario.to(22_000)
    assert scenario.planned_at_ms == plans, "no plan"


def test_a_return_is_bounded_by_the_policy():
    scenario, a, b = g2(with_policy(max_return_ms=5_000))
    scenario.to(5_000)
    a.leave("return", 600_000)
    scenario.to(10_100)
    assert len(b.active) == 3


def test_a_second_return_has_its_own_time():
    scenario, a, b = g2()
    scenario.to(5_000)
    a.leave("return", 60_000)
    scenario.to(30_000)
    again = scenario.member(a.name, {"t": 3}, "i-2").attach()
    scenario.to(40_000)
    again.leave("return", 60_000)
    scenario.to(99_999)
    assert len(b.active) == 1
    scenario.to(100_100)
    assert len(b.active) == 3


# --- Leave(DRAIN) ---


def test_a_second_word_may_shorten_a_drain_and_never_extends_it():
    scenario, a, b = g2()
    scenario.to(5_000)
    a.leave("drain", 20_000)
    scenario.to(6_000)
    a.leave("drain", 100_000)
    scenario.to(7_000)
    a.leave("drain", 10_000)
    scenario.to(17_000)
    assert {order.order for order in a.orders.values()} == {Order.LOST}
    assert len(b.active) == 1
    scenario.to(27_500)
    assert len(b.active) == 3


def test_a_leaver_with_nothing_goes_at_once_and_receives_nothing():
    scenario = SessionScenario()
    a = scenario.member("w-a", {"t": 2}).attach()
    scenario.hold()
    a.leave("drain", 20_000)
    scenario.to(500)
    scenario.release()
    assert a.end == GoAway(GoAwayReason.DRAINED)
    assert not a.active


def test_a_leaver_that_resumes_still_leaves():
    scenario, a, b = g2()
    scenario.to(5_000)
    a.leave("drain", 20_000)
    scenario.hold()
    a.topics = {"t": 3, "u": 1}
    a.attach()
    scenario.release()
    assert scenario.group.members[a.member_id].record.leaves
    a.releases = True
    scenario.to(9_000)
    assert a.end == GoAway(GoAwayReason.DRAINED)
    assert len(b.active) == 3


@pytest.mark.parametrize("is_compacted", [False, True])
def test_a_process_of_the_name_waits_for_the_delay_with_a_new_owner_of_the_shard(is_compacted):
    scenario, a, b = g2(with_policy(handover_delay_ms=20_000))
    scenario.to(5_000)
    queued = scenario.member(a.name, {"t": 3}, "i-2").attach()
    a.beats = False
    scenario.to(16_000)
    if is_compacted:
        scenario.records = scenario.shard.records()
    scenario.restart()
    queued.attach()
    b.attach()
    scenario.to(35_900)
    assert (queued.active, len(b.active)) == ([], 1)
    scenario.to(40_000)
    assert sorted(queued.active + b.active) == [("t", n) for n in range(3)]


@pytest.mark.parametrize("is_compacted", [False, True])
def test_a_member_that_returns_has_stopped_and_no_owner_of_the_shard_delays_it(is_compacted):
    scenario, a, b = g2(with_policy(handover_delay_ms=20_000))
    partitions = a.active
    scenario.to(5_000)
    a.leave("return", 60_000)
    if is_compacted:
        scenario.records = scenario.shard.records()
    scenario.restart()
    b.attach()
    scenario.to(6_000)
    again = scenario.member(a.name, {"t": 3}, "i-2").attach()
    assert again.active == partitions


def test_what_was_kept_for_a_name_is_free_without_a_delay_when_its_time_is_up():
    """Its member has announced to return: it had stopped."""
    scenario, a, b = g2(with_policy(handover_delay_ms=20_000))
    scenario.to(5_000)
    a.leave("return", 10_000)
    scenario.to(15_100)
    assert len(b.active) == 3


def test_a_group_is_empty_after_a_name_has_returned_and_left():
    scenario, a, _b = g2()
    a.leave("return", 60_000)
    scenario.to(1_000)
    a.incarnation, a.beats = "i-new", True
    a.attach(held=())
    assert not scenario.group.reserved_names
    for member in scenario.members:
        member.leave("now")
    assert scenario.state == "Empty"
