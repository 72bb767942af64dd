"""Sources in one line of text."""

from __future__ import annotations

import pytest

from coordinator.sources import FileLog, open_source
from coordinator.sources.kafka import KafkaTopic
from coordinator.sources.sql import SqlTable


@pytest.mark.parametrize(
    ("location", "source"),
    [
        ("/logs/a", FileLog("/logs/a", "/logs/a", "arrow")),
        ("arrow:/logs/a", FileLog("/logs/a", "/logs/a", "arrow")),
        ("./odd:name", FileLog("./odd:name", "./odd:name", "arrow")),
        ("segments:/logs/a", FileLog("/logs/a", "/logs/a", "segments")),
        (
            "kafka://one:1,two:2/flights#security.protocol=SSL&fetch.min.bytes=1",
            KafkaTopic(
                "one:1,two:2", "flights", (("security.protocol", "SSL"), ("fetch.min.bytes", "1"))
            ),
        ),
        (
            "sql:sqlite:////a/b.db#table=t&key=n&spread=4",
            SqlTable("sqlite:////a/b.db", "t", "n", spread=4),
        ),
    ],
)
def test_a_location_is_a_source(location, source):
    assert open_source(location) == source
    assert open_source(location, "mine").topic == "mine"


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("parket:/logs", "there are arrow, segments, parquet, jsonl, csv, kafka, sql"),
        ("kafka://one:1", "kafka://BROKER:PORT"),
        ("sql:sqlite://#key=n", "takes table, key"),
        ("sql:sqlite://#table=t&kee=n", "takes table, key"),
        ("sql:sqlite://#table=t&spread=0", "spread is 0"),
    ],
)
def test_what_is_no_location_is_refused(location, words):
    with pytest.raises(ValueError, match=words):
        open_source(location)
