"""Durations, members and partitions as people read them."""

from __future__ import annotations

import pytest

from coordinator.assignors.partitions import TopicPartition, spelled
from coordinator.observe.spelling import member_of, name_of, spell


@pytest.mark.parametrize(
    ("ms", "expected"),
    [
        (12, "12 ms"),
        (4_100, "4.1 s"),
        (200_000, "3 min 20 s"),
        (3_600_000, "1 h 0 min"),
        (2 * 86_400_000 - 1, "47 h 59 min"),
        (691_206_000, "8 d 0 h"),
    ],
)
def test_a_duration_has_the_units_that_its_length_calls_for(ms, expected):
    assert spell(ms) == expected


UUID = "1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed"


@pytest.mark.parametrize(
    ("expected", "shown"),
    [
        (member_of(f"w-a-{UUID}"), "'w-a' …4bed"),
        (member_of(UUID), "'…4bed'"),
        (member_of("w-a"), "'w-a'"),
        (name_of(f"w-a-{UUID}", "w-a"), "w-a"),
        (name_of(f"-{UUID}", "", "/10.0.0.1"), "…4bed (10.0.0.1)"),
        (name_of(f"static-{UUID}", ""), "static …4bed"),
        (name_of("", ""), "an unknown member"),
    ],
)
def test_no_member_is_named_by_a_uuid(expected, shown):
    assert expected == shown


def test_partitions_are_named_as_kafka_names_them_and_in_ranges():
    some = [TopicPartition("invoices", n) for n in (7, 0, 1, 2)]
    assert str(some[0]) == "invoices-7"
    assert spelled([*some, TopicPartition("a-b", 3)]) == "a-b-3, invoices-0…2,7"
