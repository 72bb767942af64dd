"""Batch reads by Spark's own readers: rows of files or a table that a group has not read yet.

    with reading(spark, coordinator="127.0.0.1:7400", group="billing",
                 source="parquet:/logs/flights", topic="flights") as batch:
        batch.rows.groupBy("carrier").count().write.mode("append").parquet("/results")

The program is a member of the group for as long, so that several programs, queries and workers
divide the partitions. When the block ends without an error its offsets are committed; else the
rows are read again (at least once).
"""

from __future__ import annotations

import atexit
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from coordinator.assignors import TopicPartition
from coordinator.spark.planner import BatchPlanner
from coordinator.spark.ranges import NO_BATCH, BatchRanges
from coordinator.spark.spark_reads import RowsReader, options_of_read, reader_of

HOUR_MS = 3_600_000
DEFAULTS = {"maxPollIntervalMs": HOUR_MS, "rebalanceTimeoutMs": HOUR_MS}
"""A job may take longer than a micro-batch."""


class AssignedRows:
    """The rows of a program's partitions, from the committed offsets on.

    rows: a pyspark DataFrame, of the columns and types that `spark.read` gives of the whole
    directory.
    """

    def __init__(
        self, spark: Any, planner: BatchPlanner, batch: BatchRanges | None, reader: RowsReader
    ) -> None:
        self._planner = planner
        self._batch = batch or NO_BATCH
        self._is_committed = batch is None
        files = planner.files(self._batch)
        self.rows: Any = reader.frame(spark, self._batch, files)  # Any: pyspark's types.

    @property
    def ranges(self) -> dict[TopicPartition, range]:
        """Offsets of the rows, by partition; without those that have none."""
        key = self._planner.options.key
        return {key(p): range(r.begin, r.end) for p, r in self._batch.ranges.items()}

    def commit(self) -> None:
        """Commit the ends of all ranges, or of none; nothing, if it was done before.

        Raises:
            LogChanged: a file was written over since the rows were planned, so nobody knows which
                of its rows were read.
            CoordinatorError: the partitions are another member's now, or somebody else has set
                their offsets.
        """
        if not self._is_committed:
            self._planner.commit(self._batch)
            self._is_committed = True

    def close(self) -> None:
        """Leave the group. Rows that are not committed are read again."""
        self._planner.close("batch read ended")


@contextmanager
def reading(
    spark: Any,  # Any: a pyspark SparkSession, classic or Connect; pyspark is optional.
    *,
    group: str,
    source: str,
    schema: Any = None,
    read_options: Mapping[str, str] | None = None,
    **options: Any,
) -> Iterator[AssignedRows]:
    """Read, and commit when the block ends without an error.

    Args:
        group: its id. source: a directory with its format, such as `parquet:/logs/flights`, or a
            table, such as `sql:postgresql+psycopg://host/db#table=flights`.
        schema: as `DataFrameReader.schema` takes it; by default Spark's, of all files together, or
            the table's.
        read_options: of Spark's reader, such as `{"datetimeRebaseMode": "CORRECTED"}`.
        options: see `StreamOptions`: `coordinator`, `topic`, `startingOffsets`, `endingOffsets`,
            `maxRowsPerBatch`, `failOnDataLoss` and others. `maxPollIntervalMs`, the longest time
            between planning and commit, is an hour, and so is `rebalanceTimeoutMs`, of which half
            is the time that partitions stay when another member is to have them.
    Raises:
        BadOption, NothingFound, BadLayout: options or files are not as expected.
        LogChanged, DataLost: rows that the group has read have changed, or others are gone.
        CoordinatorError: the coordinator was not reached, or refused the commit.
    """
    batch = _begun(spark, schema, read_options, {"group": group, "source": source, **options})
    try:
        yield batch
        batch.commit()
    finally:
        batch.close()


_OPEN: dict[tuple[str, str, str], AssignedRows] = {}
"""Offsets that `read_assigned` has read and nobody committed, by coordinator, group, source."""


def read_assigned(
    spark: Any,  # Any: a pyspark SparkSession, classic or Connect; pyspark is optional.
    *,
    group: str,
    source: str,
    schema: Any = None,
    read_options: Mapping[str, str] | None = None,
    **options: Any,
) -> Any:
    """The rows as a pyspark DataFrame, for `committed`. For notebooks, where no block can end.

    The program stays a member until then, until it reads the same source in the same group again,
    or until it exits.

    Args, Raises: see `reading`.
    """
    key = (str(options.get("coordinator")), group, source)
    if key in _OPEN:
        _OPEN.pop(key).close()
    options_given = {"group": group, "source": source, **options}
    _OPEN[key] = batch = _begun(spark, schema, read_options, options_given)
    return batch.rows


def committed(rows: Any) -> None:  # Any: a pyspark DataFrame.
    """Commit the rows of a DataFrame that `read_assigned` has returned, and leave the group.

    Raises:
        ValueError: it is none of those; a DataFrame made of it, for example, or one of rows that
            were committed or read again since.
        LogChanged, CoordinatorError: see `AssignedRows.commit`.
    """
    for key, batch in _OPEN.items():
        if batch.rows is rows:
            batch.commit()
            _OPEN.pop(key).close()
            return
    raise ValueError(
        "these rows are not what read_assigned has returned, or they were committed or read again "
        "since: pass the DataFrame itself, not one made of it"
    )


# --- Inside ---


@atexit.register
def _close_all() -> None:
    while _OPEN:
        _OPEN.popitem()[1].close()


def _begun(
    spark: Any, schema: Any, read_options: Mapping[str, str] | None, given: Mapping[str, Any]
) -> AssignedRows:
    _, parsed = options_of_read({**DEFAULTS, **given})
    options = parsed.in_group()
    planner = BatchPlanner(options, scans_files=True)
    try:
        planner.begin(may_store=True)
        planner.read_until_now()
        batch = planner.next_batch(1, options.max_in_batch)
        # After the plan: a file that has come meanwhile may add columns, and none is missing.
        reader = reader_of(spark, options, schema, read_options)
        return AssignedRows(spark, planner, batch, reader)
    except BaseException:
        planner.close("batch read failed")
        raise
