"""`spark.readStream.format("consumer_group")`: a streaming query as a member of a group.

The member lives in the query's source process, on the driver. Several queries, on one
cluster or many, divide the partitions of a group among them, with plain workers if there are
any. Partitions are reassigned between two batches; a batch that is under way keeps its own
until it is done or the hand-over deadline (the rebalance timeout) has passed.

Delivery is at least once: a partition that is reassigned in the middle of a batch, after
the deadline or because a session expired, is read from the committed offset again, at most one
batch of it. `exactly_once.py` makes it exactly once.

Spark calls and decides when, so there is no loop here that a `Worker` could run: a batch spans all
partitions, ends when Spark says so, and is committed in one call (decision 0026).
"""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

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

from coordinator.assignors import TopicPartition
from coordinator.client.errors import CommitFailed, OffsetMismatch, StaleMember, Unavailable
from coordinator.client.member.blocking import BlockingMember
from coordinator.client.member.events import Warming, handed_out_or_lost
from coordinator.client.member.ledger import Holding
from coordinator.client.offsets import OffsetAndMetadata
from coordinator.client.worker.topics import TopicCounts
from coordinator.commit_metadata import fingerprint, new_id, parsed
from coordinator.sources.base import Snapshot, snapshots_of
from coordinator.sources.group.commits import commit_told
from coordinator.sources.group.measures import topics_of_source
from coordinator.spark.announced import Announcement
from coordinator.spark.logs import log_like_spark
from coordinator.spark.option_values import LATEST
from coordinator.spark.options import FAIL, WAIT, StreamOptions
from coordinator.spark.progress import Share
from coordinator.spark.ranges import (
    MANIFESTS,
    NO_BATCH,
    NOTHING_STORED,
    BatchRanges,
    Range,
    plan,
)
from coordinator.spark.reading import GroupReader, RangePartition, read, tasks
from coordinator.spark.refusals import BadOption, RestUnread, told_plainly
from coordinator.spark.sinks.protocol import SinkRefused
from coordinator.spark.worker_imports import ImportedInWorkers

LOGGER = logging.getLogger(__name__)
JOIN_PATIENCE_S = 120.0
"""Time that a batch waits for an assignment."""
LOOK_S = 0.05
REST_LOOK_S = 0.5
"""Time between two looks at rows that a query with AvailableNow waits for."""


class ConsumerGroupSource(DataSource, metaclass=ImportedInWorkers):
    """Register it: `spark.dataSource.register(ConsumerGroupSource)`. Options: `StreamOptions`."""

    @classmethod
    def name(cls) -> str:
        return "consumer_group"

    def schema(self) -> StructType:
        with told_plainly():
            options = StreamOptions.parse(self.options)
            options.partitions()
            return from_arrow_schema(options.schema())

    def streamReader(self, schema: StructType) -> GroupStreamReader:
        options = self._options(schema)
        if options.ending_offsets != LATEST:
            raise BadOption("endingOffsets is for batch reads: a stream has no end")
        return GroupStreamReader(options)

    def reader(self, schema: StructType) -> GroupReader:
        return GroupReader(self._options(schema))

    def _options(self, schema: StructType) -> StreamOptions:
        log_like_spark()
        # Also without a schema of the user's: Spark has one type where Arrow has several.
        with told_plainly():
            options = StreamOptions.parse(self.options)
            return options.reading(to_arrow_schema(schema, timezone="UTC"))


@dataclass(frozen=True, slots=True)
class _Planned:
    """The last batch that was planned in this process, its holdings and its files."""

    id: str | None = None
    held: Mapping[TopicPartition, Holding] = field(default_factory=dict)
    snapshots: Mapping[int, Snapshot] = field(default_factory=dict)


class GroupStreamReader(
    DataSourceStreamReader, SupportsTriggerAvailableNow, metaclass=ImportedInWorkers
):
    """Stream reader. Spark makes two for a query and pickles them: it joins on first use."""

    def __init__(self, options: StreamOptions) -> None:
        self._options = options.in_group()
        self._member: BlockingMember | None = None
        self._positions: dict[int, Range] = {}
        # Marks of the rows before the positions, and fingerprints of the metadata committed there.
        self._marks: dict[int, str] = {}
        self._stored: dict[int, str] = {}
        self._planned = _Planned()
        self._announcement: Announcement | None = None
        self._share: Share | None = None  # When a batch was last looked for.
        self._has_warned = False  # That batches cannot be announced.
        self._finished = 0
        self._until: dict[int, int] | None = None  # With AvailableNow: read no further.
        self._topics: TopicCounts = {}  # Empty: it has not begun.
        self._count: Callable[[], TopicCounts] | None = None
        self._counts_at = 0.0

    def __getstate__(self) -> dict[str, Any]:  # Any: attributes.
        return {
            **self.__dict__,
            **dict.fromkeys(("_member", "_announcement", "_count")),
            "_planned": _Planned(),
            "_topics": {},
        }

    # --- What Spark asks, in the source process ---

    def initialOffset(self) -> dict[str, Any]:
        return NO_BATCH.to_offset()

    def getDefaultReadLimit(self) -> ReadLimit:
        rows = self._options.max_rows_per_batch
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    @told_plainly()
    def prepareForTriggerAvailableNow(self) -> None:
        found = snapshots_of(self._options.source, self._options.partitions())
        self._until = {p: snapshot.end() for p, snapshot in found.items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        with self._told_with_address():
            if not self._topics:
                self._begin(may_store=not start["number"])
            # The batch that ends at `start` is done; of the last one Spark says so in no other way.
            self._finish(start)
            most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
            while True:
                planned = self._plan(start["number"] + 1, most)
                if planned is not None:
                    return self._announced(planned.to_offset())
                if self._is_over():
                    # With a new checkpoint, Spark runs a batch of it.
                    return self._announced(start)
                time.sleep(REST_LOOK_S)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The query's share of the stream, for its progress: `progress.Share`."""
        return None if self._share is None else self._share.to_offset()

    def _begin(self, *, may_store: bool) -> None:
        """Look at the partitions and at what the group has stored of them, once."""
        options = self._options
        numbers = options.partitions()
        self._options = options.begun(numbers, options.stored_commits(), may_store=may_store)
        self._topics = {options.source.topic: len(numbers)}
        self._count = topics_of_source(options.source, allow_empty=True, at_least=len(numbers))
        self._counts_at = time.monotonic() + options.topics_refresh_ms / 1000

    def _plan(self, number: int, most_rows: int | None) -> BatchRanges | None:
        """The next batch; None: there are no rows."""
        member = self._joined()
        held = _held(member)
        owned = sorted(p.partition for p in held)
        snapshots = snapshots_of(self._options.source, owned)
        self._begin_new(member, held, snapshots)
        for partition, snapshot in snapshots.items():
            self._check(partition, snapshot)
        if self._until is None:
            ends = {p: snapshots[p].end() for p in owned}
        else:
            ends = {p: self._until.get(p, 0) for p in owned}
        ranges = plan({p: self._positions[p] for p in owned}, ends, most_rows)
        self._share = Share(
            self._options.group,
            self._options.source.topic,
            member.member_id,
            self._topics[self._options.source.topic],
            {p: self._positions[p].begin for p in owned},
            {p: snapshots[p].end() for p in owned},
            {p: r.end for p, r in ranges.items()},
        )
        if not ranges:
            return None
        batch = BatchRanges(
            number,
            ranges,
            new_id(),
            {p: snapshots[p].mark(r.end) for p, r in ranges.items()},
            {p: self._stored[p] for p in ranges},
        )
        planned = {p: held[p] for p in map(self._options.key, ranges)}
        self._planned = _Planned(batch.id, planned, {p: snapshots[p] for p in ranges})
        return batch

    @told_plainly()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[RangePartition]:
        batch = BatchRanges.from_offset(self._announced(end))
        if start == end:
            return []
        if batch.id and batch.id == self._planned.id:
            snapshots = self._planned.snapshots
        else:
            # From a checkpoint: look here, where a refusal is the query's and not a task's.
            snapshots = snapshots_of(self._options.source, batch.ranges)
            for partition, snapshot in snapshots.items():
                self._options.check(snapshot, batch.marks.get(partition, ""))
        ranges = {p: (r.begin, r.end) for p, r in batch.ranges.items()}
        return tasks(ranges, snapshots, self._options.min_partitions)

    def read(self, partition: InputPartition) -> Iterator[Any]:  # Any: Arrow is untyped.
        return read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        with self._told_with_address():
            self._finish(end)

    def stop(self) -> None:
        member, self._member = self._member, None
        if member is not None:
            member.close("query stopped")
        if self._announcement is not None:
            self._announcement.withdraw()

    # --- Inside ---

    @contextlib.contextmanager
    def _told_with_address(self) -> Iterator[None]:
        """Errors as `told_plainly`; that the coordinator does not answer, with its address."""
        address = self._options.coordinator
        with told_plainly():
            try:
                yield
            except Unavailable as error:
                if address in str(error):
                    raise
                raise Unavailable(f"coordinator {address}: {error}") from error

    def _announced(self, offset: dict[str, Any]) -> dict[str, Any]:
        """Tell an exactly-once sink which batch comes next; returns the offset.

        A query may have another sink, so it goes on if it cannot; an exactly-once sink refuses.
        """
        try:
            if self._announcement is None:
                options = self._options
                self._announcement = Announcement(options.group, options.source.topic)
            self._announcement.put(offset)
        except (OSError, SinkRefused) as error:
            if not self._has_warned:
                LOGGER.warning("a batch cannot be announced to an exactly-once sink: %s", error)
            self._has_warned = True
        return offset

    def _finish(self, offset: dict[str, Any]) -> None:
        """Commit the end of a batch, unless another member has processed its partitions.

        Atomic at first: an exactly-once sink that was refused for one partition has dropped the
        rows of all of them, which are then read again. With a plain sink, the other partitions
        are committed afterwards.
        """
        batch = BatchRanges.from_offset(offset)
        if batch.number <= self._finished or not batch.ranges:
            return
        planned = self._planned_for(batch)
        if planned is None:
            self._finish_from_before(batch)
        else:
            self._store(batch, *planned, is_from_before=False)
        self._finished = batch.number

    def _planned_for(
        self, batch: BatchRanges
    ) -> tuple[BlockingMember, Mapping[TopicPartition, Holding]] | None:
        """The member and the holdings of a batch; None: it was planned before a restart.

        The member is not polled before its batch is committed, since that would give back revoked
        partitions. As long as a holding lasts the member has not left the group, so its offset
        cannot have been reset.
        """
        if self._member is not None and self._planned.id == batch.id:
            return self._member, self._planned.held
        return None

    def _finish_from_before(self, batch: BatchRanges) -> None:
        """Commit a batch from before a restart, for the partitions that the member has now.

        The next positions are looked up afterwards: rows that were read count, even if their files
        have changed since.
        """
        member = self._joined()
        begins = {self._options.key(p): r.stored for p, r in batch.ranges.items()}
        held = {holding.partition: holding for holding in member.planned_batch(begins)}
        found = self._found(member, batch)
        if all(found[self._options.key(p)].offset == NOTHING_STORED for p in batch.ranges):
            LOGGER.warning(
                "batch %d of the checkpoint is stored as the first of group %s; if the offsets of "
                "the group were deleted to read everything again, use a new checkpointLocation",
                batch.number,
                self._options.group,
            )
        if self._set_by_others(batch, found):
            self._positions.clear()
            self._finish_what_is_left(batch, member, held, found)
        else:
            self._store(batch, member, held, is_from_before=True)

    def _store(
        self,
        batch: BatchRanges,
        member: BlockingMember,
        held: Mapping[TopicPartition, Holding],
        *,
        is_from_before: bool,
    ) -> None:
        key = self._options.key
        try:
            commit_told(
                member,
                batch.commits(self._options.source.topic),
                expected={key(p): r.stored for p, r in batch.ranges.items()},
                atomic=True,
                holdings=held.values(),
            )
        except OffsetMismatch as error:
            if any(error.found.get(key(p)) != r.end for p, r in batch.ranges.items()):
                self._positions.clear()
                self._finish_what_is_left(batch, member, held, self._found(member, batch))
            elif is_from_before:
                self._positions.clear()  # Stored, by this query or another: look again.
            else:
                self._go_on_behind(batch)  # An exactly-once sink has stored it before us.
        except StaleMember as error:
            LOGGER.warning("batch %d outlived its partitions: %s", batch.number, error)
            self._positions.clear()
            self._finish_what_is_left(batch, member, held, self._found(member, batch))
        except CommitFailed as error:
            LOGGER.warning("batch %d is not stored, and is read again: %s", batch.number, error)
            self._positions.clear()
        else:
            self._go_on_behind(batch)

    def _go_on_behind(self, batch: BatchRanges) -> None:
        for partition, r in batch.ranges.items():
            self._positions[partition] = Range(r.end, r.end, r.end)
            self._marks[partition] = batch.marks.get(partition, "")
            self._stored[partition] = fingerprint(batch.metadata(partition))

    def _found(
        self, member: BlockingMember, batch: BatchRanges
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Committed offsets of the batch's partitions and of `MANIFESTS`."""
        keys = [self._options.key(p) for p in batch.ranges]
        return member.committed_with_metadata([*keys, MANIFESTS])

    def _set_by_others(
        self, batch: BatchRanges, found: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The batch's partitions whose offsets were set after it was planned.

        The offset alone is not enough: `reset-offsets` may go back to the begin of the batch, and
        committing its end would undo that.
        """
        since = {}
        for number, r in batch.ranges.items():
            partition = self._options.key(number)
            commit = found[partition]
            is_reset = bool(parsed(commit.metadata).reset)
            if commit.offset != r.stored:
                is_other = is_reset and commit.offset != r.end
            else:
                noted = batch.stored.get(number)
                is_other = (
                    is_reset  # A checkpoint from before this was noted.
                    if noted is None
                    else bool(commit.metadata) and fingerprint(commit.metadata) != noted
                )
            if is_other:
                since[partition] = commit
        return since

    def _told_of_reset(
        self, batch: BatchRanges, by_others: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> str:
        offsets = {str(p): c.offset for p, c in by_others.items()}
        when = max(parsed(c.metadata).reset for c in by_others.values())
        how = f"by reset-offsets at {when}" if when else "by somebody else"
        return (
            f"the offsets of group {self._options.group} were set {how}, after batch "
            f"{batch.number} of this query's checkpoint was planned: the query goes on at "
            f"{offsets}, and the batch does not count as read; rows that come again are written "
            "again, so clear results that must not hold them twice"
        )

    def _finish_what_is_left(
        self,
        batch: BatchRanges,
        member: BlockingMember,
        held: Mapping[TopicPartition, Holding],
        found: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> None:
        """Commit those partitions of a batch that are still held, and neither done nor reset."""
        commits = batch.commits(self._options.source.topic)
        expected = {p: batch.ranges[p.partition].stored for p in commits}
        set_since = self._set_by_others(batch, found)
        if set_since:
            LOGGER.warning("%s", self._told_of_reset(batch, set_since))
        moved = {p: found[p].offset for p in commits if found[p].offset != expected[p]}
        done = {p: offset for p, offset in moved.items() if p not in set_since}
        if done:
            LOGGER.warning("batch %d was done elsewhere too: %s", batch.number, done)
        if found[MANIFESTS].offset != NOTHING_STORED:
            return
        mine = {p: holding for p, holding in held.items() if member.holds(holding)}
        left = {p for p in commits if p in mine and p not in set_since and p not in moved}
        if not left:
            return
        try:
            commit_told(
                member,
                {p: commits[p] for p in left},
                expected={p: expected[p] for p in left},
                holdings=mine.values(),
            )
        except CommitFailed as error:
            LOGGER.warning("batch %d is not stored, and is read again: %s", batch.number, error)

    def _is_over(self) -> bool:
        """False if a query with AvailableNow is to wait for rows of partitions it does not own.

        Raises:
            RestUnread: it is to fail because of them.
        """
        if self._until is None:
            return True
        options, member = self._options, self._joined()
        owned = {p.partition for p in _held(member)}
        others = [p for p in self._until if p not in owned]
        if not others:
            return True
        stored = member.committed_with_metadata([options.key(p) for p in others])
        found = snapshots_of(options.source, others)
        rest = {}
        for p in others:
            at = options.position(p, stored[options.key(p)].offset, found[p]).begin
            if at < self._until[p]:
                rest[p] = self._until[p] - at
        if not rest or options.available_now_rest == WAIT:
            return not rest
        told = (
            f"{sum(rest.values())} rows that were there when the query began are not committed "
            f"yet: those of the partitions {', '.join(map(str, sorted(rest)))}, which other "
            f"members of group {options.group} own"
        )
        if options.available_now_rest == FAIL:
            raise RestUnread(told)
        LOGGER.warning("%s (availableNowRest=wait or fail waits for them or fails)", told)
        return True

    def _begin_new(
        self,
        member: BlockingMember,
        held: Mapping[TopicPartition, Holding],
        snapshots: Mapping[int, Snapshot],
    ) -> None:
        """Look up the positions of newly assigned partitions.

        Raises:
            LogChanged, DataLost: rows that the group has read of one have changed or are gone.
        """
        owned = {p.partition for p in held}
        self._positions = {p: r for p, r in self._positions.items() if p in owned}
        new = [p for p in held if p.partition not in self._positions]
        if not new:
            return
        # Sorted, so that the same one of several errors is raised each time.
        for key, commit in sorted(member.committed_with_metadata(new).items()):
            p = key.partition
            self._positions[p], self._marks[p] = self._options.begin(p, commit, snapshots[p])
            self._stored[p] = fingerprint(commit.metadata)

    def _check(self, partition: int, snapshot: Snapshot) -> None:
        """Compare an owned partition with what was read of it.

        Raises:
            LogChanged: rows that were read have changed or are gone.
        """
        if not self._options.check(snapshot, self._marks[partition]):
            stored = OffsetAndMetadata(self._positions[partition].stored)
            begun = self._options.begin(partition, stored, snapshot)
            self._positions[partition], self._marks[partition] = begun

    def _joined(self) -> BlockingMember:
        """The member, once it has an assignment.

        Raises:
            Unavailable: there was no assignment within two minutes.
        """
        if self._member is None:
            self._member = self._join()
        member = self._member
        self._count_again(member)
        until = time.monotonic() + JOIN_PATIENCE_S
        while True:
            # No batch is under way, so polling may give revoked partitions back.
            while events := member.poll(timeout=0.0):
                for event in events:
                    if isinstance(event, Warming):
                        member.ready(event.holdings)  # There is nothing to prepare.
                for partition in handed_out_or_lost(events):
                    self._positions.pop(partition.partition, None)
            # A member that lost all and joins again has no assignment yet, not an empty one.
            is_known = bool(member.assignment) or not member.is_between_assignments
            if member.is_assigned and is_known:
                return member
            if time.monotonic() > until:
                raise self._not_assigned(member)
            time.sleep(LOOK_S)

    def _not_assigned(self, member: BlockingMember) -> Unavailable:
        options, state = self._options, member.state
        return Unavailable(
            f"no assignment for {JOIN_PATIENCE_S:.0f} s from group {options.group}: the member is "
            f"{state}" + (f" ({state.last_error})" if state.last_error else "")
        )

    def _count_again(self, member: BlockingMember) -> None:
        """Have partitions that have appeared shared out, with a look at every interval.

        Batches are complete by themselves, so the next one may have other partitions.
        """
        now = time.monotonic()
        if self._count is not None and now >= self._counts_at:
            self._topics = self._count()
            self._counts_at = now + self._options.topics_refresh_ms / 1000
            member.subscribe(self._topics)

    def _join(self) -> BlockingMember:
        if not self._topics:
            self._begin(may_store=False)
        options = self._options
        addresses = options.coordinator.split(",")
        member = BlockingMember(
            addresses, options.group, self._topics, protocol=options.protocol,
            **options.member_settings(),
        )  # fmt: skip
        member.start()
        if threading.current_thread() is threading.main_thread():
            # Spark ends this process with SIGTERM, perhaps while it calls `stop`.
            signal.signal(signal.SIGTERM, self._terminated)
        return member

    def _terminated(self, *_: object) -> None:
        with contextlib.suppress(RuntimeError):
            self.stop()
        sys.exit(0)


def _held(member: BlockingMember) -> dict[TopicPartition, Holding]:
    """Holdings of the query's current partitions."""
    return {p: member.holding(p) for p in member.assignment}
