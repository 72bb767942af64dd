"""A source in one line of text, as options and flags give it."""

from __future__ import annotations

from urllib.parse import parse_qsl

from coordinator.sources.base import Source
from coordinator.sources.files import FileLog
from coordinator.sources.formats import FORMATS


def open_source(location: str, topic: str | None = None) -> Source:
    """The source at a location.

        /logs/flights, arrow:/logs/flights       a directory of Arrow files, a `FileLog`
        parquet:/logs/flights                    the same of Parquet; jsonl:, csv:, segments:
        kafka://one:9092,two:9092/flights        a `KafkaTopic`
        sql:postgresql://host/db#table=flights&key=id      a `SqlTable`

    Behind `#` stand more settings: librdkafka's for Kafka, the arguments of `SqlTable` for SQL.

    Args:
        topic: its name in the group; by default the directory, the Kafka topic or the table.
    Raises:
        ValueError: the location cannot be understood.
    """
    kind, colon, rest = location.partition(":")
    if not colon or "/" in kind:
        kind, rest = "arrow", location
    if kind in FORMATS:
        if not rest:
            raise ValueError(f"{location!r} names no directory")
        return FileLog(rest, topic or rest, kind)
    place, _, fragment = rest.partition("#")
    settings = dict(parse_qsl(fragment, strict_parsing=bool(fragment)))
    if kind == "kafka":
        from coordinator.sources.kafka import KafkaTopic

        brokers, _, kafka_topic = place.removeprefix("//").partition("/")
        if not brokers or not kafka_topic:
            raise ValueError(f"{location} does not say kafka://BROKER:PORT,.../TOPIC")
        return KafkaTopic(brokers, kafka_topic, tuple(settings.items()), name=topic)
    if kind == "sql":
        from coordinator.sources.sql import SqlTable

        spread = int(settings.pop("spread", 1))
        unknown = settings.keys() - {"table", "key", "partition_by"}
        if unknown or "table" not in settings:
            raise ValueError(f"{location}: it takes table, key, partition_by and spread behind #")
        return SqlTable(place, spread=spread, name=topic, **settings)
    kinds = ", ".join([*FORMATS, "kafka", "sql"])
    raise ValueError(f"{location} begins with {kind!r}; there are {kinds}")
