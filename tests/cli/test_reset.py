"""Plans of `reset-offsets`: every kind of target, and what cannot be known."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from coordinator.assignors import TopicPartition
from coordinator.cli import log_offsets
from coordinator.cli.reset import Target, chosen, plan

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
CURRENT = {T0: 50, T1: 7}
LOGS = log_offsets.read(
    """topic,partition,offset,timestamp_ms
t,0,10,1000
t,0,60,2000
t,0,90,3000
t,1,0,1000
t,1,20,1500
""".splitlines()
)
NOTHING = log_offsets.LogOffsets()


def at(epoch_ms: int) -> Target:
    return Target(when=datetime.fromtimestamp(epoch_ms / 1000, UTC))


@pytest.mark.parametrize(
    ("target", "logs", "expected"),
    [
        (Target(earliest=True), LOGS, {T0: 10, T1: 0}),
        (Target(earliest=True), NOTHING, {T0: 0, T1: 0}),
        (Target(latest=True), LOGS, {T0: 90, T1: 20}),
        (Target(offset=15), LOGS, {T0: 15, T1: 15}),
        (Target(offset=1_000), LOGS, {T0: 90, T1: 20}),
        (Target(offset=1_000), NOTHING, {T0: 1_000, T1: 1_000}),
        (Target(shift_by=-10), LOGS, {T0: 40, T1: 0}),
        (Target(shift_by=5), NOTHING, {T0: 55, T1: 12}),
        (Target(shift_by=100), LOGS, {T0: 90, T1: 20}),
        (at(1_001), LOGS, {T0: 60, T1: 20}),
        (at(1_000), LOGS, {T0: 10, T1: 0}),
        (at(9_000), LOGS, {T0: 90, T1: 20}),
    ],
)
def test_every_target_stays_within_the_log_as_far_as_that_is_known(target, logs, expected):
    assert plan(CURRENT, [], target, logs) == expected


@pytest.mark.parametrize(
    ("topics", "target", "what"),
    [
        ([], Target(latest=True), "the end of t-0 is unknown"),
        (["t"], at(1_000), "the end of t-0 is unknown"),
        (["u:0"], Target(shift_by=1), "u-0 has no offset to shift"),
        (["v"], Target(earliest=True), "no partition is selected"),
    ],
)
def test_what_is_not_known_is_said(topics, target, what):
    with pytest.raises(LookupError, match=what):
        plan(CURRENT, topics, target, NOTHING)


def test_a_log_without_times_cannot_be_searched_by_time():
    logs = log_offsets.read(["topic,partition,offset", "t,0,10"])
    with pytest.raises(LookupError, match="t-0 has no timestamps"):
        plan(CURRENT, ["t:0"], at(1), logs)


def test_topics_and_partitions_are_chosen_by_name():
    assert chosen([], {T1, T0, U0}) == [T0, T1, U0]
    assert chosen(["t"], {T1, T0, U0}) == [T0, T1]
    assert chosen(["t:1,5", "u"], {T1, T0, U0}) == [T1, TopicPartition("t", 5), U0]


def test_a_file_says_where_each_partition_goes(tmp_path):
    file = tmp_path / "plan.csv"
    file.write_text("t,0,3\nu,0,4\n")
    assert plan(CURRENT, [], Target(file=file), NOTHING) == {T0: 3, U0: 4}
    file.write_text("t,0\n")
    with pytest.raises(ValueError, match="TOPIC,PARTITION,OFFSET"):
        plan(CURRENT, [], Target(file=file), NOTHING)


@pytest.mark.parametrize("line", ["t,x,1,", "t,0,,", "t"])
def test_a_damaged_line_of_log_offsets_is_named(line):
    with pytest.raises(ValueError, match="the columns are topic,partition,offset"):
        log_offsets.read(["topic,partition,offset,timestamp_ms", line])
