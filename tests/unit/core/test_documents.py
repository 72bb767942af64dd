"""Documents and generated files agree with the code they describe."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path

import pytest

from coordinator.core import machine
from coordinator.core.classic import group
from coordinator.core.classic.group import TRANSITIONS
from coordinator.core.group import GroupState
from coordinator.core.values.effects import Effects
from coordinator.core.values.errors import ADVICE, ErrorCode
from coordinator.shard import inputs
from coordinator.v1 import errors_pb2

ROOT = Path(__file__).parents[3]
MAP = (ROOT / "coordinator" / "ARCHITECTURE.md").read_text()


def test_the_core_and_the_contract_know_the_same_error_codes():
    assert {code.name: code.value for code in ErrorCode} == dict(errors_pb2.ErrorCode.items())


def test_every_error_a_client_can_get_comes_with_advice():
    never_sent = {
        "NOT_LEADER_OR_FOLLOWER", "REQUEST_TIMED_OUT",
        "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "KAFKA_STORAGE_ERROR",
        "GROUP_AUTHORIZATION_FAILED",
    }  # fmt: skip
    assert {code.name for code in ErrorCode} - {code.name for code in ADVICE} == never_sent


def diagram() -> str:
    lines = ["stateDiagram-v2", f"    [*] --> {GroupState.EMPTY.value}"]
    for before, after in TRANSITIONS.items():
        for state in sorted(after, key=lambda s: s.value):
            lines.append(f"    {before.value} --> {state.value}")
    return "\n".join(lines)


def test_the_map_shows_the_transitions_there_are():
    assert diagram() in MAP, f"draw this into ARCHITECTURE.md:\n{diagram()}"


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([A-Z]\w+\.[A-Za-z_]\w*)[`(]", MAP))))
def test_the_map_names_methods_that_there_are(name):
    kind, _, member = name.partition(".")
    sources = [path.read_text() for path in (ROOT / "coordinator").rglob("*.py")]
    bodies = [
        re.split(r"^\S", body, maxsplit=1, flags=re.MULTILINE)[0]
        for text in sources
        for body in re.split(rf"^class {kind}\b.*\n", text, flags=re.MULTILINE)[1:]
    ]
    defined = re.compile(rf"^    (?:(?:async )?def )?{member}\b", re.MULTILINE)
    in_proto = f"service {kind} " in "".join(
        path.read_text() for path in (ROOT / "protos").rglob("*.proto")
    )
    assert any(defined.search(body) for body in bodies) or in_proto, f"there is no {name}"


def test_the_door_of_the_core_says_what_it_takes():
    said = re.findall(r"^    (\w+)\((.*?)\)  ", machine.__doc__, re.MULTILINE)
    takes = {
        name: ", ".join(inspect.signature(getattr(machine.GroupMachine, name)).parameters)
        for name, _ in said
    }
    assert takes == {name: ", ".join(["self", *filter(None, [given])]) for name, given in said}
    assert machine.GroupMachine.handle.__annotations__["return"] == "None"


def test_the_map_names_the_ways_to_speak_through_out():
    (listed,) = re.findall(r"says the rest through `out`: (.*?)\.\n", MAP)
    methods = {name for name in vars(Effects) if not name.startswith("_")}
    assert set(re.findall(r"`(\w+)`", listed)) == methods - set(Effects.__slots__)


def test_effects_of_a_step_are_named_in_the_order_of_handling():
    parts = {field.name for field in fields(inputs.ShardEffects)}
    said = re.findall(r"`(\w+)`", inspect.getdoc(inputs.ShardEffects))
    assert {*said} == parts - {"writes", "defers", "checks", "opened"}, "these are the shard's own"
    (line,) = re.findall(r"ShardEffects: (.*)", MAP)
    short = [name for name in line.split(", ") if name != "deadline"]
    assert [name for name in said if name in short] == short


def test_what_is_parked_is_said_below_its_name():
    said = inspect.getsource(group).partition("ParkedCalls = ")[2].splitlines()[1]
    assert "parked call" in said
