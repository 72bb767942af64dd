"""Streams by Spark's own readers: a function is called with each batch's rows.

    query = (
        streaming(spark, coordinator="127.0.0.1:7400", group="delays",
                  source="parquet:/logs/flights", topic="flights")
        .foreach_batch(lambda rows, batch_id: rows.write.mode("append").parquet("/results"))
        .option("checkpointLocation", "/checkpoints/delays")
        .start()
    )

The stream that Spark runs has no rows. Its source is a member of the group, plans a batch as
`format("consumer_group")` does, and announces it with the files that hold its rows; the function
gets a DataFrame of Spark's reader of these, or of the keys of a table. Rows never pass through
Python, and executors need no library.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any

from coordinator.spark.announced import announced_files, java_process, running
from coordinator.spark.files_source import STREAM, FilesSource
from coordinator.spark.options import StreamOptions
from coordinator.spark.spark_reads import RowsReader, options_of_read, reader_of
from coordinator.spark.worker_imports import ImportedInWorkers

BatchFunction = Callable[[Any, int], None]  # Any: a pyspark DataFrame.


def streaming(
    spark: Any,  # Any: a pyspark SparkSession, classic or Connect; pyspark is optional.
    *,
    group: str,
    source: str,
    schema: Any = None,
    read_options: Mapping[str, str] | None = None,
    **options: Any,
) -> GroupStream:
    """A stream of what a group has not read yet, of files that Spark reads.

    The schema is fixed here: columns that only later files have are read after a restart.

    Args:
        group, source, schema, read_options: see `reading`.
        options: see `StreamOptions`.
    Raises:
        BadOption, NothingFound, BadLayout: options or files are not as expected.
    """
    chosen, parsed = options_of_read({"group": group, "source": source, **options})
    parsed.check_stream()
    parsed.partitions()
    reader = reader_of(spark, parsed.in_group(), schema, read_options)
    return GroupStream(spark, parsed, chosen, reader)


class GroupStream:
    """A stream that is not started yet; see `streaming`."""

    def __init__(
        self, spark: Any, parsed: StreamOptions, options: Mapping[str, str], reader: RowsReader
    ) -> None:
        self._spark = spark
        self._parsed = parsed
        self._given = options
        self._reader = reader

    def foreach_batch(self, function: BatchFunction) -> Any:
        """A pyspark DataStreamWriter, for its checkpointLocation, trigger and start.

        Args:
            function: gets the rows of a batch and Spark's number of it; or an `ExactlyOnce`. A
                batch that fails is read again (at least once).
        """
        stream = uuid.uuid4().hex
        self._spark.dataSource.register(FilesSource)
        ranges = self._spark.readStream.format(FilesSource.name())
        loaded = ranges.options(**self._given, **{STREAM: stream}).load()
        return loaded.writeStream.foreachBatch(_ReadBySpark(function, self._reader, stream))


class _ReadBySpark(metaclass=ImportedInWorkers):
    """Function for Spark's `foreachBatch` that reads the announced files."""

    def __init__(self, function: BatchFunction, reader: RowsReader, stream: str) -> None:
        self._function = function
        self._reader = reader
        self._stream = stream

    def __call__(self, nothing: Any, batch_id: int) -> None:  # Any: a pyspark DataFrame.
        announced, files = announced_files(java_process(nothing), self._stream)
        rows = self._reader.frame(nothing.sparkSession, announced.batch, files)
        with running(announced):
            self._function(rows, batch_id)
