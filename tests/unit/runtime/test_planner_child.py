"""Answers of the planner's child, run without a process."""

from __future__ import annotations

import io
import pickle
from array import array

import pytest

from coordinator.core.sessions.plan.allocator import plan
from coordinator.core.values.plans import FREE, PlanInput, PlanMember, PlanTopic
from coordinator.runtime import planner_child
from coordinator.runtime.planner_child import LENGTH, packed, serve

STATE = PlanInput(
    (PlanMember("w-a", (4,)), PlanMember("w-b", (0,))),
    (PlanTopic("t", 4, array("i", [FREE] * 4)),),
    weights={(0, 1): 2.5},
)


def answers(source: bytes) -> list[object]:
    sink = io.BytesIO()
    serve(io.BytesIO(source), sink)
    sink.seek(0)
    found = []
    while head := sink.read(LENGTH.size):
        found.append(pickle.loads(sink.read(*LENGTH.unpack(head))))  # Our own.
    return found


def test_each_state_is_answered_by_its_plan_until_the_input_ends() -> None:
    assert answers(packed(STATE) * 2) == [plan(STATE)] * 2
    assert plan(STATE).obstacles
    assert answers(b"") == []
    assert answers(packed(STATE) + b"\0\0") == [plan(STATE)]


def test_an_error_is_told_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner_child, "plan", lambda _: 1 / 0)
    assert answers(packed(STATE)) == ["ZeroDivisionError: division by zero"]
