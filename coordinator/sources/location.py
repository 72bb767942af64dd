"""Sources from one line of text, as options and flags give it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from coordinator.sources.file_systems import StorePath
from coordinator.sources.files import FileLog
from coordinator.sources.formats import FORMATS
from coordinator.sources.layout import checked_rule

if TYPE_CHECKING:
    from coordinator.sources.kafka import KafkaTopic
    from coordinator.sources.sql import SqlTable

FILE_SETTINGS = ("filePartitions",)
"""Settings of directories."""
_FRAGMENT = re.compile(r"(.+)#(\w+=.*)", re.DOTALL)


def open_source(
    location: str, topic: str | None = None, settings: Mapping[str, str] | None = None
) -> FileLog | KafkaTopic | SqlTable:
    """Open the source at a location.

        /logs/flights, arrow:/logs/flights       a directory of Arrow files, a `FileLog`
        parquet:/logs/flights                    the same of Parquet; jsonl:, segments:
        csv:/logs/flights                        files as units; json:, orc:, avro:, text:, files:
        parquet:s3://bucket/flights              in an object store: see `StorePath`
        parquet:/logs/flights#filePartitions=8      with settings, see `file_log`
        kafka://one:9092,two:9092/flights        a `KafkaTopic`
        sql:postgresql://host/db#table=flights&key=id      a `SqlTable`

    Behind `#` stand more settings: librdkafka's for Kafka, the arguments of `SqlTable` for SQL.

    Args:
        topic: its name in the group; by default the directory, the Kafka topic or the table.
        settings: of a directory, besides those behind `#`.
    Raises:
        ValueError: the location cannot be parsed, or a setting is not one of its kind.
    """
    more = dict(settings or {})
    kind, colon, rest = location.partition(":")
    if not colon or "/" in kind:
        kind, rest = "arrow", location
    if kind in FORMATS:
        match = _FRAGMENT.fullmatch(rest)
        if match is not None:
            rest = match[1]
            more = {**dict(parse_qsl(match[2], keep_blank_values=True)), **more}
        if not rest:
            raise ValueError(f"{location!r} names no directory")
        # Without a store's settings, which may hold secrets.
        return file_log(rest, topic or str(StorePath.of(rest)), kind, more)
    shown = _shown(location)
    if more:
        raise ValueError(f"{next(iter(more))} is a setting of directories, and {shown} is none")
    text, _, fragment = rest.partition("#")
    options = dict(parse_qsl(fragment, strict_parsing=bool(fragment)))
    if kind == "kafka":
        from coordinator.sources.kafka import KafkaTopic

        brokers, _, kafka_topic = text.removeprefix("//").partition("/")
        if not brokers or not kafka_topic:
            raise ValueError(f"{shown} does not say kafka://BROKER:PORT,.../TOPIC")
        return KafkaTopic(brokers, kafka_topic, tuple(options.items()), name=topic)
    if kind == "sql":
        from coordinator.sources.sql import SqlTable

        takes = ("table", "key", "partition_by", "spread")
        unknown = sorted(options.keys() - set(takes))
        if unknown or "table" not in options:
            hint = f"; {unknown[0]} is unknown{nearest(unknown[0], takes)}" if unknown else ""
            raise ValueError(
                f"{shown}: it takes table, key, partition_by and spread behind #{hint}"
            )
        spread = options.pop("spread", "1")
        if not spread.isdecimal() or int(spread) < 1:
            raise ValueError(f"{shown}: spread is {spread}; it is a whole number from 1 on")
        return SqlTable(text, spread=int(spread), name=topic, **options)
    kinds = [*FORMATS, "kafka", "sql"]
    of_files = f"; for files: parquet:{shown}" if rest.startswith("//") else ""
    raise ValueError(
        f"{shown} begins with {kind!r}; there are {', '.join(kinds)}{nearest(kind, kinds)}"
        f"{of_files}"
    )


def _shown(location: str) -> str:
    """A location for messages, without settings and passwords."""
    shown = location.partition("#")[0].partition("?")[0]
    return re.sub(r"(//[^/@:]*):[^/@]*@", r"\1:***@", shown)


def file_log(
    directory: str, topic: str, kind: str, settings: Mapping[str, str] | None = None
) -> FileLog:
    """A log of files with settings from text.

    filePartitions: how partitions are made of files, see `sources.layout`.

    Raises:
        ValueError: there is no such setting, or its value is invalid.
    """
    values = dict(settings or {})
    rule = values.pop("filePartitions", "")
    for name in values:
        raise ValueError(
            f"{name} is no setting of a directory{nearest(name, FILE_SETTINGS)}; there is "
            f"{', '.join(FILE_SETTINGS)}"
        )
    return FileLog(directory, topic, kind, file_partitions=checked_rule(rule) if rule else "")


def nearest(name_given: str, known: Collection[str]) -> str:
    """Suggestion of a similar name, as the end of a message; empty if none is similar."""
    by_lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(name_given.lower(), by_lower, n=1)
    return f"; did you mean {by_lower[close[0]]}?" if close else ""
