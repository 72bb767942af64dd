"""`spark.readStream.format("consumer_group")`: a streaming query as a member of a group.

The member lives in the query's source process, on the driver. Several queries, on one
cluster or many, divide the partitions of a group among them, with plain workers if there are
any. Between two batches partitions come and go; a batch that is under way keeps its own
until it is done or the hand-over deadline (the rebalance timeout) is over.

Delivery is at least once: a partition that changes hands in the middle of a batch, after
the deadline or because a session ended, is read from the stored offset again, at most one
batch of it. `exactly_once.py` makes it exactly once.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
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

from coordinator.assignors import TopicPartition
from coordinator.client.errors import CommitFailed, OffsetMismatch, StaleMember
from coordinator.client.events import Assigned, handed_out_or_lost
from coordinator.client.holdings import Holding
from coordinator.client.sync import BlockingMember
from coordinator.sources import Source
from coordinator.spark.options import StreamOptions
from coordinator.spark.ranges import (
    MANIFESTS,
    NO_BATCH,
    NOTHING_STORED,
    BatchRanges,
    Range,
    plan,
)

LOGGER = logging.getLogger(__name__)
JOIN_PATIENCE_S = 120.0
"""How long a batch waits for the group."""
LOOK_S = 0.05


class ConsumerGroupSource(DataSource):
    """Register it: `spark.dataSource.register(ConsumerGroupSource)`. Options: `StreamOptions`."""

    @classmethod
    def name(cls) -> str:
        return "consumer_group"

    def schema(self) -> StructType:
        return from_arrow_schema(StreamOptions.parse(self.options).source.schema())

    def streamReader(self, schema: StructType) -> GroupStreamReader:
        return GroupStreamReader(self._options(schema))

    def reader(self, schema: StructType) -> GroupReader:
        return GroupReader(self._options(schema))

    def _options(self, schema: StructType) -> StreamOptions:
        options = StreamOptions.parse(self.options)
        # Also without a schema of the user's: Spark has one type where Arrow has several.
        return replace(
            options, source=options.source.with_schema(to_arrow_schema(schema, timezone="UTC"))
        )


class RangePartition(InputPartition):
    """What one task reads."""

    def __init__(self, partition: int, begin: int, end: int) -> None:
        super().__init__((partition, begin, end))
        self.partition, self.begin, self.end = partition, begin, end


class GroupReader(DataSourceReader):
    """Batch: everything after the group's stored offsets, by somebody who only looks on."""

    def __init__(self, options: StreamOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[RangePartition]:
        options, source = self._options, self._options.source
        stored = options.stored_offsets()
        begins = {p: options.position(p, stored).begin for p in source.partitions()}
        return [RangePartition(p, b, source.end_offset(p)) for p, b in begins.items()]

    def read(self, partition: InputPartition) -> Iterator[Any]:  # Any: Arrow is untyped.
        return _read(self._options.source, partition)


class GroupStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Made twice for a query, and pickled into every task: it joins when it is first asked."""

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._member: BlockingMember | None = None
        self._positions: dict[int, Range] = {}
        # The number of the batch that was planned last, and what it was planned for.
        self._planned: tuple[int, dict[TopicPartition, Holding]] = (0, {})
        self._finished = 0
        self._knows_its_own = False
        self._until: dict[int, int] | None = None  # With AvailableNow: read no further.

    def __getstate__(self) -> dict[str, Any]:  # Any: whatever a task needs of it.
        return {**self.__dict__, "_member": None, "_planned": (0, {})}

    # --- What Spark asks, in the source process ---

    def initialOffset(self) -> dict[str, Any]:
        return NO_BATCH.to_offset()

    def getDefaultReadLimit(self) -> ReadLimit:
        rows = self._options.max_rows_per_batch
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def prepareForTriggerAvailableNow(self) -> None:
        source = self._options.source
        self._until = {p: source.end_offset(p) for p in source.partitions()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        # The batch that ends at `start` is done; the last one is never told otherwise.
        self._finish(start)
        held = self._held()
        owned = sorted(p.partition for p in held)
        source = self._options.source
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        ends = {p: self._until[p] if self._until else source.end_offset(p) for p in owned}
        ranges = plan({p: self._positions[p] for p in owned}, ends, most)
        if not ranges:
            return start
        number, keys = start["number"] + 1, map(self._options.key, ranges)
        self._planned = number, {p: held[p] for p in keys}
        return BatchRanges(number, ranges).to_offset()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[RangePartition]:
        if start == end:
            return []
        ranges = BatchRanges.from_offset(end).ranges
        return [RangePartition(p, r.begin, r.end) for p, r in ranges.items()]

    def read(self, partition: InputPartition) -> Iterator[Any]:  # Any: Arrow is untyped.
        return _read(self._options.source, partition)

    def commit(self, end: dict[str, Any]) -> None:
        self._finish(end)

    def stop(self) -> None:
        member, self._member = self._member, None
        self._knows_its_own = False
        if member is not None:
            member.close("query stopped")

    # --- Inside ---

    def _finish(self, offset: dict[str, Any]) -> None:
        """Store how far a batch has come, unless somebody else has been there.

        All of it or nothing: an exactly-once sink that was refused for one partition has dropped
        the rows of all of them, which are then read again. Where the sink is a plain one, the
        rows of the others are there, and are stored.
        """
        batch = BatchRanges.from_offset(offset)
        if batch.number <= self._finished or not batch.ranges:
            return
        member, held = self._planned_for(batch)
        key = self._options.key
        ends = {key(p): r.end for p, r in batch.ranges.items()}
        expected = {key(p): r.stored for p, r in batch.ranges.items()}
        try:
            member.commit(ends, expected=expected, atomic=True, holdings=held.values())
        except OffsetMismatch as error:
            if all(error.found.get(p) == end for p, end in ends.items()):
                self._go_on_behind(batch)  # An exactly-once sink has stored it before us.
            else:
                self._positions.clear()
                self._finish_what_is_left(member, batch, error.found, held)
        except StaleMember as error:
            LOGGER.warning("batch %d outlived its partitions: %s", batch.number, error)
            self._positions.clear()
            self._finish_what_is_left(member, batch, member.committed(ends), held)
        except CommitFailed as error:
            LOGGER.warning("batch %d is not stored, and is read again: %s", batch.number, error)
            self._positions.clear()
        else:
            self._go_on_behind(batch)
        self._finished = batch.number

    def _planned_for(
        self, batch: BatchRanges
    ) -> tuple[BlockingMember, Mapping[TopicPartition, Holding]]:
        """The member, and the holdings that a batch counts for.

        The member is not polled before its batch is stored, for that would give back what is
        being revoked. After a restart the batch counts for what the member has been given now.
        """
        number, held = self._planned
        if self._member is not None and number == batch.number:
            return self._member, held
        return self._joined(), self._held()

    def _go_on_behind(self, batch: BatchRanges) -> None:
        for partition, r in batch.ranges.items():
            self._positions[partition] = Range(r.end, r.end, r.end)

    def _finish_what_is_left(
        self,
        member: BlockingMember,
        batch: BatchRanges,
        found: Mapping[TopicPartition, int],
        held: Mapping[TopicPartition, Holding],
    ) -> None:
        """Somebody else has done some of the batch's partitions, or has them now."""
        by_others = {p: o for p, o in found.items() if o != batch.ranges[p.partition].stored}
        if by_others:
            LOGGER.warning("batch %d was done elsewhere too: %s", batch.number, by_others)
        if member.committed([MANIFESTS])[MANIFESTS] != NOTHING_STORED:
            return
        mine = {p: holding for p, holding in held.items() if member.holds(holding)}
        left = [p for p in found if p not in by_others and p in mine]
        if not left:
            return
        ends = {p: batch.ranges[p.partition].end for p in left}
        expected = {p: batch.ranges[p.partition].stored for p in left}
        try:
            member.commit(ends, expected=expected, holdings=mine.values())
        except CommitFailed as error:
            LOGGER.warning("batch %d is not stored, and is read again: %s", batch.number, error)

    def _held(self) -> dict[TopicPartition, Holding]:
        """The partitions this query has now, each with its position."""
        member = self._joined()
        held = {p: member.holding(p) for p in member.assignment}
        owned = {p.partition for p in held}
        self._positions = {p: r for p, r in self._positions.items() if p in owned}
        new = [p for p in held if p.partition not in self._positions]
        if new:
            stored = {p.partition: offset for p, offset in member.committed(new).items()}
            for p in new:
                self._positions[p.partition] = self._options.position(p.partition, stored)
        return held

    def _joined(self) -> BlockingMember:
        """The member, which has its place in the group.

        Raises:
            TimeoutError: the group has not come to rest in two minutes.
        """
        if self._member is None:
            self._member = self._join()
        member = self._member
        until = time.monotonic() + JOIN_PATIENCE_S
        while True:
            # Nothing is under way: what is to be given up is given up here.
            while events := member.poll(timeout=0.0):
                self._knows_its_own |= any(isinstance(event, Assigned) for event in events)
                for partition in handed_out_or_lost(events):
                    self._positions.pop(partition.partition, None)
            if member.generation >= 0 and self._knows_its_own:
                return member
            if time.monotonic() > until:
                raise TimeoutError(f"no assignment from the group for {JOIN_PATIENCE_S:.0f} s")
            time.sleep(LOOK_S)

    def _join(self) -> BlockingMember:
        options = self._options
        member = BlockingMember(
            options.coordinator.split(","),
            options.group,
            {options.source.topic: len(options.source.partitions())},
            **options.member_settings(),
        )
        member.start()
        if threading.current_thread() is threading.main_thread():
            # Spark ends this process so, and may do it while it calls `stop`.
            signal.signal(signal.SIGTERM, self._terminated)
        return member

    def _terminated(self, *_: object) -> None:
        with contextlib.suppress(RuntimeError):
            self.stop()
        sys.exit(0)


def _read(source: Source, partition: InputPartition) -> Iterator[Any]:
    assert isinstance(partition, RangePartition)
    return iter(source.read(partition.partition, partition.begin, partition.end))
