"""Hand-offs whose holder or successor ends, with records in flight and over restarts."""

from __future__ import annotations

import pytest

from coordinator.core.values import records as r
from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.policy import Mode
from coordinator.core.values.records import Phase
from coordinator.core.values.session_messages import Order
from tests.kit.session_scenario import g2, handing_over, with_policy

WARM = with_policy(mode=Mode.WARM)
COPY = with_policy(mode=Mode.COPY)


def order(member, partition):
    found = member.orders.get(partition)
    return None if found is None else found.order


def phase(scenario, partition):
    handoff = scenario.group.handoff(partition)
    return None if handoff is None else handoff.phase


def die(scenario, member):
    """Let a member fall silent, until its lease has ended; returns when that was."""
    member.beats = False
    end_ms = scenario.group.members[member.member_id].last_beat_ms + 10_000
    scenario.to(end_ms)
    return end_ms


# --- The holder ends ---


@pytest.mark.parametrize("policy", [with_policy(), WARM], ids=["drain", "prepare"])
def test_a_dead_holder_is_followed_with_the_record_of_its_end(policy):
    scenario, a, b, partition = handing_over(policy)
    die(scenario, a)
    assert partition in b.active, "no window between"


@pytest.mark.parametrize("policy", [with_policy(), WARM], ids=["drain", "prepare"])
def test_a_holder_that_leaves_is_followed_with_the_record_of_its_end(policy):
    _scenario, a, b, partition = handing_over(policy)
    a.leave("now")
    assert partition in b.active


def test_a_holder_that_dies_in_a_drain_is_copied_from_the_committed_offset():
    scenario, a, b, partition = handing_over(COPY)
    a.commit(60, partition)
    die(scenario, a)
    assert phase(scenario, partition) is Phase.COPY
    assert (order(b, partition), b.orders[partition].position) == (Order.WARM, 60)
    b.ack(partition, "ready")
    assert partition in b.active
    assert b.orders[partition].offset == 60


def test_a_copy_goes_to_somebody_with_a_stream():
    scenario, a, b, partition = handing_over(COPY)
    c = scenario.member("w-c", {"t": 3}).attach()
    b.cut()
    a.ack(partition, position=70)
    assert order(b, partition) is None
    assert (order(c, partition), c.orders[partition].position) == (Order.WARM, 70)


def test_a_dead_holder_of_a_copy_has_nothing_to_end():
    scenario, a, b, partition = handing_over(COPY)
    a.ack(partition, position=70)
    die(scenario, a)
    assert phase(scenario, partition) is Phase.COPY
    b.ack(partition, "ready")
    assert partition in b.active


def test_after_an_end_by_time_nobody_follows_before_the_delay():
    scenario, a, b, partition = handing_over(with_policy(handover_delay_ms=2_000))
    end_ms = die(scenario, a)
    assert scenario.group.holder(partition) == ""
    scenario.to(end_ms + 1_999)
    assert partition not in b.active
    scenario.to(end_ms + 2_100)
    assert partition in b.active


def test_after_force_nobody_follows_before_the_delay_unless_it_was_acknowledged():
    scenario, a, b, partition = handing_over(with_policy(handover_delay_ms=2_000))
    scenario.to(45_000)
    assert scenario.group.holder(partition) == ""
    scenario.to(46_999)
    assert scenario.group.holder(partition) == ""
    scenario.to(47_100)
    assert scenario.group.holder(partition) != ""

    scenario, a, b, partition = handing_over(with_policy(handover_delay_ms=2_000))
    scenario.to(36_000)
    a.ack(partition)
    assert partition in b.active


def test_after_force_nobody_waits_for_the_delay_if_sinks_check_tokens():
    scenario, a, b, partition = handing_over(
        with_policy(handover_delay_ms=2_000, sinks_check_tokens=True)
    )
    scenario.to(35_100)
    assert partition in b.active
    b.ack(partition)
    b.leave("now")
    scenario.to(35_300)
    assert partition in a.active


def test_kept_is_what_no_drain_takes_away():
    scenario, a, b, partition = handing_over()
    other = next(held for held in a.active)
    a.leave("return", 60_000)
    assert partition in b.active, "what was being drained goes on"
    assert scenario.group.topics["t"].reserved.keys() == {other[1]}

    scenario, a, b, partition = handing_over(WARM)
    assert order(b, partition) is Order.WARM
    a.leave("return", 60_000)
    assert order(b, partition) is None
    assert scenario.group.topics["t"].reserved.keys() == {partition[1], other[1]}


# --- A record is in flight meanwhile ---


def test_a_switch_in_flight_and_the_end_of_its_holder_give_one_token():
    scenario, a, b, partition = handing_over()
    scenario.hold()
    a.ack(partition)
    die(scenario, a)
    scenario.release()
    assert partition in b.active
    told = [
        each.token
        for _, orders in b.received
        for each in orders.partitions
        if (each.topic, each.partition) == partition and each.order is Order.ACTIVE
    ]
    assert len(told) == 1, "its grant did not change under its hands"


def test_a_switch_in_flight_is_not_inherited_by_another_process_of_the_name():
    scenario, a, b, partition = handing_over(WARM)
    other = next(held for held in a.active if held != partition)
    queued = scenario.member(a.name, {"t": 3}, "i-2").attach()
    scenario.hold()
    a.ack(partition)
    a.leave("now")
    scenario.release()
    assert partition in b.active
    assert queued.active == [other]


def test_a_force_in_flight_and_the_end_of_its_holder():
    scenario, a, b, partition = handing_over()
    scenario.to(35_050)
    scenario.hold()
    a.beats = False
    scenario.to(45_000)
    scenario.release()
    assert partition in b.active
    assert a.member_id not in scenario.group.members


def test_a_copy_in_flight_and_the_end_of_its_holder():
    scenario, a, b, partition = handing_over(COPY)
    scenario.hold()
    a.ack(partition, position=70)
    a.leave("now")
    scenario.release()
    assert (order(b, partition), b.orders[partition].position) == (Order.WARM, 70)


def test_a_grant_in_flight_to_a_member_that_ends_frees_it_at_once():
    scenario, a, b = g2()
    scenario.to(5_000)
    c = scenario.member("w-c", {"t": 4}).attach()
    scenario.hold()
    scenario.to(5_200)
    assert scenario.held
    assert not c.active
    c.leave("now")
    scenario.release()
    scenario.to(6_400)
    owned = {*a.active, *b.active}
    assert ("t", 3) not in owned, "nobody declares it any more"
    assert len(owned) == 3


# --- The successor ends or changes ---


def test_a_successor_that_leaves_is_replaced_while_the_drain_goes_on():
    scenario, a, b, partition = handing_over()
    c = scenario.member("w-c", {"t": 3}).attach()
    left_ms = a.orders[partition].remaining_ms
    scenario.to(7_000)
    b.leave("drain", 20_000)
    a.ack(partition)
    assert partition in c.active
    assert left_ms == 30_000


def test_a_preparing_successor_that_leaves_is_replaced_under_a_new_id():
    scenario, a, b, partition = handing_over(WARM)
    c = scenario.member("w-c", {"t": 3}).attach()
    old = b.orders[partition].handoff_id
    scenario.to(7_000)
    b.leave("drain", 20_000)
    assert order(b, partition) is None
    assert order(c, partition) is Order.WARM
    assert c.orders[partition].handoff_id > old
    b.ack(partition, "ready", handoff_id=old)
    assert order(a, partition) is Order.ACTIVE


def test_a_preparation_that_takes_too_long_goes_to_another_with_its_full_time():
    scenario, a, b, partition = handing_over(WARM)
    c = scenario.member("w-c", {"t": 3}).attach()
    at_ms = 5_100 + 1_800_000
    scenario.to(at_ms - 1)
    assert order(b, partition) is Order.WARM
    scenario.to(at_ms)
    assert order(b, partition) is None
    assert c.orders[partition].remaining_ms == 1_800_000
    assert order(a, partition) is Order.ACTIVE


def test_the_successor_stays_prepared_while_the_holder_drains():
    _scenario, a, b, partition = handing_over(WARM)
    b.ack(partition, "ready")
    assert (order(a, partition), order(b, partition)) == (Order.DRAIN, Order.WARM)
    b.attach()
    assert order(b, partition) is Order.WARM, "also after it has come back"
    a.ack(partition)
    assert partition in b.active


def test_a_simple_drain_tells_its_successor_nothing():
    _scenario, a, b, partition = handing_over()
    assert order(a, partition) is Order.DRAIN
    assert order(b, partition) is None


def test_a_copy_has_an_end_although_the_log_refuses_the_end_of_its_holder():
    scenario, a, b, partition = handing_over(COPY)
    scenario.to(6_000)
    scenario.hold()
    a.leave("now")
    scenario.cut_and_refuse_the_last()
    assert phase(scenario, partition) is Phase.COPY
    assert scenario.group.handoff(partition).deadline_ms == 6_000 + 1_800_000
    b.ack(partition, "ready")
    scenario.release()
    scenario.to(7_100)
    assert partition in b.active
    assert a.end is not None


# --- Leave(DRAIN) ---


def test_a_leaver_bounds_the_phases_that_are_open():
    scenario, a, _b, partition = handing_over()
    scenario.to(6_000)
    a.leave("drain", 4_000)
    scenario.to(10_000)
    assert order(a, partition) is Order.LOST


def test_preparing_gets_half_of_the_time_that_a_leaver_has():
    scenario, a, _b, partition = handing_over(WARM)
    scenario.to(6_000)
    a.leave("drain", 20_000)
    scenario.to(15_999)
    assert order(a, partition) is Order.ACTIVE
    scenario.to(16_000)
    assert order(a, partition) is Order.DRAIN, "without READY"
    assert a.orders[partition].remaining_ms == 10_000


def test_the_end_of_a_leavers_time_forces_and_never_frees():
    scenario, a, b = g2()
    scenario.to(5_000)
    a.leave("drain", 20_000)
    scenario.to(5_100)
    kept, released = a.orders
    a.ack(released)
    scenario.to(25_000)
    assert order(a, kept) is Order.LOST
    assert scenario.group.holder(kept) == a.member_id
    scenario.to(34_999)
    assert kept not in b.active
    scenario.to(35_000)
    assert kept in b.active


def test_a_new_owner_runs_the_time_of_a_leaver_once_more_in_full():
    scenario, a, b = g2(WARM)
    scenario.to(5_000)
    a.leave("drain", 60_000)
    scenario.to(6_000)
    a.leave("drain", 20_000)
    scenario.to(8_000)
    scenario.restart()
    for member in (a, b):
        member.attach()
    assert scenario.group.members[a.member_id].leaves_at_ms == 28_000
    kept = a.active[0]
    scenario.to(17_999)
    assert order(a, kept) is Order.ACTIVE, "half of the time is for its successor to prepare"
    scenario.to(18_000)
    assert order(a, kept) is Order.DRAIN
    scenario.to(28_000)
    assert order(a, kept) is Order.LOST
    scenario.to(38_000)
    assert kept in b.active


# --- Tokens that a decision has ended ---


def test_no_commit_counts_once_a_forced_switch_is_decided():
    scenario, a, b, partition = handing_over()
    scenario.to(44_900)
    assert a.commit(5, partition) == [ErrorCode.NONE]
    scenario.hold()
    scenario.to(45_000)
    assert a.commit(6, partition) == [ErrorCode.FENCED_TOKEN]
    scenario.release()
    assert b.orders[partition].offset == 5


def test_no_commit_counts_under_a_token_that_is_being_replaced():
    scenario, a, _b = g2()
    scenario.to(1_000)
    partition = a.active[0]
    token = a.orders.pop(partition).token
    scenario.hold()
    reply = a.reply
    a.attach()
    a.reply = reply
    assert a.commit(5, partition, token=token) == [ErrorCode.FENCED_TOKEN]
    scenario.release()
    assert a.commit(5, partition) == [ErrorCode.NONE]


# --- Restarts ---


def restart(scenario, *members):
    scenario.restart()
    for member in members:
        member.attach()


@pytest.mark.parametrize("policy", [with_policy(), WARM, COPY], ids=["simple", "warm", "copy"])
@pytest.mark.parametrize("at", ["opened", "ready", "released"])
def test_a_handoff_is_carried_to_its_end_by_the_next_owner(policy, at):
    scenario, a, b, partition = handing_over(policy)
    if at != "opened" and policy is WARM:
        b.ack(partition, "ready")
    if at == "released" and policy is not WARM:
        a.ack(partition, position=70)
    before = phase(scenario, partition)
    restart(scenario, a, b)
    assert phase(scenario, partition) is before
    if phase(scenario, partition) is Phase.PREPARE:
        b.ack(partition, "ready")
    if phase(scenario, partition) is Phase.DRAIN:
        a.ack(partition, position=70)
    if phase(scenario, partition) is Phase.COPY:
        assert b.orders[partition].position == 70
        b.ack(partition, "ready")
    assert partition in b.active
    assert partition not in a.active


def test_a_successor_that_ended_with_the_old_owner_is_replaced():
    """The end was durable; that the hand-off has another successor was not."""
    scenario, a, b, partition = handing_over(COPY)
    a.ack(partition, position=70)
    scenario.hold()
    b.leave("now")
    ended, scenario.held = scenario.held, []
    scenario._append(*ended)
    restart(scenario, a)
    scenario.to(scenario.now + 200)
    assert partition in a.active


def test_a_phase_runs_once_more_in_full():
    scenario, a, b, partition = handing_over()
    scenario.to(20_000)
    restart(scenario, a, b)
    assert a.orders[partition].remaining_ms == 30_000
    scenario.to(49_999)
    assert order(a, partition) is Order.DRAIN
    scenario.to(50_000)
    assert order(a, partition) is Order.LOST


# --- Records that come too late ---


def test_records_count_for_the_grant_that_they_name_alone():
    """The first record that becomes durable counts, whatever was in flight beside it."""
    scenario, a, b, partition = handing_over()
    old = scenario.group.token(partition)
    a.ack(partition)
    group = scenario.group
    token = group.token(partition)
    group.apply(r.PartitionSwitched("g", *partition, a.member_id, token + 10, ended_token=old))
    group.apply(r.PhaseEntered("g", *partition, Phase.DRAIN, 99, a.member_id, token=old))
    stolen = r.Grant(
        a.member_id, partition[0], ((partition[1], partition[1]),), token + 11, a.member_id
    )
    group.apply(r.PartitionsGranted("g", (stolen,)))
    assert (group.holder(partition), group.token(partition)) == (b.member_id, token)
    assert group.handoff(partition) is None
