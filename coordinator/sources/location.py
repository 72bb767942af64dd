"""Sources from one line of text, as options and flags give it."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from urllib.parse import parse_qsl

from coordinator.sources.base import Source
from coordinator.sources.files import FileLog
from coordinator.sources.formats import FORMATS


def open_source(location: str, topic: str | None = None) -> Source:
    """Open the source at a location.

        /logs/flights, arrow:/logs/flights       a directory of Arrow files, a `FileLog`
        parquet:/logs/flights                    the same of Parquet; jsonl:, csv:, segments:
        kafka://one:9092,two:9092/flights        a `KafkaTopic`
        sql:postgresql://host/db#table=flights&key=id      a `SqlTable`

    Behind `#` stand more settings: librdkafka's for Kafka, the arguments of `SqlTable` for SQL.

    Args:
        topic: its name in the group; by default the directory, the Kafka topic or the table.
    Raises:
        ValueError: the location cannot be parsed.
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

        takes = ("table", "key", "partition_by", "spread")
        unknown = sorted(settings.keys() - set(takes))
        if unknown or "table" not in settings:
            hint = f"; {unknown[0]} is unknown{nearest(unknown[0], takes)}" if unknown else ""
            raise ValueError(
                f"{location}: it takes table, key, partition_by and spread behind #{hint}"
            )
        spread = settings.pop("spread", "1")
        if not spread.isdecimal() or int(spread) < 1:
            raise ValueError(f"{location}: spread is {spread}; it is a whole number from 1 on")
        return SqlTable(place, spread=int(spread), name=topic, **settings)
    kinds = [*FORMATS, "kafka", "sql"]
    raise ValueError(
        f"{location} begins with {kind!r}; there are {', '.join(kinds)}{nearest(kind, kinds)}"
    )


def nearest(given: str, known: Collection[str]) -> str:
    """Suggestion of a similar name, as the end of a message; empty if none is similar."""
    by_lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(given.lower(), by_lower, n=1)
    return f"; did you mean {by_lower[close[0]]}?" if close else ""
