"""What is said in two places has to agree."""

from __future__ import annotations

from pathlib import Path

from coordinator.core.errors import ADVICE, ErrorCode
from coordinator.core.group import TRANSITIONS, GroupState
from coordinator.v1 import errors_pb2

ROOT = Path(__file__).parents[2]


def test_the_core_and_the_contract_know_the_same_error_codes():
    assert {code.name: code.value for code in ErrorCode} == dict(errors_pb2.ErrorCode.items())


def test_every_error_a_client_can_get_comes_with_advice():
    never_sent = {
        "UNKNOWN_TOPIC_OR_PARTITION", "NOT_LEADER_OR_FOLLOWER", "REQUEST_TIMED_OUT",
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
    text = (ROOT / "coordinator" / "ARCHITECTURE.md").read_text()
    assert diagram() in text, f"draw this into ARCHITECTURE.md:\n{diagram()}"
