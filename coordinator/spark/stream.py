"""`spark.readStream.format("consumer_group")`: a streaming query as a member of a group.

The member lives in the query's source process, on the driver. Several queries, on one
cluster or many, divide the partitions of a group among them, with plain workers if there are
any. Partitions are reassigned between two batches; a batch that is under way keeps its own
until it is done or the hand-over deadline (the rebalance timeout) has passed.

Delivery is at least once: a partition that is reassigned in the middle of a batch, after
the deadline or because a session expired, is read from the committed offset again, at most one
batch of it. `exactly_once.py` makes it exactly once.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from coordinator.client.errors import Unavailable
from coordinator.sources.files import FileRange
from coordinator.spark.announced import Announcement
from coordinator.spark.logs import log_like_spark
from coordinator.spark.options import StreamOptions
from coordinator.spark.planner import BatchPlanner
from coordinator.spark.ranges import NO_BATCH, BatchRanges
from coordinator.spark.refusals import BadOption, with_plain_errors
from coordinator.spark.sinks.protocol import SinkRefused
from coordinator.spark.tasks import RangePartition, read, tasks
from coordinator.spark.worker_imports import ImportedInWorkers

LOGGER = logging.getLogger(__name__)
REST_LOOK_S = 0.5
"""Time between two looks at rows that a query with AvailableNow waits for."""


class ConsumerGroupSource(DataSource, metaclass=ImportedInWorkers):
    """Register it: `spark.dataSource.register(ConsumerGroupSource)`. Options: `StreamOptions`."""

    @classmethod
    def name(cls) -> str:
        return "consumer_group"

    def schema(self) -> StructType:
        with with_plain_errors():
            options = StreamOptions.parse(self.options)
            options.partitions()
            return from_arrow_schema(options.source.schema())

    def streamReader(self, schema: StructType) -> GroupStreamReader:
        log_like_spark()
        with with_plain_errors():
            options = StreamOptions.parse(self.options)
            options.check_stream()
            # Also without a schema of the user's: Spark has one type where Arrow has several.
            return GroupStreamReader(options.reading(to_arrow_schema(schema, timezone="UTC")))

    def reader(self, schema: StructType) -> NoReturn:
        with with_plain_errors():
            raise BadOption(
                "consumer_group is a source of streams: coordinator.spark.reading and "
                "read_assigned read what a group has not read, with Spark's own readers"
            )


class GroupStreamReader(
    DataSourceStreamReader, SupportsTriggerAvailableNow, metaclass=ImportedInWorkers
):
    """Stream reader. Spark makes two for a query and pickles them: it joins on first use.

    Args:
        stream: id under which the files of batches are announced, where Spark reads them itself.
    """

    def __init__(self, options: StreamOptions, stream: str = "") -> None:
        self._options = options.in_group()
        self._stream = stream
        self._planner: BatchPlanner | None = None  # Made in the source process.
        self._announcement: Announcement | None = None
        self._has_warned = False  # That batches cannot be announced.

    def __getstate__(self) -> dict[str, Any]:  # Any: attributes.
        return {**self.__dict__, "_planner": None, "_announcement": None}

    # --- What Spark asks, in the source process ---

    def initialOffset(self) -> dict[str, Any]:
        return NO_BATCH.to_offset()

    def getDefaultReadLimit(self) -> ReadLimit:
        rows = self._options.max_in_batch
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    @with_plain_errors()
    def prepareForTriggerAvailableNow(self) -> None:
        self._planning().read_until_now()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        with self._errors_with_address():
            planner = self._planning()
            planner.begin(may_store=not start["number"])
            # The batch that ends at `start` is done; of the last one Spark says so in no other way.
            planner.finish(BatchRanges.from_offset(start))
            most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
            while True:
                planned = planner.next_batch(start["number"] + 1, most)
                if planned is not None:
                    return self._announced(planned.to_offset())
                if planner.is_over():
                    # With a new checkpoint, Spark runs a batch of it.
                    return self._announced(start)
                time.sleep(REST_LOOK_S)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The query's share of the stream, for its progress: `progress.Share`."""
        share = None if self._planner is None else self._planner.share
        return None if share is None else share.to_offset()

    @with_plain_errors()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[RangePartition]:
        batch = BatchRanges.from_offset(self._announced(end))
        if start == end:
            return []
        ranges = {p: (r.begin, r.end) for p, r in batch.ranges.items()}
        return tasks(ranges, self._planning().snapshots(batch), self._options.min_partitions)

    def read(self, partition: InputPartition) -> Iterator[Any]:  # Any: Arrow is untyped.
        return read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        with self._errors_with_address():
            self._planning().finish(BatchRanges.from_offset(end))

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close("query stopped")
        if self._announcement is not None:
            self._announcement.withdraw()

    # --- Inside ---

    def _planning(self) -> BatchPlanner:
        if self._planner is None:
            self._planner = BatchPlanner(
                self._options, scans_files=bool(self._stream), warms_up=True
            )
            if threading.current_thread() is threading.main_thread():
                # Spark ends this process with SIGTERM, perhaps while it calls `stop`.
                signal.signal(signal.SIGTERM, self._terminated)
        return self._planner

    @contextlib.contextmanager
    def _errors_with_address(self) -> Iterator[None]:
        """Errors as `with_plain_errors`; that the coordinator does not answer, with its address."""
        address = self._options.coordinator
        with with_plain_errors():
            try:
                yield
            except Unavailable as error:
                if address in str(error):
                    raise
                raise Unavailable(f"coordinator {address}: {error}") from error

    def _announced(
        self, offset: dict[str, Any], files: Sequence[FileRange] | None = None
    ) -> dict[str, Any]:
        """Tell an exactly-once sink which batch comes next; returns the offset.

        A query may have another sink, so it goes on if it cannot; an exactly-once sink refuses.
        """
        try:
            if self._announcement is None:
                options = self._options
                self._announcement = Announcement(
                    options.coordinator, options.group, options.source.topic, self._stream
                )
            self._announcement.put(offset, files)
        except (OSError, SinkRefused) as error:
            if not self._has_warned:
                LOGGER.warning("a batch cannot be announced to an exactly-once sink: %s", error)
            self._has_warned = True
        return offset

    def _terminated(self, *_: object) -> None:
        with contextlib.suppress(RuntimeError):
            self.stop()
        sys.exit(0)


class FilesReader(GroupStreamReader):
    """Stream reader without rows, which announces the files of each batch."""

    @with_plain_errors()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[RangePartition]:
        batch = NO_BATCH if start == end else BatchRanges.from_offset(end)
        self._announced(batch.to_offset(), self._planning().files(batch))
        return []
