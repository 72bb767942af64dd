"""The loop of a worker: work on what the group hands out, store, commit, until all is done.

The same for a plain process and for a Spark task. It is exact across sudden deaths if
the `Work` is: results up to an offset are stored durably *before* that offset is
committed, and whoever takes a partition over resumes from the committed offset. What
was stored beyond it belongs to nobody and is done again.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from coordinator.assignors import TopicPartition
from coordinator.client.errors import CommitFailed
from coordinator.client.events import Assigned, handed_out_or_lost
from coordinator.client.sync import BlockingMember
from coordinator.sources.base import Source

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


def consume(
    member: BlockingMember,
    source: Source,
    work: Work,
    *,
    rows_per_commit: int = 1_000,
    pause_s: float = 0.0,
    progress_timeout_s: float = 300.0,
    forever: bool = False,
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
    Raises:
        Stalled: see above.
        CoordinatorError: the member cannot go on.
    """
    everything = [TopicPartition(source.topic, number) for number in source.partitions()]
    begins = {p: source.begin_offset(p.partition) for p in everything}
    ends = {partition: source.end_offset(partition.partition) for partition in everything}
    positions: dict[TopicPartition, int] = {}
    stored: dict[TopicPartition, int] = {}
    rows = commits = rebalances = 0
    last_seen: dict[TopicPartition, int] = {}
    progress_at = done_check_at = clock()
    while True:
        todo = [p for p, offset in positions.items() if offset < ends[p]]
        events = member.poll(timeout=0.0 if todo else IDLE_POLL_S)
        rebalances += sum(isinstance(event, Assigned) for event in events)
        mine = member.assignment
        kept = mine - handed_out_or_lost(events)
        positions = {p: offset for p, offset in positions.items() if p in kept}
        new = [p for p in mine if p not in positions]
        if new:
            for partition, offset in member.committed(new).items():
                stored[partition] = offset
                positions[partition] = max(offset, begins[partition])
                work.resume(partition.partition, max(offset, 0))
        if clock() >= done_check_at and forever:
            ends = {partition: source.end_offset(partition.partition) for partition in everything}
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
        for partition in [p for p, offset in positions.items() if offset < ends[p]]:
            before = positions[partition]
            after = min(before + rows_per_commit, ends[partition])
            done = 0
            for batch in source.read(partition.partition, before, after):
                work.add(partition.partition, batch)
                done += batch.num_rows
                member.alive()
            work.store(partition.partition, after)
            # Refused, the batch is not ours to count: begin the partition again when it is.
            del positions[partition]
            with contextlib.suppress(CommitFailed):
                member.commit({partition: after}, expected={partition: stored[partition]})
                positions[partition] = stored[partition] = after
                rows += done
                commits += 1
            if pause_s:
                time.sleep(pause_s)
            if partition not in positions:
                break  # The group is changing: hear about it first.
