"""Declarations of members that are wrong, or hostile."""

from __future__ import annotations

import struct

import pytest

from coordinator.assignors import Subscription, TopicPartition
from coordinator.assignors.consumer_protocol import Assignment, encode_assignment
from coordinator.client.member.classic.declarations import (
    PARTITIONS_MAX,
    Declaration,
    encode_declaration,
    largest_counts,
    read_declarations,
)


def read(*said: bytes) -> dict[str, Declaration]:
    members = {
        f"m{number}": Subscription(("t", "u"), user_data=b"own" + message)
        for number, message in enumerate(said)
    }
    return read_declarations(members)


def test_a_declaration_is_read_behind_the_bytes_of_an_assignor():
    unwanted = (TopicPartition("t", 3),)
    assert read(encode_declaration((4, 2), unwanted)) == {
        "m0": Declaration({"t": 4, "u": 2}, unwanted)
    }


@pytest.mark.parametrize(
    "counts", [(-1, 2), (PARTITIONS_MAX, 1), (2**31 - 1, 2**31 - 1), (4,), (4, 2, 1)]
)
def test_a_declaration_that_nobody_could_divide_is_none(counts):
    found = read(encode_declaration(counts, ()), encode_declaration((4, 2), ()))
    assert largest_counts(found.values()) == {"t": 4, "u": 2}
    assert "m0" not in found


@pytest.mark.parametrize(
    "end",
    [
        b"coordinator",
        struct.pack(">i", -5) + b"coordinator",
        struct.pack(">i", 2**31 - 1) + b"coordinator",
        encode_assignment(Assignment(())) + struct.pack(">i", 3) + b"coordinator",
    ],
)
def test_bytes_that_only_look_like_a_declaration_are_none(end):
    assert read(end) == {}
