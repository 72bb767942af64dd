"""Ranges of micro-batches: planned fairly, kept by Spark, read back from its checkpoint."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.sources.base import snapshot_of
from coordinator.sources.kafka import KafkaTopic
from coordinator.spark.options import DataLost, StreamOptions
from coordinator.spark.ranges import BatchRanges, OffsetRange, plan, rounded

LOGS = st.dictionaries(
    st.integers(0, 20), st.tuples(st.integers(0, 1_000), st.integers(0, 1_000)), max_size=12
)


@given(LOGS, st.none() | st.integers(1, 5_000))
def test_a_plan_takes_all_it_may_and_no_row_twice(logs, most):
    positions = {p: OffsetRange(begin, begin, begin) for p, (begin, _) in logs.items()}
    ends = {p: begin + rows for p, (begin, rows) in logs.items()}
    planned = plan(positions, ends, most)
    for partition, r in planned.items():
        assert (r.begin, r.stored) == (positions[partition].begin,) * 2
        assert r.begin < r.end <= ends[partition]
    there = sum(rows for _, rows in logs.values())
    taken = sum(r.end - r.begin for r in planned.values())
    assert taken == (there if most is None else min(most, there))


def test_partitions_with_little_get_it_all_and_the_others_share():
    positions = {p: OffsetRange(0, 0, -1) for p in range(3)}
    planned = plan(positions, {0: 1_000, 1: 10, 2: 1_000}, 110)
    assert {p: r.end for p, r in planned.items()} == {0: 50, 1: 10, 2: 50}


def test_where_parts_of_files_are_large_partitions_take_turns():
    ranges = {p: OffsetRange(0, 10, 0) for p in range(5)}
    taken = [set(rounded(ranges, 100, turn, lambda p, r: 60)) for turn in range(5)]
    assert taken == [{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 0}]
    assert rounded(ranges, 50, 3, lambda p, r: r.end) == ranges
    assert rounded({}, 50, 3, lambda p, r: r.end) == {}


@given(st.integers(0, 10**6), LOGS)
def test_ranges_come_back_from_spark_as_they_went(number, logs):
    batch = BatchRanges(number, {p: OffsetRange(b, b + n, b - 1) for p, (b, n) in logs.items()})
    through_spark = json.loads(json.dumps(batch.to_offset()))
    assert BatchRanges.from_offset(through_spark) == batch


GIVEN = {"coordinator": "one:7400", "group": "g", "source": "/logs"}


def test_options_are_parsed_whatever_their_case():
    options = StreamOptions.parse({**GIVEN, "MAXROWSPERBATCH": "10", "startingoffsets": '{"1": 7}'})
    assert (options.max_in_batch, options.starting_offsets) == (10, {1: 7})
    assert (options.source.directory, options.source.topic) == ("/logs", "/logs")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({**GIVEN, "groop": "g"}, r"did you mean group\?; the options are coordinator, group, "),
        ({**GIVEN, "maxrowperbatch": "9"}, "did you mean maxRowsPerBatch"),
        ({**GIVEN, "path": "/logs"}, "there is no option path"),
        ({"coordinator": "one:7400", "source": "/logs"}, "the option group is missing"),
        ({**GIVEN, "group": " "}, "the option group is empty"),
        ({**GIVEN, "instance": ""}, "the option instance is empty"),
        ({**GIVEN, "topic": ""}, "the option topic is empty"),
        ({**GIVEN, "source": "parket:/logs"}, "did you mean parquet"),
        ({**GIVEN, "failOnDataLoss": "maybe"}, "failOnDataLoss=maybe: expected is true or false"),
        ({**GIVEN, "failOnDataLoss": "flase"}, "did you mean false"),
        ({**GIVEN, "allowEmpty": "1"}, "allowEmpty=1: expected is true or false"),
        ({**GIVEN, "tls": "yes"}, "tls=yes: expected is true or false"),
        ({**GIVEN, "startingOffsets": "newest"}, "startingOffsets=newest: expected is earliest, "),
        ({**GIVEN, "startingOffsets": "lastest"}, "did you mean latest"),
        ({**GIVEN, "startingOffsets": "{}"}, "a JSON object of offsets by partition"),
        ({**GIVEN, "startingOffsets": "[1]"}, "a JSON object of offsets by partition"),
        ({**GIVEN, "startingOffsets": '{"0": -1}'}, "a JSON object of offsets by partition"),
        ({**GIVEN, "startingOffsets": '{"0": "1"}'}, "a JSON object of offsets by partition"),
        ({**GIVEN, "startingOffsets": '{"0": true}'}, "a JSON object of offsets by partition"),
        ({**GIVEN, "startingOffsets": '{"t": {"0": 1}}'}, "such as .*0.*: 120"),
        ({**GIVEN, "startingOffsets": "[" * 100_000}, "a JSON object of offsets by partition"),
    ],
)
def test_options_that_cannot_be_are_refused(options, words):
    with pytest.raises(ValueError, match=words) as caught:
        StreamOptions.parse(options)
    assert "\n" not in str(caught.value)


def test_a_query_names_the_assignors_that_workers_name():
    settings = StreamOptions.parse(GIVEN).member_settings()
    assert settings["assignors"] == ("cooperative-sticky",)
    assert settings["fallback_assignor"] == "range"


KAFKA = {"coordinator": "one:7400", "kafka.bootstrap.servers": "b:1,c:2", "subscribe": "flights"}


def test_names_of_sparks_kafka_source_work():
    options = StreamOptions.parse(
        {
            **KAFKA,
            "kafka.group.id": "g",
            "kafka.security.protocol": "SSL",
            "maxOffsetsPerTrigger": "10",
            "startingOffsets": '{"flights": {"0": 23, "1": -2, "2": -1}}',
            "endingOffsets": '{"flights": {"0": 50, "1": -1}}',
        }
    )
    settings = (("security.protocol", "SSL"),)
    assert options.source == KafkaTopic("b:1,c:2", "flights", settings)
    assert (options.group, options.max_in_batch) == ("g", 10)
    snapshot = snapshot_of(Log(), 0)
    begins = [options.position(p, -1, snapshot).begin for p in range(4)]
    assert begins == [23, 5, 100, 5]
    assert [options.ending(p, snapshot) for p in range(3)] == [50, 100, 100]
    of_files = StreamOptions.parse({**GIVEN, "subscribe": "t", "maxOffsetsPerTrigger": "9"})
    assert of_files.source.topic == "t"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({**KAFKA, "group": "g", "subscribe": "a,b"}, "subscribe=a,b: a query reads one topic"),
        ({**GIVEN, "kafka.bootstrap.servers": "b:1"}, "needs subscribe, which names the topic"),
        ({**KAFKA, "group": "g", "source": "/logs"}, "kafka.bootstrap.servers and source say the"),
        ({**KAFKA, "group": "g", "kafka.group.id": "h"}, "kafka.group.id and group say the same"),
        ({**GIVEN, "kafka.security.protocol": "SSL"}, "needs kafka.bootstrap.servers and subscr"),
        ({**GIVEN, "topic": "t", "subscribe": "u"}, "subscribe and topic say the same, and diff"),
        ({**GIVEN, "maxOffsetsPerTrigger": "0"}, "maxRowsPerBatch=0: expected is a whole number"),
        (
            {**KAFKA, "group": "g", "startingOffsets": '{"other": {"0": 1}}'},
            "names the topic oth",
        ),
        (
            {**KAFKA, "group": "g", "startingOffsets": '{"flights": {"0": -3}}'},
            "a JSON object of offsets by partition",
        ),
        ({**GIVEN, "endingOffsets": "earliest"}, "endingOffsets=earliest: expected is latest or"),
        ({**GIVEN, "endingOffsets": '{"0": -1}'}, "a JSON object of offsets by partition"),
        ({**GIVEN, "subscribePattern": "a.*"}, "a query reads one topic: name it with subscribe"),
        ({**GIVEN, "assign": "{}"}, "the coordinator assigns partitions"),
        ({**GIVEN, "availableNowRest": "stay"}, "availableNowRest=stay: expected is leave, wait"),
        ({**GIVEN, "filePartitions": "hash:8"}, "expected is numbers, or a whole number"),
        ({**KAFKA, "group": "g", "filePartitions": "8"}, "is a setting of directories"),
    ],
)
def test_options_that_say_two_things_or_would_have_no_effect_are_refused(options, words):
    with pytest.raises(ValueError, match=words) as caught:
        StreamOptions.parse(options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "maxRowsPerBatch",
        "minPartitions",
        "sessionTimeoutMs",
        "rebalanceTimeoutMs",
        "maxPollIntervalMs",
    ],
)
@pytest.mark.parametrize("value", ["0", "-1", "many", "1.5", "1e3", "1_000", "", "9" * 30])
def test_numbers_that_cannot_be_are_refused_with_those_that_can(name, value):
    with pytest.raises(ValueError, match=f"{name}.*(whole number from 1 to [0-9]+|is empty)"):
        StreamOptions.parse({**GIVEN, name: value})


def test_words_are_taken_in_any_case():
    options = StreamOptions.parse(
        {**GIVEN, "startingOffsets": "LATEST", "failOnDataLoss": "False", "allowEmpty": "TRUE"}
    )
    assert (options.starting_offsets, options.fail_on_data_loss) == ("latest", False)
    assert options.allow_empty


def test_a_batch_is_decoded_as_it_was_encoded():
    batch = BatchRanges(3, {1: OffsetRange(5, 9, 5)}, "id", {1: "mark"}, {1: "stored"})
    assert BatchRanges.from_offset(batch.to_offset()) == batch


class Log:
    """A source whose partitions all begin at 5 and end at 100."""

    def begin_offset(self, partition):
        return 5

    def end_offset(self, partition):
        return 100


def position(stored: dict[int, int], **options) -> OffsetRange:
    return StreamOptions("c", "g", Log(), **options).position(
        0, stored.get(0, -1), snapshot_of(Log(), 0)
    )


def test_a_query_begins_where_the_group_is_and_else_where_it_was_told():
    assert position({0: 40}, starting_offsets="latest") == OffsetRange(40, 40, 40)
    assert position({}) == OffsetRange(5, 5, -1)
    assert position({}, starting_offsets="latest") == OffsetRange(100, 100, -1)
    assert position({}, starting_offsets={0: 30}) == OffsetRange(30, 30, -1)
    assert position({}, starting_offsets={1: 30}) == OffsetRange(5, 5, -1)
    assert position({}, starting_offsets={0: 3}) == OffsetRange(5, 5, -1)
    assert position({}, starting_offsets={0: 300}) == OffsetRange(100, 100, -1)


@pytest.mark.parametrize(("stored", "begun"), [(101, 100), (4, 5)])
def test_rows_that_are_gone_are_a_loss_unless_that_was_allowed(stored, begun):
    words = f"offset {stored} is stored, and its rows are those from 5 to 100"
    with pytest.raises(DataLost, match=words):
        position({0: stored})
    assert position({0: stored}, fail_on_data_loss=False) == OffsetRange(begun, begun, stored)
