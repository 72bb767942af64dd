"""Sources in one line of text."""

from __future__ import annotations

import re

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


def test_the_name_of_a_topic_holds_no_secret():
    log = open_source("parquet:s3://bucket/logs?secret_key=hush&region=x#filePartitions=2")
    assert log.topic == "s3://bucket/logs"


@pytest.mark.parametrize(
    ("location", "words"),
    [
        (
            "parket:/logs",
            "jsonl, csv, json, orc, avro, text, files, kafka, sql",
        ),
        ("parket:/logs", "; did you mean parquet?"),
        ("Parquet:/logs", "; did you mean parquet?"),
        ("file:///logs", "begins with 'file'; there are"),
        ("kafka://one:1", "kafka://BROKER:PORT"),
        ("sql:sqlite://#key=n", "takes table, key"),
        ("sql:sqlite://#table=t&kee=n", "takes table, key"),
        ("sql:sqlite://#table=t&kee=n", "kee is unknown; did you mean key?"),
        ("sql:sqlite://#table=t&spread=0", "spread is 0"),
        ("sql:sqlite://#table=t&spread=-2", "spread is -2; it is a whole number from 1 on"),
        ("sql:sqlite://#table=t&spread=many", "spread is many"),
    ],
)
def test_what_is_no_location_is_refused(location, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        open_source(location)


@pytest.mark.parametrize(
    ("location", "settings"),
    [
        ("kafka://b:9092/t#sasl.password=hush", {"filePartitions": "8"}),
        ("kafka://b:9092/#sasl.password=hush", {}),
        ("sql:postgresql://me:hush@host/db#tabel=x", {}),
        ("sql:postgresql://host/db?password=hush#table=x&spread=0", {}),
        ("s3://bucket/logs?secret_key=hush", {}),
    ],
)
def test_a_refusal_tells_no_secret(location, settings):
    with pytest.raises(ValueError, match=r"setting|does not say|takes table|spread|begins") as told:
        open_source(location, settings=settings)
    assert "hush" not in str(told.value)
