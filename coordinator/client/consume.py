"""The loop of a worker: work on what the group hands out, store, commit, until all is done.

The same for a plain process and for a Spark task. It is exact across sudden deaths if
the `Work` is: results up to an offset are stored durably *before* that offset is
committed, and whoever takes a partition over resumes from the committed offset. What
was stored beyond it belongs to nobody and is done again.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from coordinator.assignors import TopicPartition
from coordinator.client.commit_metadata import commit_told, of_reader, parsed
from coordinator.client.errors import CommitFailed
from coordinator.client.events import Assigned, handed_out_or_lost
from coordinator.client.offsets import OffsetAndMetadata
from coordinator.client.sync import BlockingMember
from coordinator.sources.base import Source, partitions_of, snapshot_of

IDLE_POLL_S = 0.2
DONE_CHECK_S = 0.5


class Work(Protocol):
    """What is done with the rows of one worker's partitions."""

    def resume(self, partition: int, offset: int) -> None:
        """Begin a partition with the result that was stored at `offset`; 0: there is none yet."""
        ...

    def add(self, partition: int, batch: Any) -> None:
        """Take a batch in."""
        ...

    def store(self, partition: int, offset: int) -> None:
        """Make the partition's result up to `offset` durable. It is committed next."""
        ...


@dataclass(frozen=True, slots=True)
class Summary:
    """What one worker did, which is not what counts: that is in the stored results."""

    member_id: str
    rows: int
    commits: int
    rebalances: int


class Stalled(Exception):
    """Nobody in the group has committed anything for the whole progress timeout."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a partition goes on. `stored`: what the group has. `mark`: what was read so far."""

    offset: int
    stored: int
    mark: str


def consume(
    member: BlockingMember,
    source: Source,
    work: Work,
    *,
    rows_per_commit: int = 1_000,
    pause_s: float = 0.0,
    progress_timeout_s: float = 300.0,
    forever: bool = False,
    allow_empty: bool = False,
    clock: Callable[[], float] = time.monotonic,
) -> Summary:
    """Work as a started member of the group until every partition is committed to its end.

    A worker that has nothing left stays in the group, ready to take over from one that dies.

    The calling thread polls, works and commits. Between polls each batch that `work` has taken
    counts as progress, so that a member with many partitions, or with slow ones, is not taken for
    hanging. A single batch may take the member's `max_poll_interval_ms` (five minutes unless it
    was made with another): have the source give smaller ones, or allow for more, if it may take
    longer.

    Args:
        rows_per_commit: the most that a sudden death costs to do again, per partition.
        pause_s: rest after each commit, for sources that are to be spared.
        progress_timeout_s: without any commit of the group for so long, give up.
        forever: partitions grow: go on at their ends, and never return.
        allow_empty: a source without any partition is no mistake.
    Raises:
        Stalled: see above.
        NothingFound: the source has no partition.
        LogChanged: what was read is not there any more as it was: see `sources.base`.
        CoordinatorError: the member cannot go on.
    """
    if rows_per_commit < 1:
        raise ValueError(f"rows_per_commit is {rows_per_commit}; it is a whole number from 1 on")
    numbers = partitions_of(source, allow_empty=allow_empty)
    everything = [TopicPartition(source.topic, number) for number in numbers]
    begins = {p: source.begin_offset(p.partition) for p in everything}
    ends = {partition: source.end_offset(partition.partition) for partition in everything}
    places: dict[TopicPartition, _Place] = {}
    rows = commits = rebalances = 0
    last_seen: dict[TopicPartition, int] = {}
    progress_at = done_check_at = clock()
    while True:
        todo = [p for p, place in places.items() if place.offset < ends[p]]
        events = member.poll(timeout=0.0 if todo else IDLE_POLL_S)
        rebalances += sum(isinstance(event, Assigned) for event in events)
        mine = member.assignment
        kept = mine - handed_out_or_lost(events)
        places = {p: place for p, place in places.items() if p in kept}
        places |= _taken_over(member, source, work, [p for p in mine if p not in places], begins)
        if clock() >= done_check_at and forever:
            ends = _ends(source, everything, places)
            done_check_at = clock() + DONE_CHECK_S
        elif clock() >= done_check_at:
            seen = member.committed(everything)
            if all(max(seen[p], begins[p]) >= ends[p] for p in everything):
                return Summary(member.member_id, rows, commits, rebalances)
            if seen != last_seen:
                last_seen, progress_at = seen, clock()
            elif clock() - progress_at > progress_timeout_s:
                raise Stalled(f"no commit in the group for {progress_timeout_s:.0f} s")
            done_check_at = clock() + DONE_CHECK_S
        for partition in [p for p, place in places.items() if place.offset < ends[p]]:
            # Refused, the batch is not ours to count: begin the partition again when it is.
            place = places.pop(partition)
            after = min(place.offset + rows_per_commit, ends[partition])
            done, mark = _work_on(member, source, work, partition.partition, place, after)
            with contextlib.suppress(CommitFailed):
                commit_told(
                    member,
                    {partition: OffsetAndMetadata(after, of_reader(mark))},
                    expected={partition: place.stored},
                )
                places[partition] = _Place(after, after, mark)
                rows += done
                commits += 1
            if pause_s:
                time.sleep(pause_s)
            if partition not in places:
                break  # The group is changing: hear about it first.


def _taken_over(
    member: BlockingMember,
    source: Source,
    work: Work,
    new: list[TopicPartition],
    begins: Mapping[TopicPartition, int],
) -> dict[TopicPartition, _Place]:
    """Where partitions that have become ours go on, if what was read of them is still there.

    Raises:
        LogChanged: it is not.
    """
    places: dict[TopicPartition, _Place] = {}
    for partition, commit in member.committed_with_metadata(new).items() if new else ():
        snapshot = snapshot_of(source, partition.partition)
        mark = parsed(commit.metadata).mark
        snapshot.check(mark)
        offset = max(commit.offset, begins[partition])
        places[partition] = _Place(offset, commit.offset, mark or snapshot.mark(offset))
        work.resume(partition.partition, max(commit.offset, 0))
    return places


def _ends(
    source: Source, everything: list[TopicPartition], places: Mapping[TopicPartition, _Place]
) -> dict[TopicPartition, int]:
    """Where partitions end now.

    Raises:
        LogChanged: what was read of one is not there any more: it may end in front of it.
    """
    ends: dict[TopicPartition, int] = {}
    for partition in everything:
        snapshot = snapshot_of(source, partition.partition)
        if partition in places:
            snapshot.check(places[partition].mark)
        ends[partition] = snapshot.end()
    return ends


def _work_on(
    member: BlockingMember, source: Source, work: Work, partition: int, place: _Place, after: int
) -> tuple[int, str]:
    """Work on the rows up to an offset; how many there were, and the offset's mark.

    Raises:
        LogChanged: what was read before is not there any more.
    """
    snapshot = snapshot_of(source, partition)
    snapshot.check(place.mark)
    done = 0
    for batch in snapshot.read(place.offset, after):
        work.add(partition, batch)
        done += batch.num_rows
        member.alive()
    work.store(partition, after)
    return done, snapshot.mark(after)
