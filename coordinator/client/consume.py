"""The loop of a worker: process assigned partitions, store results, commit, until all is done.

A plain process and a Spark task use the same loop. It is exactly-once across crashes if the `Work`
stores results up to an offset durably *before* that offset is committed: whichever member takes a
partition over resumes from the committed offset, and results beyond it are made again.
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
    """Processing of the rows of one worker's partitions."""

    def resume(self, partition: int, offset: int) -> None:
        """Begin a partition with the result stored at `offset`; 0: there is none yet."""
        ...

    def add(self, partition: int, batch: Any) -> None:
        """Process a batch of rows."""
        ...

    def store(self, partition: int, offset: int) -> None:
        """Make the partition's result up to `offset` durable. The offset is committed next."""
        ...


@dataclass(frozen=True, slots=True)
class Summary:
    """Counters of one worker's run, for reports; results are in the store of its `Work`."""

    member_id: str
    rows: int
    commits: int
    rebalances: int


class Stalled(Exception):
    """No member of the group has committed anything for the whole progress timeout."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Position in a partition. `stored`: the committed offset. `mark`: of the rows before."""

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

    The calling thread polls, works and commits. Each batch that `work` has processed counts as
    progress, so a member with many or slow partitions does not exceed `max_poll_interval_ms`
    (default: five minutes). A single batch must not take longer than that: have the source give
    smaller batches, or raise the limit.

    Args:
        rows_per_commit: rows of each partition that are processed again, at most, after a crash.
        pause_s: pause after each commit, to limit the load on the source.
        progress_timeout_s: give up after so long without any commit of the group.
        forever: partitions grow: go on at their ends, and never return.
        allow_empty: accept a source without any partition.
    Raises:
        Stalled: no member has committed for `progress_timeout_s`.
        NothingFound: the source has no partition.
        LogChanged: rows that were read have changed or are gone: see `sources.base`.
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
            # If the commit is refused, the batch does not count: the next owner begins it again.
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
                break  # The group rebalances: poll first.


def _taken_over(
    member: BlockingMember,
    source: Source,
    work: Work,
    new: list[TopicPartition],
    begins: Mapping[TopicPartition, int],
) -> dict[TopicPartition, _Place]:
    """Positions of newly assigned partitions, after a check that their rows are unchanged.

    Raises:
        LogChanged: rows before a committed offset have changed or are gone.
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
    """Current end offsets of partitions.

    Raises:
        LogChanged: rows that were read of one have changed or are gone, so its end may be lower.
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
    """Process the rows up to an offset; returns their number and the offset's mark.

    Raises:
        LogChanged: rows that were read before have changed or are gone.
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
