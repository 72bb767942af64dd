"""The list of what cannot be said over Kafka's wire names scenarios that there are."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from coordinator.v1 import group_pb2 as pb
from tests.protocol.classic.over_kafka import ASKED_OVER_GRPC, KafkaCoordinator, Unsayable
from tests.protocol.classic.unsayable import REASONS, UNSAYABLE

MOST_UNSAYABLE = 31
"""Number of scenarios that cannot be played; it grows only by a change of this line."""


def test_each_scenario_that_cannot_be_said_is_one_of_the_tables():
    tests = {
        node.name
        for path in Path(__file__).parent.glob("test_*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef)
    }
    assert set(UNSAYABLE) <= tests
    assert sum(map(len, REASONS.values())) == len(UNSAYABLE) == MOST_UNSAYABLE


def test_only_questions_are_asked_over_grpc():
    for message in ASKED_OVER_GRPC:
        assert message.__name__.startswith(("List", "Describe"))


def test_a_field_that_kafka_does_not_have_is_not_left_out_silently():
    coordinator = KafkaCoordinator()
    partition = {"partition_index": 0, "expected_committed_offset": -1}
    topics = [{"name": "t", "partitions": [partition]}]
    with pytest.raises(Unsayable, match="expected_committed_offset"):
        coordinator.send(pb.OffsetCommitRequest(group_id="g", topics=topics))
    coordinator.close()
