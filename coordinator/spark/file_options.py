"""Options of reads by Spark's own readers: those of `format("consumer_group")` that mean something
to a planner of files, in Python values or Spark's text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from coordinator.sources.base import NothingFound
from coordinator.sources.files import FileLog
from coordinator.spark.options import StreamOptions
from coordinator.spark.refusals import BadOption

FORMATS = {
    "parquet": "parquet",
    "orc": "orc",
    "json": "json",
    "csv": "csv",
    "avro": "avro",
    "text": "text",
    "files": "binaryFile",
}
"""Formats of sources that Spark can read for a group, and its names of them. The rows of all but
the first are not numbered, so their offsets count files."""
_ADVICE = {"jsonl": "; jsonl counts lines, which Spark does not number: json counts files"}
_IN_SPARK = {
    "minpartitions": "spark.sql.files.maxPartitionBytes",
}
"""Options that Spark's own readers are told in another way."""


def file_options(given: Mapping[str, Any]) -> tuple[dict[str, str], StreamOptions]:
    """The options of a read by Spark, as its text and parsed.

    Raises:
        BadOption: an option is not for reads by Spark, or the source is none of files.
        NothingFound: there is no such directory.
    """
    for name in given:
        if name.lower() in _IN_SPARK:
            raise BadOption(f"{name} is not for reads by Spark: use {_IN_SPARK[name.lower()]}")
    told = {name: _text(value) for name, value in given.items()}
    options = StreamOptions.parse(told)
    log = options.source
    if not isinstance(log, FileLog) or log.format not in FORMATS:
        raise BadOption(
            f"source={told['source'][:80]}: Spark reads directories of {', '.join(FORMATS)} for a "
            f"group, such as parquet:/logs/flights{_ADVICE.get(getattr(log, 'format', ''), '')}"
        )
    entry = log.root.look()
    if entry is None and not options.allow_empty:
        is_pattern = not set("*?[{").isdisjoint(log.directory)
        advice = ": name the directory itself, without a pattern" if is_pattern else ""
        raise NothingFound(f"there is no directory {log.root}{advice}")
    if entry is not None and not entry.is_folder:
        raise BadOption(f"{log.root} is a file: name its directory, {log.format}:{log.root.parent}")
    return told, options


def _text(value: Any) -> str:
    """A value as Spark's readers take it."""
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value) if isinstance(value, Mapping) else str(value)
