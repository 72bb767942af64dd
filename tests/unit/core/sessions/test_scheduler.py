"""Timing of plans, bounds on hand-offs of balancing, plans made outside of the shard."""

from __future__ import annotations

import pytest

from coordinator.core.sessions.plan import allocator, scheduler
from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.events import PlanFailed
from coordinator.core.values.ids import NO_TIME
from coordinator.core.values.plans import Plan, PlanInput, Unplaced
from coordinator.core.values.policy import Mode
from coordinator.core.values.records import Phase
from coordinator.core.values.session_messages import Order
from tests.kit.session_scenario import (
    ScenarioMember,
    SessionScenario,
    g1,
    g2,
    handing_over,
    with_policy,
)


def draining(member: ScenarioMember) -> list[tuple[str, int]]:
    return [partition for partition, order in member.orders.items() if order.order is Order.DRAIN]


def warming(member: ScenarioMember) -> list[tuple[str, int]]:
    return [partition for partition, order in member.orders.items() if order.order is Order.WARM]


def settle(scenario: SessionScenario, *members: ScenarioMember) -> None:
    """Answer every DRAIN until there are none."""
    while any(member.stream and draining(member) for member in members):
        for member in members:
            for partition in draining(member):
                member.ack(partition)


def planned_at(scenario: SessionScenario, until_ms: int, from_ms: int) -> list[int]:
    """Let time pass; returns the times of plans."""
    times = []
    for at in range(from_ms, until_ms + 1, 50):
        scenario.to(at)
        made_ms = scenario.planned_at_ms
        if made_ms >= from_ms and made_ms not in times:
            times.append(made_ms)
    return times


# --- Windows ---


def test_a_free_partition_does_not_wait_for_the_interval_and_takes_arrivals_along():
    scenario = SessionScenario(with_policy())
    a = scenario.member("w-a", {"t": 12}).attach()
    scenario.to(5_000)
    b = scenario.member("w-b", {"t": 12}).attach()
    scenario.to(5_100)
    assert scenario.planned_at_ms == 5_100
    settle(scenario, a)
    scenario.to(5_200)
    c = scenario.member("w-c", {"t": 12}).attach()
    scenario.to(5_250)
    b.leave("now")
    scenario.to(5_349)
    assert not c.active
    scenario.to(5_350)
    assert len(c.active) == 6, "its share, of what is free, without waiting for 6,100"
    assert len(a.active) == 6


def test_a_member_for_which_a_plan_has_nothing_need_not_wait_for_another_one():
    scenario = SessionScenario(with_policy())
    members = [scenario.member(f"w-{name}", {"t": 1}).attach() for name in "ab"]
    assert [member.reply.orders.why for member in members] == ["window", "window"]
    scenario.to(100)
    (idle,) = (member for member in members if not member.active)
    assert [(at, orders.why) for at, orders in idle.received[1:]] == [(100, "nothing free")]
    scenario.to(5_000)
    c = scenario.member("w-c", {"t": 1}).attach()
    assert c.reply.orders.why == "window"
    scenario.to(5_100)
    assert c.received[-1][1].why == "nothing free"
    assert idle.received[-1][0] == 100, "it knows"


def test_the_interval_holds_back_what_is_not_urgent():
    scenario = SessionScenario()
    scenario.member("w-a", {"t": 12}).attach()
    scenario.to(5_000)
    scenario.member("w-b", {"t": 12}).attach()
    scenario.to(5_200)
    scenario.member("w-c", {"t": 12}).attach()
    assert planned_at(scenario, 7_000, 5_100) == [5_100, 6_100]


def test_the_window_is_fixed_and_takes_everything_in():
    scenario = SessionScenario()
    for number in range(4):
        scenario.to(30 * number)
        scenario.member(f"w-{number}", {"t": 4}).attach()
    scenario.to(99)
    assert not any(member.active for member in scenario.members)
    scenario.to(100)
    assert [len(member.active) for member in scenario.members] == [1, 1, 1, 1]


def test_arrivals_are_waited_for_ten_seconds_at_most():
    scenario = SessionScenario(with_policy(join_quiet_ms=1_000))
    scenario.member("w-a", {"t": 40}).attach()
    for number in range(15):
        scenario.to(10_000 + 900 * number)
        scenario.member(f"w-b{number}", {"t": 40}).attach()
        if scenario.now < 20_000:
            assert scenario.planned_at_ms < 10_000
    scenario.to(23_000)
    assert scenario.planned_at_ms == 20_000


def test_a_free_partition_takes_all_arrivals_along():
    scenario = SessionScenario(with_policy(join_quiet_ms=1_000))
    a = scenario.member("w-a", {"t": 4}).attach()
    b = scenario.member("w-b", {"t": 4}).attach()
    scenario.to(11_500)
    c = scenario.member("w-c", {"t": 4}).attach()
    scenario.to(12_000)
    b.leave("now")
    scenario.to(12_100)
    assert (len(a.active), len(c.active)) == (2, 2)


def test_an_arrival_that_may_have_what_nobody_could_is_not_waited_for():
    scenario = SessionScenario(with_policy(join_quiet_ms=1_000))
    scenario.member("w-a", {"t": 4}).attach(max_partitions=3)
    scenario.to(5_000)
    assert scenario.unplaced == {("t", 3): Unplaced.CAPACITY}
    assert scenario.state == "Stable"
    b = scenario.member("w-b", {"t": 4}).attach()
    scenario.to(5_100)
    assert b.active == [("t", 3)]


def test_an_arrival_with_a_new_topic_is_not_waited_for():
    scenario = SessionScenario(with_policy(join_quiet_ms=1_000))
    scenario.member("w-a", {"t": 4}).attach()
    scenario.to(5_000)
    b = scenario.member("w-b", {"t": 4, "u": 2}).attach()
    scenario.to(5_100)
    assert [partition for partition in b.active if partition[0] == "u"] == [("u", 0), ("u", 1)]


def test_fewer_than_expected_are_waited_for_no_longer_than_the_delay():
    scenario = SessionScenario(with_policy(initial_delay_ms=3_000, expected_members=3))
    a = scenario.member("w-a", {"t": 4}).attach()
    scenario.to(2_999)
    assert not a.active
    scenario.to(3_000)
    assert len(a.active) == 4


def test_a_new_owner_plans_when_all_have_attached():
    scenario = SessionScenario()
    members = [scenario.member(f"w-{n}", {"t": 10}).attach() for n in range(10)]
    scenario.to(5_000)
    members[0].leave("now")
    scenario.hold()
    scenario.to(5_500)  # Its partition is free in the log, and was given to nobody.
    scenario.restart()
    began = scenario.now
    scenario.to(began + 10)
    left = members[1:]
    left[0].attach()
    scenario.to(began + 900)
    assert len(left[0].active) == 1, "nobody gets everything for being first"
    for member in left[1:]:
        member.attach()
    scenario.to(began + 1_000)
    assert sum(len(member.active) for member in left) == 10


def test_a_new_owner_plans_after_a_lease_at_the_latest():
    scenario, a, b = g2()
    scenario.to(5_000)
    c = scenario.member("w-c", {"t": 3}).attach(ready=False)
    scenario.to(5_500)
    a.leave("now")
    scenario.hold()
    scenario.to(6_000)
    scenario.restart()
    began = scenario.now
    b.attach()
    c.attach(ready=False)
    scenario.to(began + 100)
    assert len(b.active) == 3, "all of the log are there"

    scenario, a, b = g2()
    scenario.member("w-c", {"t": 4}).attach()
    scenario.to(2_000)
    scenario.restart()
    began = scenario.now
    a.attach()
    b.attach()
    scenario.to(began + 9_999)
    assert len(a.active) + len(b.active) == 3
    scenario.to(began + 10_000)
    assert scenario.planned_at_ms == began + 10_000


def test_a_member_without_a_stream_is_asked_for_nothing():
    scenario, a = g1()
    scenario.to(5_000)
    a.cut()
    scenario.member("w-b", {"t": 4}).attach()
    scenario.to(9_000)
    assert not scenario.waiting_moves
    assert not list(scenario.group.open_handoffs())
    a.beats = True
    a.attach()
    scenario.to(10_100)
    assert len(draining(a)) == 1


def test_a_move_whose_receiver_has_lost_its_stream_is_not_begun():
    scenario, a = g1()
    scenario.to(5_000)
    b = scenario.member("w-b", {"t": 4}).attach()
    scenario.to(5_100)
    assert len(draining(a)) == len(scenario.waiting_moves) == 1
    b.cut()
    a.ack(draining(a)[0])
    assert not draining(a)
    assert not list(scenario.group.open_handoffs())


def test_moves_to_a_receiver_that_was_without_a_stream_for_a_moment_are_planned_again():
    scenario = SessionScenario(with_policy(mode=Mode.WARM))
    a = scenario.member("w-a", {"t": 12}).attach()
    scenario.to(5_000)
    b = scenario.member("w-b", {"t": 12}).attach()
    scenario.to(6_100)
    assert len(warming(b)) == 2
    b.cut()
    scenario.to(6_200)
    b.beats = True
    b.attach()
    for at in range(6_300, 20_000, 100):
        for partition in warming(b):
            b.ack(partition, "ready")
        settle(scenario, a)
        scenario.to(at)
    assert (len(a.active), len(b.active)) == (6, 6)


def test_a_leave_whose_record_is_late_is_planned_all_the_same():
    scenario, a, b = g2()
    scenario.to(5_000)
    scenario.hold()
    a.leave("drain", 20_000)
    scenario.to(6_000)
    assert not draining(a)
    scenario.release()
    scenario.to(6_100)
    assert len(draining(a)) == 2
    settle(scenario, a)
    assert len(b.active) == 3


def test_a_grant_that_was_not_written_is_planned_again():
    scenario = SessionScenario()
    a = scenario.member("w-a", {"t": 4}).attach()
    scenario.hold()
    scenario.to(100)
    scenario.refuse()
    scenario.release()
    assert not a.active
    scenario.to(1_100)
    assert len(a.active) == 4
    assert min(order.token for order in a.orders.values()) > 4, "no token is given twice"


def test_a_partition_that_is_drained_for_nobody_gets_a_successor_by_record():
    scenario, a, b, partition = handing_over()
    b.leave("now")
    c = scenario.member("w-c", {"t": 3}).attach()
    scenario.to(6_500)
    open_now = scenario.group.handoff(partition)
    assert (open_now.phase, open_now.successor) == (Phase.DRAIN, c.member_id)
    assert any(getattr(record, "successor", "") == c.member_id for record in scenario.records)
    assert a.orders[partition].remaining_ms == 29_900
    scenario.to(35_099)
    assert a.orders[partition].order is Order.DRAIN
    scenario.to(35_100)
    assert a.orders[partition].order is Order.LOST, "no plan gives it more time"


def test_a_back_off_that_is_over_is_over():
    scenario, _, b, partition = handing_over(with_policy(mode=Mode.WARM))
    b.ack(partition, "refused")
    assert not warming(b)
    scenario.to(scenario.group.partition_state(partition).refusals.by_name[b.name].until_ms + 1_100)
    scenario.move(partition, b)
    assert warming(b) == [partition]


def test_back_offs_of_members_that_are_gone_are_forgotten():
    scenario, a, b, partition = handing_over(with_policy(mode=Mode.WARM))
    b.ack(partition, "refused")
    b.leave("now")
    over_ms = scenario.group.partition_state(partition).refusals.by_name[b.name].until_ms
    scenario.to(over_ms - 1)
    assert b.name in scenario.group.partition_state(partition).refusals.by_name, (
        "it may come again meanwhile"
    )
    scenario.to(over_ms + 5_000)
    assert a.active
    assert not scenario.group.partition_state(partition).refusals.by_name


# --- Budgets ---


def test_a_leavers_partitions_do_not_take_the_room_of_balancing():
    scenario = SessionScenario()
    a = scenario.member("w-a", {"t": 40}).attach()
    c = scenario.member("w-c", {"t": 40}).attach(max_partitions=10)
    scenario.to(5_000)
    c.leave("drain", 20_000)
    scenario.member("w-b", {"t": 40}).attach()
    scenario.to(5_100)
    assert len(draining(c)) == 10
    assert len(draining(a)) == 4


def test_a_member_prepares_two_at_a_time_and_what_is_ready_counts_no_more():
    scenario = SessionScenario(with_policy(mode=Mode.WARM))
    scenario.member("w-a", {"t": 40}).attach()
    scenario.to(5_000)
    b = scenario.member("w-b", {"t": 40}).attach()
    c = scenario.member("w-c", {"t": 40}).attach()
    scenario.to(6_100)
    assert (len(warming(b)), len(warming(c))) == (2, 2)
    b.ack(warming(b)[0], "ready")
    preparing = [scenario.group.handoff(partition) for partition in warming(b)]
    assert [handoff.phase for handoff in preparing].count(Phase.PREPARE) == 2
    assert not any(handoff.is_ready for handoff in preparing if handoff.phase is Phase.PREPARE)


def test_not_more_are_drained_than_the_budget_allows_however_many_are_ready():
    scenario = SessionScenario(with_policy(mode=Mode.WARM))
    a = scenario.member("w-a", {"t": 20}).attach()
    scenario.to(5_000)
    b = scenario.member("w-b", {"t": 20}).attach()
    scenario.to(6_100)
    for _ in range(5):
        for partition in warming(b):
            b.ack(partition, "ready")
    assert len(draining(a)) == 2, "a tenth of twenty"
    ready = [
        p
        for p, open_handoff in scenario.group.open_handoffs()
        if open_handoff.phase is Phase.PREPARE
    ]
    assert len(ready) > 2
    a.ack(draining(a)[0])
    assert len(draining(a)) == 2


def test_a_new_owner_counts_what_was_open():
    scenario = SessionScenario()
    a = scenario.member("w-a", {"t": 40}).attach()
    scenario.to(5_000)
    b = scenario.member("w-b", {"t": 40}).attach()
    scenario.to(5_100)
    assert len(draining(a)) == 4
    scenario.restart()
    a.attach()
    b.attach()
    scenario.to(scenario.now + 200)
    assert len(draining(a)) == 4


# --- Plans made outside of the shard ---

MANY = 60


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have groups of more than 50 partitions planned outside of the shard."""
    monkeypatch.setattr(scheduler, "PLANNED_AT_ONCE", 50)


def large(members: int, compute_ms: int = 400) -> SessionScenario:
    scenario = SessionScenario()
    for number in range(members):
        scenario.member(f"w-{number}", {"t": MANY}).attach()
    scenario.to(100)
    assert sum(len(member.active) for member in scenario.members) == MANY
    scenario.compute_ms = compute_ms
    return scenario


@pytest.mark.usefixtures("few")
def test_a_large_plan_is_computed_outside_and_nothing_waits_for_it():
    scenario = large(2)
    scenario.to(5_000)
    scenario.members[0].leave("now")
    scenario.to(5_100)
    assert len(scenario.computing) == 1
    assert scenario.state == "Assigning"
    b = scenario.members[1]
    assert b.commit(5, b.active[0]) == [ErrorCode.NONE]
    scenario.to(5_499)
    assert len(b.active) == MANY // 2
    scenario.to(5_500)
    assert len(b.active) == MANY
    assert scenario.state == "Stable"


@pytest.mark.usefixtures("few")
def test_one_plan_is_computed_at_a_time_and_what_comes_meanwhile_is_planned_next():
    scenario = large(3)
    scenario.to(5_000)
    scenario.members[0].leave("now")
    scenario.to(5_200)
    scenario.members[1].leave("now")
    scenario.to(5_400)
    assert len(scenario.computing) == 1
    scenario.to(5_500)
    c = scenario.members[2]
    assert len(scenario.computing) == 1, "the next one, at once"
    scenario.to(5_900)
    assert len(c.active) == MANY


@pytest.mark.usefixtures("few")
def test_of_a_late_result_counts_what_is_still_true():
    scenario = large(3)
    scenario.to(5_000)
    a, b, c = scenario.members
    a.leave("now")
    scenario.to(5_100)
    b.leave("now")
    scenario.to(5_500)
    assert b.end is not None
    assert len(c.active) == MANY // 2, "its share at once"
    scenario.to(6_000)
    assert len(c.active) == MANY, "and what was meant for one that has gone, by the next plan"


@pytest.mark.usefixtures("few")
def test_free_partitions_are_placed_within_a_second_although_a_member_flaps():
    scenario = large(3)
    scenario.to(10_000)
    flapper = None
    a = scenario.members[0]
    since = {}
    for step in range(40):
        scenario.to(10_000 + 300 * step)
        if step == 7:
            a.leave("now")
        if flapper is None:
            flapper = scenario.member(f"f-{step}", {"t": MANY}).attach()
        else:
            flapper.leave("now")
            flapper = None
        for at in range(scenario.now, scenario.now + 300, 50):
            scenario.to(at)
            for partition, holder in enumerate(scenario.group.topics["t"].holders):
                if holder:
                    since.pop(partition, None)
                else:
                    assert at - since.setdefault(partition, at) <= 1_000


@pytest.mark.usefixtures("few")
def test_a_result_for_a_group_that_became_empty_is_ignored():
    scenario = large(1)
    scenario.to(5_000)
    b = scenario.member("w-b", {"t": MANY}).attach()
    scenario.to(6_000)
    assert scenario.computing or scenario.waiting_moves
    scenario.members[0].leave("now")
    b.leave("now")
    assert scenario.state == "Empty"
    c = scenario.member("w-c", {"t": MANY}).attach()
    scenario.to(8_000)
    assert len(c.active) == MANY


@pytest.mark.usefixtures("few")
def test_a_result_for_the_group_before_it_was_empty_is_not_taken_for_its_next_plan():
    scenario = large(2)
    scenario.to(5_000)
    a, b = scenario.members
    a.leave("now")
    scenario.to(5_150)
    b.leave("now")
    c = scenario.member("w-c", {"t": MANY}).attach()
    scenario.to(5_499)
    assert len(scenario.computing) == 2
    scenario.to(5_500)
    assert len(scenario.computing) == 1
    assert not c.active
    scenario.to(5_650)
    assert len(c.active) == MANY


@pytest.mark.usefixtures("few")
def test_a_late_plan_gives_nothing_to_a_member_that_has_lost_its_stream():
    scenario = large(3)
    scenario.to(5_000)
    a, b, c = scenario.members
    a.leave("now")
    scenario.to(5_200)
    b.cut()
    held = len(scenario.group.held[b.member_id]["t"])
    scenario.to(6_000)
    assert len(scenario.group.held[b.member_id]["t"]) == held
    assert len(c.active) == MANY - held


@pytest.mark.usefixtures("few")
def test_a_result_after_a_restart_is_ignored():
    scenario = large(2)
    scenario.to(5_000)
    scenario.members[0].leave("now")
    scenario.to(5_100)
    late = list(scenario.computing)
    scenario.computing.clear()
    scenario.restart()
    scenario.computing = late
    b = scenario.members[1].attach()
    scenario.to(scenario.now + 1_000)
    assert len(b.active) == MANY


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("count", [4, MANY])
def test_a_planner_that_fails_takes_nothing_and_is_tried_again(
    count: int, monkeypatch: pytest.MonkeyPatch
):
    def broken(_: PlanInput) -> Plan:
        raise ValueError("no plan today")

    scenario = SessionScenario()
    a = scenario.member("w-a", {"t": count}).attach()
    scenario.to(5_000)
    for module in (allocator, scheduler):
        monkeypatch.setattr(module, "plan", broken)
    b = scenario.member("w-b", {"t": count}).attach()
    scenario.to(8_200)
    failed = [event for event in scenario.events if isinstance(event, PlanFailed)]
    assert [event.in_a_row for event in failed] == [1, 2, 3]
    assert "no plan today" in failed[0].error
    assert len(a.active) == count
    assert a.commit(5, a.active[0]) == [ErrorCode.NONE]
    assert scenario.state == "Assigning"
    monkeypatch.undo()
    scenario.to(12_200)
    assert draining(a)
    assert scenario.group.planning.failures == 0
    assert scenario.group.planning.retry_at_ms == NO_TIME
    assert b.reply is not None
