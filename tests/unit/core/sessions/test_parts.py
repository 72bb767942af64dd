"""Large orders, sent a part at a time: in between the shard handles what has come."""

from __future__ import annotations

import pytest

from coordinator.core.sessions import orders
from coordinator.core.values.session_messages import Order, Orders
from tests.kit.session_scenario import ScenarioMember, SessionScenario
from tests.unit.core.sessions.test_applying import holdings, story, three

TOPICS = {"t-a": 7, "t-b": 4}


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders, "PART", 3)


def holder(topics: dict[str, int] = TOPICS) -> tuple[SessionScenario, ScenarioMember]:
    scenario = SessionScenario()
    member = scenario.member("w-a", topics).attach()
    scenario.to(200)
    assert len(member.active) == sum(topics.values())
    return scenario, member


def next_part(scenario: SessionScenario, member: ScenarioMember) -> Orders:
    message = scenario.shard.take(member.stream, scenario.now)
    assert message is not None
    assert message.orders is not None
    return message.orders


def asked_for_the_whole() -> tuple[SessionScenario, ScenarioMember]:
    scenario, member = holder()
    scenario.deaf.add(member.stream)
    member.beat(whole=True)
    return scenario, member


def test_a_story_told_in_parts_ends_as_one_that_is_told_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    in_parts = story(three())
    monkeypatch.setattr(orders, "PART", 1_000)
    at_once = story(three())
    assert holdings(in_parts) == holdings(at_once)
    assert [member.orders for member in in_parts.members] == [
        member.orders for member in at_once.members
    ]


def test_parts_are_of_one_version_in_order_and_only_the_last_is_none() -> None:
    scenario, member = asked_for_the_whole()
    parts = [next_part(scenario, member) for _ in range(4)]
    assert scenario.shard.take(member.stream, scenario.now) is None
    assert len({(part.version, part.based_on, part.answers) for part in parts}) == 1
    assert [part.is_part for part in parts] == [True, True, True, False]
    partitions = [
        (partition.topic, partition.partition) for part in parts for partition in part.partitions
    ]
    assert partitions == member.active


def test_the_answer_to_an_attach_is_the_first_part() -> None:
    _, member = holder()
    member.attach()
    assert member.reply is not None
    assert member.reply.orders is not None
    assert len(member.reply.orders.partitions) == 3
    assert member.reply.orders.is_part
    assert len(member.active) == 11


def test_what_changes_between_two_parts_is_in_the_next_difference() -> None:
    scenario, member = asked_for_the_whole()
    first = next_part(scenario, member)
    other = scenario.member("w-b", TOPICS).attach()
    scenario.to(scenario.now + 1_200)
    moved = [
        partition for partition in member.active if scenario.group.handoff(partition) is not None
    ]
    assert moved, "some of them are drained for the other one"
    parts = [next_part(scenario, member) for _ in range(3)]
    assert {part.version for part in parts} == {first.version}
    drained: set[tuple[str, int]] = set()
    while (message := scenario.shard.take(member.stream, scenario.now)) is not None:
        assert message.orders is not None
        assert message.orders.based_on == first.version
        drained |= {(e.topic, e.partition) for e in message.orders.partitions}
    assert drained == set(moved)
    assert other.active == []


def test_an_acknowledgement_does_not_wait_for_the_last_part() -> None:
    scenario, member = asked_for_the_whole()
    next_part(scenario, member)
    member.beat()
    message = scenario.shard.take(member.stream, scenario.now)
    assert message is not None
    assert message.ack is not None
    assert message.ack.number == member.number


def test_an_attach_begins_the_whole_anew() -> None:
    scenario, member = asked_for_the_whole()
    first = next_part(scenario, member)
    member.attach()
    assert member.reply is not None
    assert member.reply.orders is not None
    assert member.reply.orders.version == first.version + 1
    assert len(member.active) == 11
    assert {order.order for order in member.orders.values()} == {Order.ACTIVE}


def test_a_large_difference_comes_in_parts_of_one_version() -> None:
    scenario, member = holder({"t-a": 7})
    scenario.deaf.add(member.stream)
    member.beat(applied=99, held=tuple(("u", partition, 5) for partition in range(8)))
    parts = [next_part(scenario, member) for _ in range(5)]
    assert [part.is_part for part in parts] == [True, True, True, True, False]
    assert len({(part.version, part.based_on) for part in parts}) == 1
    named = [(each.topic, each.partition) for part in parts for each in part.partitions]
    assert named == [*(("t-a", n) for n in range(7)), *(("u", n) for n in range(8))]
