"""Loads of members include what is on its way: nobody is given more than it may have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordinator.core.sessions.handoff.successors import MOST_CHOICES
from coordinator.core.values.ids import TopicPartition
from coordinator.core.values.plan_journal import PlanRecord
from coordinator.core.values.policy import Mode
from coordinator.core.values.session_messages import Order
from tests.kit.session_scenario import POLICY, ScenarioMember, SessionScenario


def draining(member: ScenarioMember) -> list[TopicPartition]:
    return [partition for partition, order in member.orders.items() if order.order is Order.DRAIN]


def warming(member: ScenarioMember) -> list[TopicPartition]:
    return [partition for partition, order in member.orders.items() if order.order is Order.WARM]


def test_grants_that_the_log_has_not_taken_yet_count_in_the_next_plan():
    scenario = SessionScenario()
    a = scenario.member("w-a", {"t": 10}).attach(max_partitions=2)
    c = scenario.member("w-c", {"t": 10}).attach(ready=False)
    scenario.hold()
    scenario.to(2_000)
    assert scenario.group.written_partitions == 2
    c.beat(ready=True)  # Calls for a plan without a record.
    scenario.to(6_000)
    scenario.release()
    scenario.to(8_000)
    assert (len(a.active), len(c.active)) == (2, 8)
    plans = [record for record in scenario.records if isinstance(record, PlanRecord)]
    assert [sum(count for _, count in plan.counts) for plan in plans] == [2, 8]


@pytest.mark.parametrize("mode", Mode)
def test_partitions_that_lose_their_successor_at_once_know_of_each_other(mode):
    scenario = SessionScenario(replace(POLICY, mode=mode))
    a = scenario.member("w-a", {"t": 12}).attach()
    scenario.to(5_000)
    b = scenario.member("w-b", {"t": 12}).attach()
    a.leave("drain", 60_000)
    scenario.to(7_000)
    c = scenario.member("w-c", {"t": 12}).attach(max_partitions=3)
    d = scenario.member("w-d", {"t": 12}).attach()
    scenario.to(7_010)
    b.leave("now")
    successors = [open_handoff.successor for _, open_handoff in scenario.group.open_handoffs()]
    assert sorted(map(successors.count, (c.member_id, d.member_id))) == [3, 9]
    a.releases = c.releases = d.releases = True
    for partition in draining(a):
        a.ack(partition)
    for member in (c, d):
        for partition in warming(member):
            member.ack(partition, "ready")
    scenario.to(9_000)
    assert (len(c.active), len(d.active)) == (3, 9)


def test_of_many_that_lose_their_successor_the_plan_decides():
    scenario = SessionScenario()
    a = scenario.member("w-a", {"t": 200}).attach()
    scenario.to(5_000)
    b = scenario.member("w-b", {"t": 200}).attach()
    a.leave("drain", 60_000)
    scenario.to(6_000)
    assert len(draining(a)) == 200
    others = [scenario.member(f"w-{x}", {"t": 200}).attach() for x in "cd"]
    scenario.to(6_010)
    b.leave("now")
    chosen = [
        open_handoff.successor
        for _, open_handoff in scenario.group.open_handoffs()
        if open_handoff.successor
    ]
    assert len(chosen) == MOST_CHOICES
    assert len(draining(a)) == 200, "a drain that was ordered goes on"
    scenario.to(6_600)
    named = [open_handoff.successor for _, open_handoff in scenario.group.open_handoffs()]
    assert [named.count(member.member_id) for member in others] == [100, 100]
    for partition in draining(a):
        a.ack(partition)
    assert [len(member.active) for member in others] == [100, 100]


def test_a_move_is_not_begun_if_its_receiver_was_given_others_meanwhile():
    scenario = SessionScenario()
    a = scenario.member("w-a", {"t": 20}).attach()
    scenario.to(5_000)
    b = scenario.member("w-b", {"t": 20}).attach(max_partitions=2)
    scenario.to(5_500)
    assert len(draining(a)) == 2
    scenario.move(a.active[0], b)
    assert len(draining(a)) == 2
    for partition in draining(a):
        a.ack(partition)
    assert len(b.active) == 2
