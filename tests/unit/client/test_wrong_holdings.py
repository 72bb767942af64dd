"""Ways to hold the library wrong: each is taken in its obvious meaning, or shown the right form."""

from __future__ import annotations

import datetime as dt
import os
import socket

import pytest

from coordinator.assignors import RangeAssignor, TopicPartition
from coordinator.client import BlockingMember, Member, OffsetAndMetadata
from coordinator.client.validation import (
    addresses_of,
    expected_of,
    manifest_of,
    offsets_of,
    partition_of,
    partitions_of,
    timeout_ms_of,
    topics_of,
)


class Number:
    """A whole number of another library, as NumPy's."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


T0 = TopicPartition("t", 0)
WRONG = (TypeError, ValueError)
KINDS = pytest.mark.parametrize("kind", [Member, BlockingMember])


@pytest.mark.parametrize(
    ("given", "addresses"),
    [
        ("localhost:7400", ["localhost:7400"]),
        ("localhost", ["localhost:7400"]),
        ("a:1,b:2", ["a:1", "b:2"]),
        ("a, b:2", ["a:7400", "b:2"]),
        (["a:1", "b"], ["a:1", "b:7400"]),
        ({"a:1"}, ["a:1"]),
        (("localhost", 7400), ["localhost:7400"]),
        (("a:1", "b:2"), ["a:1", "b:2"]),
        ("[::1]:7400", ["[::1]:7400"]),
        ("[::1]", ["[::1]:7400"]),
        ("unix:/tmp/socket", ["unix:/tmp/socket"]),
        ("dns:///coordinator:7400", ["dns:///coordinator:7400"]),
    ],
)
def test_addresses_that_are_understood(given, addresses):
    assert addresses_of(given) == addresses


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("http://localhost:7400", "without http://"),
        ("localhost:http", "'localhost:7400'"),
        ("localhost:0", "HOST:PORT"),
        ("localhost:99999", "HOST:PORT"),
        (":7400", "HOST:PORT"),
        ("::1", r"'\[::1\]:7400'"),
        ("", "'localhost:7400'"),
        ([], "'localhost:7400'"),
        (7400, "'localhost:7400'"),
        (None, "'localhost:7400'"),
        (b"localhost", "'localhost:7400'"),
        ([7400], "'localhost:7400'"),
    ],
)
def test_addresses_that_are_refused(given, shown):
    with pytest.raises(WRONG, match=shown):
        addresses_of(given)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (["a"], r"topics is \['a'\].*topics=\{'a': 12\}"),
        ("a", r"topics=\{'a': 12\}"),
        (("a", "b"), r"topics=\{'a': 12, 'b': 12\}"),
        ({"a", 3}, r"topics=\{'a': 12\}"),
        (12, r"topics=\{'invoices': 12\}"),
        (None, r"topics=\{'invoices': 12\}"),
        ({"a": "12"}, r"'a': '12'.*topics=\{'invoices': 12\}"),
        ({"a": 1.5}, "number of partitions"),
        ({"a": True}, "number of partitions"),
        ({"a": [0, 1]}, "number of partitions"),
        ({"": 1}, "write a name"),
        ({"a": -1}, "0 partitions or more"),
    ],
)
def test_topics_that_are_refused(given, shown):
    with pytest.raises(WRONG, match=shown):
        topics_of(given)


def test_topics_may_count_in_numbers_of_another_library():
    assert topics_of({"a": Number(3)}) == {"a": 3}


@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        ({"assignors": []}, r"assignors=\['cooperative-sticky'\]"),
        ({"assignors": "cooperative"}, "did you mean cooperative-sticky"),
        ({"assignors": "cooperative_sticky"}, "did you mean cooperative-sticky"),
        ({"assignors": ["range", "Sticky"]}, "did you mean sticky"),
        ({"assignors": "zzz"}, "there are range, roundrobin, sticky, cooperative-sticky"),
        ({"assignors": RangeAssignor()}, r"assignors=\['cooperative-sticky'\]"),
        ({"assignors": [RangeAssignor()]}, r"assignors=\['cooperative-sticky'\]"),
        ({"fallback_assignor": "rang"}, "did you mean range"),
        ({"session_timeout_ms": 45.5}, "session_timeout_ms is 45.5; write whole milliseconds"),
        ({"session_timeout_ms": "45000"}, "whole milliseconds, 45_000 for 45 s"),
        ({"session_timeout_ms": dt.timedelta(seconds=45)}, "whole milliseconds"),
        ({"session_timeout_ms": None}, "whole milliseconds"),
        ({"heartbeat_interval_ms": 0}, "at least 1 ms"),
        ({"max_poll_interval_ms": -1}, "at least 1 ms"),
        ({"instance_id": ""}, "instance_id='billing'"),
        ({"instance_id": 3}, "instance_id='billing'"),
        ({"client_id": 3}, "client_id='billing'"),
        ({"credentials": "token"}, "credentials=Credentials"),
        ({"log_ends": {T0: 1}}, "it is a function"),
    ],
)
@KINDS
def test_settings_that_are_refused_where_the_member_is_made(kind, settings, shown):
    with pytest.raises(WRONG, match=shown):
        kind("localhost", "g", {"t": 1}, **settings)


@pytest.mark.parametrize("group_id", ["", None, 7, b"g"])
@KINDS
def test_group_ids_that_are_refused(kind, group_id):
    with pytest.raises(WRONG, match="group_id='billing'"):
        kind("localhost", group_id, {"t": 1})


def test_settings_that_are_understood_and_defaults():
    machine = Member("localhost", "g", {"t": 1}, assignors="cooperative-sticky")._machine
    assert machine.part.membership.config.assignors == ("cooperative-sticky",)
    assert machine.part.membership.config.client_id == f"{socket.gethostname()}-{os.getpid()}"
    assert machine.part.membership.config.max_poll_interval_ms == 300_000
    assert machine.part.membership.config.session_timeout_ms == 45_000
    machine = Member("localhost", "g", {"t": 1}, session_timeout_ms=Number(9_000))._machine
    assert machine.part.membership.config.session_timeout_ms == 9_000


@pytest.mark.parametrize("key", [T0, ("t", 0), ("t", Number(0))])
def test_partitions_that_are_understood(key):
    assert partition_of(key) == T0
    assert partitions_of(key) == partitions_of([key]) == partitions_of({key}) == (T0,)


@pytest.mark.parametrize("key", [0, "t", "t-0", ("t",), ("t", "0"), (0, "t"), ["t", 0, 1], None])
def test_partitions_that_are_refused(key):
    with pytest.raises(WRONG, match=r"write TopicPartition\('invoices', 0\) or \('invoices', 0\)"):
        partition_of(key)
    with pytest.raises(WRONG, match="write"):
        offsets_of({key: 1} if not isinstance(key, list) else key)


@pytest.mark.parametrize("keys", ["t", 0, [0], ["t"]])
def test_lists_of_partitions_that_are_refused(keys):
    with pytest.raises(WRONG, match="'invoices', 0"):
        partitions_of(keys)


def test_a_negative_partition_is_refused():
    with pytest.raises(WRONG, match="counted from 0"):
        partition_of(("t", -1))


def test_offsets_that_are_understood():
    told = OffsetAndMetadata(5, "note")
    assert offsets_of({("t", 0): Number(5), ("t", 1): told}) == {T0: 5, ("t", 1): told}


@pytest.mark.parametrize(
    "offset", ["5", 5.0, None, True, (5, "note"), OffsetAndMetadata("5"), OffsetAndMetadata(5, b"")]
)
def test_offsets_that_are_refused(offset):
    with pytest.raises(WRONG, match=r"t-0 is .*; write"):
        offsets_of({T0: offset})


@pytest.mark.parametrize("offsets", [[(T0, 5)], T0, 5, None, "t"])
def test_commits_without_a_mapping_are_refused(offsets):
    with pytest.raises(WRONG, match=r"offsets by partition: \{\('invoices', 0\): 100\}"):
        offsets_of(offsets)


def test_other_arguments_of_commits_that_are_refused():
    with pytest.raises(WRONG, match=r"manifest=text\.encode\(\)"):
        manifest_of("text")
    with pytest.raises(WRONG, match=r"expected offset of t-0 is None"):
        expected_of({T0: None})
    assert manifest_of(bytearray(b"m")) == b"m"


@pytest.mark.parametrize("timeout", ["5", None, True, -1, float("nan"), float("inf")])
def test_timeouts_that_are_refused(timeout):
    with pytest.raises(WRONG, match="seconds"):
        timeout_ms_of(timeout)
