"""Partitions, times and durations on the command line: what is taken, and what is refused why."""

from __future__ import annotations

from argparse import ArgumentTypeError

import pytest

from coordinator.assignors import TopicPartition
from coordinator.cli.partitions import SELECTED_MAX, Selection, chosen, selection
from coordinator.cli.times import duration_ms, epoch_ms

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("t", Selection("t", None)),
        ("t:0", Selection("t", (0,))),
        ("t:0-3,7", Selection("t", (0, 1, 2, 3, 7))),
        ("t:1,0-2,1", Selection("t", (1, 0, 2))),
        ("t:5-5", Selection("t", (5,))),
        ("t:2147483647", Selection("t", (2**31 - 1,))),
        ("a:b:0", Selection("a:b", (0,))),
        (" -", Selection(" -", None)),
    ],
)
def test_a_topic_with_numbers_and_ranges(text, expected):
    assert selection(text) == expected


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("t:", "nothing after a colon or comma"),
        ("t:0,", "nothing after a colon or comma"),
        ("t:-1", "'-1' in 't:-1' is no partition and no range"),
        ("t:0-", "'0-' in 't:0-' is no partition and no range"),
        ("t:0-1-2", "is no partition and no range"),
        ("t:x", "is no partition and no range"),
        ("t: 1", "is no partition and no range"),
        ("t:1_0", "is no partition and no range"),
        ("t:١", "is no partition and no range"),
        ("a:b", "is no partition and no range"),
        ("t:3-0", "runs backwards: write 0-3"),
        ("t:2147483648", "too large"),
        ("t:9999999999-1", "runs backwards"),
        (":0", "names no topic"),
        ("", "names no topic"),
        (f"t:0-{SELECTED_MAX}", "more than 100,000 partitions"),
        ("t:0-2147483647", "more than 100,000 partitions"),
    ],
)
def test_what_is_no_partition_is_refused(text, what):
    with pytest.raises(ArgumentTypeError, match=what):
        selection(text)


def test_the_largest_range_is_taken():
    assert len(selection(f"t:1-{SELECTED_MAX}").partitions) == SELECTED_MAX


def test_topics_and_partitions_are_chosen_by_name():
    assert chosen([], {T1, T0, U0}) == [T0, T1, U0]
    assert chosen([Selection("t", None)], {T1, T0, U0}) == [T0, T1]
    more = TopicPartition("t", 5)
    assert chosen([selection("t:1,5"), selection("u")], {T1, T0, U0}) == [T1, more, U0]


def test_a_topic_without_offsets_is_not_passed_over():
    with pytest.raises(LookupError, match=r"topic 'v'.*offsets of 't', 'u'.*--topic 'v:0-3'"):
        chosen([selection("t"), selection("v")], {T0, U0})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:01", 1_000),
        ("1970-01-01T00:00:01.250Z", 1_250),
        ("1970-01-01T02:00:00+02:00", 0),
        ("1970-01-02", 86_400_000),
    ],
)
def test_a_time_without_a_zone_is_in_utc(text, expected):
    assert epoch_ms(text) == expected


@pytest.mark.parametrize("text", ["", "now", "2026-13-01T00:00:00", "12:00", "1700000000"])
def test_what_is_no_time_is_refused_with_the_form(text):
    with pytest.raises(ArgumentTypeError, match="YYYY-MM-DDTHH:MM:SS"):
        epoch_ms(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PT0S", 0),
        ("PT1.5S", 1_500),
        ("PT1H30M", 5_400_000),
        ("P1D", 86_400_000),
        ("p1dt2h3m4s", 93_784_000),
    ],
)
def test_a_duration_is_of_days_and_less(text, expected):
    assert duration_ms(text) == expected


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "P1DT", "1H", "P1M", "P1Y", "-PT1H", "PT-1H", "PT1H30", "P9999999999D"]
)
def test_what_is_no_duration_is_refused_with_the_form(text):
    with pytest.raises(ArgumentTypeError, match="PnDTnHnMnS"):
        duration_ms(text)
