"""Plans of a member's next reads, and commits of what it has read.

For queries and batch reads alike: a batch spans all partitions of the member, begins at the offsets
that the group has stored, and is committed in one call. Whoever reads the rows is told ranges only.

Spark calls and decides when, so there is no loop here that a `Worker` could run (decision 0026).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from coordinator.assignors import TopicPartition
from coordinator.client.errors import CommitFailed, OffsetMismatch, StaleMember, Unavailable
from coordinator.client.member.blocking import BlockingMember
from coordinator.client.member.events import Warming, handed_out_or_lost
from coordinator.client.member.ledger import Holding
from coordinator.client.offsets import OffsetAndMetadata
from coordinator.client.worker.user_functions import TopicCounts
from coordinator.commit_metadata import fingerprint, new_id, parsed
from coordinator.sources.base import LogChanged, Snapshot, snapshots_of
from coordinator.sources.files import PARTS, FileLog, FileRange, FileSnapshot
from coordinator.sources.group.commits import commit_to_group
from coordinator.sources.group.measures import topics_of_source
from coordinator.sources.progress import reporting_progress_to
from coordinator.spark.options import FAIL, WAIT, StreamOptions
from coordinator.spark.progress import Share
from coordinator.spark.ranges import (
    MANIFESTS,
    NOTHING_STORED,
    BatchRanges,
    OffsetRange,
    plan,
    rounded,
)
from coordinator.spark.refusals import RowsLeftUnread

LOGGER = logging.getLogger(__name__)
JOIN_PATIENCE_S = 120.0
"""Time that a batch waits for an assignment."""
LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class _Planned:
    """The last batch that was planned in this process, its holdings and its files."""

    id: str | None = None
    held: Mapping[TopicPartition, Holding] = field(default_factory=dict)
    snapshots: Mapping[int, Snapshot] = field(default_factory=dict)


class BatchPlanner:
    """The member of a query or of a batch read, with the positions of its partitions.

    One thread at a time may use it. Every method may raise what the client raises.

    Args:
        scans_files: whoever reads the rows scans a file as a whole, so that batches cut few.
        warms_up: it is ready for partitions of others once a batch has run, and has one run for
            that: Spark's code is loaded then, and its processes are up.
    """

    def __init__(
        self, options: StreamOptions, *, scans_files: bool = False, warms_up: bool = False
    ) -> None:
        self.options = options
        self._is_warm = not warms_up
        self._warming: dict[TopicPartition, Holding] = {}
        self._scans_files = scans_files and isinstance(options.source, FileLog)
        self._has_exceeded = False
        self.share: Share | None = None
        """The share of the log that it owned when a batch was last looked for."""
        self.member: BlockingMember | None = None
        self._positions: dict[int, OffsetRange] = {}
        # Marks of the rows before the positions, and fingerprints of the metadata committed there.
        self._marks: dict[int, str] = {}
        self._stored: dict[int, str] = {}
        self._planned = _Planned()
        self._finished = 0
        self._until: dict[int, int] | None = None
        self._looked: Mapping[int, Snapshot] = {}  # By `read_until_now`, for the next batch.
        self._topics: TopicCounts = {}  # Empty: it has not begun.
        self._count: Callable[[], TopicCounts] | None = None
        self._counts_at = 0.0

    def begin(self, *, may_store: bool) -> None:
        """Look at the partitions and at what the group has stored of them, once.

        Args:
            may_store: nothing was read yet, so the begin of the group may be stored.
        """
        if self._topics:
            return
        options = self.options
        numbers = options.partitions()
        self.options = options.begun(numbers, options.stored_commits(), may_store=may_store)
        self._topics = {options.source.topic: len(numbers)}
        self._count = topics_of_source(options.source, allow_empty=True, at_least=len(numbers))
        self._counts_at = time.monotonic() + options.topics_refresh_ms / 1000

    def read_until_now(self) -> None:
        """Plan no rows that come later than this call, nor than endingOffsets."""
        snapshots = snapshots_of(self.options.source, self.options.partitions())
        self._until = {p: self.options.ending(p, snapshot) for p, snapshot in snapshots.items()}
        self._looked = snapshots

    def next_batch(self, number: int, most_rows: int | None) -> BatchRanges | None:
        """The next batch; None: there are no rows.

        Raises:
            LogChanged, DataLost: rows that the group has read have changed or are gone.
        """
        member = self._joined()
        held = _held(member)
        owned = sorted(p.partition for p in held)
        snapshots = self._snapshots(owned)
        if self._is_warm:
            self._say_ready(member)
        self._begin_new(member, held, snapshots)
        for partition, snapshot in snapshots.items():
            self._check(partition, snapshot)
        if self._until is None:
            ends = {p: snapshots[p].end() for p in owned}
        else:
            ends = {p: self._until.get(p, 0) for p in owned}
        ranges = plan({p: self._positions[p] for p in owned}, ends, most_rows)
        if self._scans_files and most_rows is not None:
            ranges = self._rounded(ranges, ends, most_rows, number, snapshots)
        self.share = Share(
            self.options.group,
            self.options.source.topic,
            member.member_id,
            self._topics[self.options.source.topic],
            {p: self._positions[p].begin for p in owned},
            {p: snapshots[p].end() for p in owned},
            {p: r.end for p, r in ranges.items()},
        )
        if not ranges:
            if not self._warming:
                return None
            snapshots = self._snapshots([p.partition for p in self._warming])
        batch = BatchRanges(
            number,
            ranges,
            new_id(),
            {p: snapshots[p].mark(r.end) for p, r in ranges.items()},
            {p: self._stored[p] for p in ranges},
        )
        planned = {p: held[p] for p in map(self.options.key, ranges)}
        self._planned = _Planned(batch.id, planned, {p: snapshots[p] for p in ranges or snapshots})
        return batch

    def files(self, batch: BatchRanges) -> list[FileRange]:
        """The files that hold the rows of a batch; none, if they are not in files.

        Of a batch without rows that is run for the sake of partitions to come it is a file of
        theirs, and no row of it: whoever reads it is warm then.

        Raises:
            LogChanged: a file is no longer the one that was listed, or see `snapshots`.
        """
        if batch.ranges:
            return _files_within(batch, self.snapshots(batch))
        for snapshot in self._planned.snapshots.values() if batch.id == self._planned.id else ():
            if isinstance(snapshot, FileSnapshot) and snapshot.begin() < snapshot.end():
                with suppress(LogChanged):  # That is for the batch with its rows to say.
                    (newest,) = snapshot.file_ranges(snapshot.end() - 1, snapshot.end())
                    return [newest._replace(last=newest.first)]
        return []

    def snapshots(self, batch: BatchRanges) -> Mapping[int, Snapshot]:
        """Snapshots of the partitions of a batch: those by which it was planned, if it was here.

        Raises:
            LogChanged: rows in front of a batch from before a restart have changed or are gone.
        """
        if not batch.ranges:
            return {}
        if batch.id and batch.id == self._planned.id:
            return self._planned.snapshots
        # From a checkpoint: look here, where a refusal is the query's and not a task's.
        snapshots = snapshots_of(self.options.source, batch.ranges)
        for partition, snapshot in snapshots.items():
            self.options.check(snapshot, batch.marks.get(partition, ""))
        return snapshots

    def finish(self, batch: BatchRanges) -> None:
        """Commit the end of a batch, unless another member has processed its partitions.

        Atomic at first: an exactly-once sink that was refused for one partition has dropped the
        rows of all of them, which are then read again. With a plain sink, the other partitions
        are committed afterwards.
        """
        if self._planned.id is not None and batch.id == self._planned.id:
            self._is_warm = True
        if batch.number <= self._finished or not batch.ranges:
            return
        planned = self._planned_for(batch)
        if planned is None:
            self._finish_from_before(batch)
        else:
            self._store(batch, *planned, is_from_before=False)
        self._finished = batch.number

    def is_over(self) -> bool:
        """False if a query with AvailableNow is to wait for rows of partitions it does not own.

        Raises:
            RowsLeftUnread: it is to fail because of them.
        """
        if self._until is None:
            return True
        options, member = self.options, self._joined()
        owned = {p.partition for p in _held(member)}
        others = [p for p in self._until if p not in owned]
        if not others:
            return True
        stored = member.committed_with_metadata([options.key(p) for p in others])
        snapshots = snapshots_of(options.source, others)
        rest = {}
        for p in others:
            at = options.position(p, stored[options.key(p)].offset, snapshots[p]).begin
            if at < self._until[p]:
                rest[p] = self._until[p] - at
        if not rest or options.available_now_rest == WAIT:
            return not rest
        reason = (
            f"{sum(rest.values())} rows that were there when the query began are not committed "
            f"yet: those of the partitions {', '.join(map(str, sorted(rest)))}, which other "
            f"members of group {options.group} own"
        )
        if options.available_now_rest == FAIL:
            raise RowsLeftUnread(reason)
        LOGGER.warning("%s (availableNowRest=wait or fail waits for them or fails)", reason)
        return True

    def commit(self, batch: BatchRanges) -> None:
        """Commit the end of the batch that was planned last; all of it, or nothing.

        Raises:
            LogChanged: a file was written over since it was planned, so nobody knows which of its
                rows were read.
            CoordinatorError: as `Member.commit`; its partitions are another member's now, or
                somebody else has set their offsets.
        """
        planned = self._planned_for(batch)
        if planned is None:
            raise StaleMember("the batch was not planned by this member")
        self._commit(batch, *planned)

    def close(self, reason: str) -> None:
        """Leave the group, if it was joined."""
        member, self.member = self.member, None
        if member is not None:
            member.close(reason)

    # --- Inside ---

    def _planned_for(
        self, batch: BatchRanges
    ) -> tuple[BlockingMember, Mapping[TopicPartition, Holding]] | None:
        """The member and the holdings of a batch; None: it was planned before a restart.

        The member is not polled before its batch is committed, since that would give back revoked
        partitions. As long as a holding lasts the member has not left the group, so its offset
        cannot have been reset.
        """
        if self.member is not None and self._planned.id == batch.id:
            return self.member, self._planned.held
        return None

    def _finish_from_before(self, batch: BatchRanges) -> None:
        """Commit a batch from before a restart, for the partitions that the member has now.

        The next positions are looked up afterwards: rows that were read count, even if their files
        have changed since.
        """
        member = self._joined()
        begins = {self.options.key(p): r.stored for p, r in batch.ranges.items()}
        held = {holding.partition: holding for holding in member.planned_batch(begins)}
        unfinished = self._found(member, batch)
        if all(unfinished[self.options.key(p)].offset == NOTHING_STORED for p in batch.ranges):
            LOGGER.warning(
                "batch %d of the checkpoint is stored as the first of group %s; if the offsets of "
                "the group were deleted to read everything again, use a new checkpointLocation",
                batch.number,
                self.options.group,
            )
        if self._set_by_others(batch, unfinished):
            self._positions.clear()
            self._finish_what_is_left(batch, member, held, unfinished)
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
        key = self.options.key
        try:
            self._commit(batch, member, held)
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

    def _commit(
        self, batch: BatchRanges, member: BlockingMember, held: Mapping[TopicPartition, Holding]
    ) -> None:
        if self._scans_files and batch.id == self._planned.id:
            _files_within(batch, self._planned.snapshots)  # They were read after they were planned.
        commit_to_group(
            member,
            batch.commits(self.options.source.topic),
            expected={self.options.key(p): r.stored for p, r in batch.ranges.items()},
            atomic=True,
            holdings=held.values(),
        )

    def _go_on_behind(self, batch: BatchRanges) -> None:
        for partition, r in batch.ranges.items():
            self._positions[partition] = OffsetRange(r.end, r.end, r.end)
            self._marks[partition] = batch.marks.get(partition, "")
            self._stored[partition] = fingerprint(batch.metadata(partition))

    def _found(
        self, member: BlockingMember, batch: BatchRanges
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Committed offsets of the batch's partitions and of `MANIFESTS`."""
        keys = [self.options.key(p) for p in batch.ranges]
        return member.committed_with_metadata([*keys, MANIFESTS])

    def _set_by_others(
        self, batch: BatchRanges, unfinished: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The batch's partitions whose offsets were set after it was planned.

        The offset alone is not enough: `reset-offsets` may go back to the begin of the batch, and
        committing its end would undo that.
        """
        since = {}
        for number, r in batch.ranges.items():
            partition = self.options.key(number)
            commit = unfinished[partition]
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

    def _offsets_were_reset(
        self, batch: BatchRanges, by_others: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> str:
        offsets = {str(p): c.offset for p, c in by_others.items()}
        when = max(parsed(c.metadata).reset for c in by_others.values())
        how = f"by reset-offsets at {when}" if when else "by somebody else"
        return (
            f"the offsets of group {self.options.group} were set {how}, after batch "
            f"{batch.number} of this query's checkpoint was planned: the query goes on at "
            f"{offsets}, and the batch does not count as read; rows that come again are written "
            "again, so clear results that must not hold them twice"
        )

    def _finish_what_is_left(
        self,
        batch: BatchRanges,
        member: BlockingMember,
        held: Mapping[TopicPartition, Holding],
        unfinished: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> None:
        """Commit those partitions of a batch that are still held, and neither done nor reset."""
        commits = batch.commits(self.options.source.topic)
        expected = {p: batch.ranges[p.partition].stored for p in commits}
        set_since = self._set_by_others(batch, unfinished)
        if set_since:
            LOGGER.warning("%s", self._offsets_were_reset(batch, set_since))
        moved = {p: unfinished[p].offset for p in commits if unfinished[p].offset != expected[p]}
        done = {p: offset for p, offset in moved.items() if p not in set_since}
        if done:
            LOGGER.warning("batch %d was done elsewhere too: %s", batch.number, done)
        if unfinished[MANIFESTS].offset != NOTHING_STORED:
            return
        mine = {p: holding for p, holding in held.items() if member.holds(holding)}
        left = {p for p in commits if p in mine and p not in set_since and p not in moved}
        if not left:
            return
        try:
            commit_to_group(
                member,
                {p: commits[p] for p in left},
                expected={p: expected[p] for p in left},
                holdings=mine.values(),
            )
        except CommitFailed as error:
            LOGGER.warning("batch %d is not stored, and is read again: %s", batch.number, error)

    def _rounded(
        self,
        ranges: Mapping[int, OffsetRange],
        ends: Mapping[int, int],
        most_rows: int,
        number: int,
        snapshots: Mapping[int, Snapshot],
    ) -> dict[int, OffsetRange]:
        def round_end(partition: int, r: OffsetRange) -> int:
            snapshot = snapshots[partition]
            assert isinstance(snapshot, FileSnapshot)
            return min(snapshot.cut_near(r.begin, r.end), ends[partition])

        rounded_ranges = rounded(ranges, most_rows, number, round_end)
        rows = sum(r.end - r.begin for r in rounded_ranges.values())
        if rows > 1.1 * most_rows and not self._has_exceeded:
            self._has_exceeded = True
            LOGGER.warning(
                "batch %d has %d rows, more than maxRowsPerBatch=%d: Spark scans a file as a "
                "whole, so a file is cut into %d parts at most; write smaller files for smaller "
                "batches",
                number,
                rows,
                most_rows,
                PARTS,
            )
        return rounded_ranges

    def _say_ready(self, member: BlockingMember) -> None:
        """Tell that the next batch may have the partitions that are prepared, after a look."""
        warming, self._warming = self._warming, {}
        if warming:
            self._snapshots([p.partition for p in warming])
            member.ready(warming.values())

    def _snapshots(self, owned: Sequence[int]) -> Mapping[int, Snapshot]:
        looked, self._looked = self._looked, {}
        if looked.keys() >= set(owned):
            return {p: looked[p] for p in owned}
        assert self.member is not None
        with reporting_progress_to(self.member.alive):
            return snapshots_of(self.options.source, owned)

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
            self._positions[p], self._marks[p] = self.options.begin(p, commit, snapshots[p])
            self._stored[p] = fingerprint(commit.metadata)

    def _check(self, partition: int, snapshot: Snapshot) -> None:
        """Compare an owned partition with what was read of it.

        Raises:
            LogChanged: rows that were read have changed or are gone.
        """
        if not self.options.check(snapshot, self._marks[partition]):
            stored = OffsetAndMetadata(self._positions[partition].stored)
            begun = self.options.begin(partition, stored, snapshot)
            self._positions[partition], self._marks[partition] = begun

    def _joined(self) -> BlockingMember:
        """The member, once it has an assignment.

        Raises:
            Unavailable: there was no assignment within two minutes.
        """
        if self.member is None:
            self.member = self._join()
        member = self.member
        self._count_again(member)
        until = time.monotonic() + JOIN_PATIENCE_S
        while True:
            # No batch is under way, so polling may give revoked partitions back.
            while events := member.poll(timeout=0.0):
                for event in events:
                    if isinstance(event, Warming):
                        self._warming |= {holding.partition: holding for holding in event.holdings}
                for partition in handed_out_or_lost(events):
                    self._warming.pop(partition, None)
                    self._positions.pop(partition.partition, None)
            # A member that lost all and joins again has no assignment yet, not an empty one.
            is_known = bool(member.assignment) or not member.is_between_assignments
            if member.is_assigned and is_known:
                return member
            if time.monotonic() > until:
                raise self._not_assigned(member)
            time.sleep(LOOK_S)

    def _not_assigned(self, member: BlockingMember) -> Unavailable:
        options, state = self.options, member.state
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
            self._counts_at = now + self.options.topics_refresh_ms / 1000
            member.subscribe(self._topics)

    def _join(self) -> BlockingMember:
        self.begin(may_store=False)
        options = self.options
        addresses = options.coordinator.split(",")
        member = BlockingMember(
            addresses, options.group, self._topics, protocol=options.protocol,
            **options.member_settings(),
        )  # fmt: skip
        member.start()
        return member


def _files_within(batch: BatchRanges, snapshots: Mapping[int, Snapshot]) -> list[FileRange]:
    """The files that hold the rows of a batch; none, if they are not in files.

    Raises:
        LogChanged: a file is no longer the one that was listed.
    """
    files: list[FileRange] = []
    for partition, r in batch.ranges.items():
        snapshot = snapshots[partition]
        if isinstance(snapshot, FileSnapshot):
            files += snapshot.file_ranges(r.begin, r.end)
    return files


def _held(member: BlockingMember) -> dict[TopicPartition, Holding]:
    """Holdings of the query's current partitions."""
    return {p: member.holding(p) for p in member.assignment}
