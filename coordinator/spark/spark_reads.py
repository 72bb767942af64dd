"""Reads by Spark's own readers: their options, and the reader for each kind of source.

The options are those of `format("consumer_group")` that mean something to a planner, in Python
values or Spark's text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from coordinator.sources.base import NothingFound
from coordinator.sources.files import FileLog, FileRange
from coordinator.sources.sql import SqlTable
from coordinator.spark.file_frames import FORMATS, FileReader
from coordinator.spark.options import StreamOptions
from coordinator.spark.ranges import BatchRanges
from coordinator.spark.refusals import BadOption
from coordinator.spark.table_frames import TableReader

_ADVICE = {"jsonl": "; jsonl counts lines, which Spark does not number: json counts files"}
_IN_SPARK = {
    "minpartitions": "spark.sql.files.maxPartitionBytes",
}
"""Options that Spark's own readers are told in another way."""


class RowsReader(Protocol):
    """One of Spark's readers, for the rows that a group has planned. It can be pickled."""

    def frame(self, spark: Any, batch: BatchRanges, files: Sequence[FileRange]) -> Any:
        """The rows of a batch as a pyspark DataFrame. `files`: those that hold them, if any do."""
        ...


def reader_of(
    spark: Any,  # Any: a pyspark SparkSession.
    options: StreamOptions,
    schema: Any,
    read_options: Mapping[str, str] | None,
) -> RowsReader:
    """Spark's reader of a source.

    Args:
        schema, read_options: see `reading`.
    Raises:
        BadOption, NothingFound: see `FileReader.of_log` and `TableReader.of_table`.
    """
    if isinstance(options.source, SqlTable):
        return TableReader.of_table(spark, options.source, schema, read_options)
    return FileReader.of_log(spark, options, schema, read_options)


def options_of_read(settings: Mapping[str, Any]) -> tuple[dict[str, str], StreamOptions]:
    """The options of a read by Spark, as its text and parsed.

    Raises:
        BadOption: an option is not for reads by Spark, or it has no reader of the source.
        NothingFound: there is no such directory.
    """
    for name in settings:
        if name.lower() in _IN_SPARK:
            raise BadOption(f"{name} is not for reads by Spark: use {_IN_SPARK[name.lower()]}")
    texts = {name: _text(value) for name, value in settings.items()}
    options = StreamOptions.parse(texts)
    log = options.source
    if isinstance(log, SqlTable):
        return texts, options
    if not isinstance(log, FileLog) or log.format not in FORMATS:
        raise BadOption(
            f"source={texts['source'][:80]}: Spark reads directories of {', '.join(FORMATS)}, and "
            "tables (sql:), for a group, such as parquet:/logs/flights"
            f"{_ADVICE.get(getattr(log, 'format', ''), '')}"
        )
    entry = log.root.stat()
    if entry is None and not options.allow_empty:
        is_pattern = not set("*?[{").isdisjoint(log.directory)
        advice = ": name the directory itself, without a pattern" if is_pattern else ""
        raise NothingFound(f"there is no directory {log.root}{advice}")
    if entry is not None and not entry.is_folder:
        raise BadOption(f"{log.root} is a file: name its directory, {log.format}:{log.root.parent}")
    return texts, options


def _text(value: Any) -> str:
    """A value as Spark's readers take it."""
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value) if isinstance(value, Mapping) else str(value)
