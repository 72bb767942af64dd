"""Work of a heartbeat and of an Attach: it does not grow with the group."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coordinator.core.sessions.group import SessionGroup
from coordinator.core.sessions.handoff import successors
from coordinator.core.values import session_messages as q
from coordinator.core.values.session_messages import Order
from tests.kit.session_scenario import GROUP, ScenarioMember, SessionScenario
from tests.kit.steps import stepped

RULES = str(Path(successors.__file__).parents[1])


def calls_of(work: Callable[[], Any]) -> int:
    """Number of Python and C functions that are called."""
    count = 0

    def note(_frame: Any, event: str, _arg: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def instructions_of(work: Callable[[], Any]) -> int:
    """Number of instructions that the rules run: loops that call nothing count too."""
    count = 0

    def note(frame: Any, event: str, _arg: Any) -> Any:
        nonlocal count
        path = frame.f_code.co_filename
        if not path.startswith(RULES) or path.endswith("invariants.py"):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return note

    sys.settrace(note)
    try:
        work()
    finally:
        sys.settrace(None)
    return count


def scenario_of(members: int) -> tuple[SessionScenario, ScenarioMember]:
    """A group whose members have two partitions each; hand-offs are open, and more are to come."""
    scenario = SessionScenario()
    topics = {"t": 2 * members}
    first = scenario.member("w-0", topics).attach()
    for number in range(1, members):
        scenario.member(f"w-{number}", topics).attach()
    scenario.to(100)
    scenario.member("w-new", topics).attach()
    scenario.to(1_200)
    assert any(order.order is Order.DRAIN for m in scenario.members for order in m.orders.values())
    return scenario, first


def heartbeat(
    scenario: SessionScenario, member: ScenarioMember, **fields: Any
) -> q.SessionHeartbeat:
    member.number += 1
    return q.SessionHeartbeat(
        stream_id=member.stream, group_id=GROUP, number=member.number, **fields
    )


def step(scenario: SessionScenario, command: Any) -> int:
    calls = calls_of(lambda: stepped(scenario.shard, command, scenario.now))
    scenario.shard.take(getattr(command, "stream_id", 0), scenario.now)
    return calls


HEARTBEATS: dict[str, dict[str, Any]] = {
    "plain": {},
    "with another readiness": {"overloaded": True},
    "that asks for the whole": {"whole": True},
}


@pytest.mark.parametrize("fields", HEARTBEATS.values(), ids=HEARTBEATS)
def test_a_heartbeat_costs_the_same_in_groups_of_all_sizes(fields):
    small, large = (scenario_of(members) for members in (5, 60))
    counts = [
        step(scenario, heartbeat(scenario, member, **fields)) for scenario, member in (small, large)
    ]
    assert counts[0] == counts[1]


def test_a_plain_heartbeat_takes_the_short_path():
    scenario, member = scenario_of(5)
    plain = step(scenario, heartbeat(scenario, member))
    other = step(scenario, heartbeat(scenario, member, overloaded=True))
    assert 2 * plain < other
    assert scenario.shard.machine.groups[GROUP].members[member.member_id].number == member.number


def test_plans_of_many_topics_cost_for_each_what_they_do_for_few():
    def instructions(count: int) -> int:
        scenario, topics = SessionScenario(), {f"t-{number}": 1 for number in range(count)}
        members = [scenario.member(name, topics) for name in ("w-a", "w-b")]

        def story() -> None:
            for member in members:
                member.attach()
                scenario.to(scenario.now + 1_500)
            members[0].leave("now")
            scenario.to(scenario.now + 1_500)

        found = instructions_of(story)
        assert len(members[1].active) == count
        return found

    assert instructions(400) < 8.8 * instructions(50)


def test_a_return_costs_the_same_in_groups_of_all_sizes():
    counts = []
    for members in (5, 60):
        scenario, member = scenario_of(members)
        scenario.to(6_000)
        attach = q.Attach(
            call_id=scenario.new_call(),
            group_id=GROUP,
            incarnation=member.incarnation,
            name=member.name,
            stream_number=2,
            topics=tuple(member.topics.items()),
            held=member.held,
        )
        stepped(
            scenario.shard, q.StreamEnded(stream_id=member.stream, group_id=GROUP), scenario.now
        )
        counts.append(step(scenario, attach))
    small, large = counts
    assert large < 2 * small


def test_another_successor_is_found_with_one_look_at_the_hand_offs(monkeypatch):
    scenario, _ = scenario_of(20)
    looks = 0
    look = SessionGroup.open_handoffs

    def counted(group: SessionGroup) -> Any:
        nonlocal looks
        looks += 1
        return look(group)

    monkeypatch.setattr(SessionGroup, "open_handoffs", counted)
    assert successors.choose(scenario.group, ("t", 0), but=set())
    assert looks == 1
