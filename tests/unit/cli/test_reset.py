"""Plans of `reset-offsets`: every kind of target, and what cannot be known."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.assignors import TopicPartition
from coordinator.cli import log_offsets
from coordinator.cli.partitions import selection
from coordinator.cli.reset import Target, as_csv, live_warning, plan

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


@pytest.mark.parametrize(
    ("target", "logs", "expected"),
    [
        (Target(earliest=True), LOGS, {T0: 10, T1: 0}),
        (Target(latest=True), LOGS, {T0: 90, T1: 20}),
        (Target(current=True), NOTHING, {T0: 50, T1: 7}),
        (Target(offset=15), LOGS, {T0: 15, T1: 15}),
        (Target(offset=1_000), LOGS, {T0: 90, T1: 20}),
        (Target(offset=1_000), NOTHING, {T0: 1_000, T1: 1_000}),
        (Target(shift_by=-10), LOGS, {T0: 40, T1: 0}),
        (Target(shift_by=5), NOTHING, {T0: 55, T1: 12}),
        (Target(shift_by=100), LOGS, {T0: 90, T1: 20}),
        (Target(shift_by=-(2**62)), LOGS, {T0: 10, T1: 0}),
        (Target(at_ms=1_001), LOGS, {T0: 60, T1: 20}),
        (Target(at_ms=1_000), LOGS, {T0: 10, T1: 0}),
        (Target(at_ms=9_000), LOGS, {T0: 90, T1: 20}),
        (Target(at_ms=-1), LOGS, {T0: 10, T1: 0}),
    ],
)
def test_every_target_stays_within_the_log_as_far_as_that_is_known(target, logs, expected):
    assert plan(CURRENT, [], target, logs).offsets == expected


def test_an_offset_that_the_log_does_not_have_is_told_of():
    assert plan(CURRENT, [], Target(offset=30), LOGS).notes == [
        "t-1: 30 is outside of the log, so 20 is used."
    ]
    many = {TopicPartition("t", n): 100 for n in range(9)}
    logs = log_offsets.LogOffsets({key: [(0, None), (5, None)] for key in many})
    notes = plan(many, [], Target(current=True), logs).notes
    assert (len(notes), notes[-1]) == (6, "So it is with 4 more partitions.")


@pytest.mark.parametrize(
    ("topics", "target", "what"),
    [
        ([], Target(earliest=True), "the start of the log of t-0 is unknown: give it by --log-off"),
        ([], Target(latest=True), "the end of the log of t-0 is unknown"),
        (["t"], Target(at_ms=1_000), "the end of the log of t-0 is unknown"),
        (["u:0"], Target(shift_by=1), "u-0 has no committed offset: give one by --to-offset"),
        (["u:0"], Target(current=True), "u-0 has no committed offset"),
        (["v"], Target(offset=1), "No offset of topic 'v' is committed"),
    ],
)
def test_what_is_not_known_is_said(topics, target, what):
    with pytest.raises(LookupError, match=what):
        plan(CURRENT, [selection(topic) for topic in topics], target, NOTHING)


@pytest.mark.parametrize("shift_by", [-8, 2**63 - 1])
def test_what_is_no_offset_is_refused_where_the_log_is_not_known(shift_by):
    with pytest.raises(ValueError, match=r"t-\d: .* is no offset"):
        plan(CURRENT, [], Target(shift_by=shift_by), NOTHING)


def test_no_offsets_and_no_partitions_leave_nothing_to_reset():
    with pytest.raises(LookupError, match="no committed offsets: name partitions"):
        plan({}, [], Target(offset=1), NOTHING)


def test_a_log_without_times_cannot_be_searched_by_time():
    logs = log_offsets.read(["topic,partition,offset", "t,0,10"])
    with pytest.raises(LookupError, match="t-0 has no timestamps"):
        plan(CURRENT, [selection("t:0")], Target(at_ms=1), logs)


def test_a_file_says_where_each_partition_goes(tmp_path):
    file = tmp_path / "plan.csv"
    file.write_text("\ufefft,0,3\n\nu,0,4\n", encoding="utf-8")
    assert plan(CURRENT, [], Target(file=file), NOTHING).offsets == {T0: 3, U0: 4}


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        ("t,0\n", "line 1: there are 2 fields; each line is TOPIC,PARTITION,OFFSET"),
        ("t,0,1\ng,t,0,1\n", "line 2: there are 4 fields"),
        (",0,1\n", "there is no topic"),
        ("t,-1,1\n", "'-1' is no whole number"),
        ("t,0,-1\n", "'-1' is no whole number"),
        ("t,0,1.5\n", "'1.5' is no whole number"),
        ("t,2147483648,1\n", "larger than"),
        ("t,0,9223372036854775808\n", "larger than"),
        ("t,0,1\nt,0,2\n", "t-0 is listed twice"),
        ("t,0," + "1" * 200_000, "field larger than field limit"),
        ("", "lists no partition"),
    ],
)
def test_a_damaged_file_is_refused_with_the_line(tmp_path, lines, what):
    file = tmp_path / "plan.csv"
    file.write_text(lines)
    with pytest.raises(ValueError, match=what):
        plan(CURRENT, [], Target(file=file), NOTHING)


@settings(max_examples=25)
@given(
    st.dictionaries(
        st.tuples(
            st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1),
            st.integers(0, 2**31 - 1),
        ),
        st.integers(0, 2**63 - 1),
        min_size=1,
    )
)
def test_an_export_is_taken_back_as_it_was(tmp_path_factory, offsets):
    offsets = {TopicPartition(*key): offset for key, offset in offsets.items()}
    file = tmp_path_factory.getbasetemp() / "export.csv"
    file.write_text(as_csv(offsets), encoding="utf-8", newline="")
    assert plan({}, [], Target(file=file), NOTHING).offsets == offsets


def test_an_export_has_the_columns_of_kafkas_tool():
    assert as_csv({T0: 3, TopicPartition('a,"b', 1): 4}) == 't,0,3\n"a,""b",1,4\n'


@pytest.mark.parametrize(
    "line", ["t,x,1,", "t,0,,", "t", "t,-1,1,", "t,0,-1,", ",0,1,", "t,0,1,x", "t,0," + "1" * 20]
)
def test_a_damaged_line_of_log_offsets_is_named(line):
    with pytest.raises(ValueError, match="the columns are topic,partition,offset"):
        log_offsets.read(["topic,partition,offset,timestamp_ms", line])


@pytest.mark.parametrize("lines", [["partition,offset", "0,1"], ["a" * 200_000]])
def test_a_file_of_log_offsets_that_is_none_is_refused(lines):
    with pytest.raises(ValueError, match=r"columns are topic,partition|is no CSV"):
        log_offsets.read(lines)


def test_only_a_group_without_members_is_reset():
    assert live_warning("g", "Empty", 0) is None
    assert live_warning("g", "Dead", 0) is None
    assert "state is Stable, with 1 member:" in live_warning("g", "Stable", 1)
    assert "with 3 members" in live_warning("g", "PreparingRebalance", 3)
