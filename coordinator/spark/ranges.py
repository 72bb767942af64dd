"""Ranges of a micro-batch: the rows of each partition that it covers.

Spark keeps these in its checkpoint and hands them back after a restart. Each is complete: it does
not continue the one before, since other members may have processed the partitions between two
batches. A batch begins at the offsets that the group has stored, not at those that Spark remembers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from coordinator.assignors import TopicPartition
from coordinator.client.offsets import OffsetAndMetadata
from coordinator.commit_metadata import of_reader

NOTHING_STORED = -1
MANIFESTS = TopicPartition("__manifests", 0)
"""Pseudo-partition whose offset counts the manifests of a group with exactly-once queries."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Rows `begin` to before `end`. `stored`: the committed offset when the range was made."""

    begin: int
    end: int
    stored: int


@dataclass(frozen=True, slots=True)
class BatchRanges:
    """One micro-batch; `number` counts those that had rows.

    id: of the commit that stores it, whichever process makes it. marks: of the rows before the
    ends, see `sources.base.Snapshot`. stored: fingerprints of the metadata committed with the
    offsets `OffsetRange.stored`.
    """

    number: int
    ranges: Mapping[int, OffsetRange]
    id: str = ""
    marks: Mapping[int, str] = field(default_factory=dict)
    stored: Mapping[int, str] = field(default_factory=dict)

    def to_offset(self) -> dict[str, Any]:  # Any: JSON, as Spark's offsets are.
        """The batch as Spark's offset."""
        return {
            "number": self.number,
            "ranges": {
                str(partition): {"begin": r.begin, "end": r.end, "stored": r.stored}
                for partition, r in sorted(self.ranges.items())
            },
            "id": self.id,
            "marks": {str(partition): mark for partition, mark in sorted(self.marks.items())},
            "stored": {str(partition): value for partition, value in sorted(self.stored.items())},
        }

    def commits(self, topic: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Offsets to commit when the batch is done."""
        return {
            TopicPartition(topic, p): OffsetAndMetadata(r.end, self.metadata(p))
            for p, r in self.ranges.items()
        }

    def metadata(self, partition: int) -> str:
        """Metadata to commit with the offset at the end of a partition's range."""
        return of_reader(self.marks.get(partition, ""), self.id) if self.id else ""

    @classmethod
    def from_offset(cls, offset: Mapping[str, Any]) -> BatchRanges:
        """Decode an offset that `to_offset` made."""
        ranges = {int(partition): OffsetRange(**r) for partition, r in offset["ranges"].items()}
        return cls(
            offset["number"],
            ranges,
            offset["id"],
            {int(partition): mark for partition, mark in offset["marks"].items()},
            {int(partition): value for partition, value in offset["stored"].items()},
        )


NO_BATCH = BatchRanges(0, {})


@dataclass(frozen=True, slots=True)
class GroupBatch:
    """A micro-batch, and the group and topic whose offsets it moves. coordinator: an address."""

    coordinator: str
    group: str
    topic: str
    batch: BatchRanges


def plan(
    positions: Mapping[int, OffsetRange], ends: Mapping[int, int], most_rows: int | None
) -> dict[int, OffsetRange]:
    """Plan the next range of each partition that has rows.

    Args:
        positions: begin of each partition; their `end` is ignored.
        ends: current end of each partition.
        most_rows: limit over all partitions; those with few rows get all, others share the rest.
    """
    waiting = {p: ends[p] - r.begin for p, r in positions.items() if ends[p] > r.begin}
    left = sum(waiting.values()) if most_rows is None else most_rows
    planned: dict[int, OffsetRange] = {}
    for number, (partition, rows) in enumerate(sorted(waiting.items(), key=lambda x: (x[1], x[0]))):
        share = -(-left // (len(waiting) - number))  # Rounded up: one row is better than none.
        taken = min(rows, share, left)
        if taken > 0:
            start = positions[partition]
            planned[partition] = OffsetRange(start.begin, start.begin + taken, start.stored)
            left -= taken
    return planned


def rounded(
    ranges: Mapping[int, OffsetRange],
    most_rows: int,
    turn: int,
    round_end: Callable[[int, OffsetRange], int],
) -> dict[int, OffsetRange]:
    """Ranges that end where files may be cut, of as many partitions as `most_rows` is enough for.

    Args:
        ranges: see `plan`.
        turn: number of the batch. Partitions come first by turns, so that all are read where the
            parts of files are larger than a partition's share.
        round_end: the end of a partition's range, moved to where a file may be cut.
    """
    numbers = sorted(ranges)
    first = turn % max(len(numbers), 1)
    kept: dict[int, OffsetRange] = {}
    for partition in numbers[first:] + numbers[:first]:
        if most_rows <= 0:
            break
        r = ranges[partition]
        kept[partition] = replace(r, end=round_end(partition, r))
        most_rows -= kept[partition].end - r.begin
    return kept


def split(
    ranges: Mapping[int, tuple[int, int]],
    least_tasks: int | None,
    starts: Callable[[int], Sequence[int]],
) -> list[tuple[int, int, int]]:
    """Split ranges among tasks, by their sizes; each task has rows of one partition, in order.

    Args:
        ranges: begin and end of each partition, in the order of their tasks.
        least_tasks: there are so many if there are so many rows; None: one a partition.
        starts: offsets of a partition at which reading is cheap to begin.
    Returns:
        (partition, begin, end) of each task; an empty range is one task.
    """
    total = sum(end - begin for begin, end in ranges.values())
    tasks: list[tuple[int, int, int]] = []
    left, rows_left = least_tasks or 0, total
    for partition, (begin, end) in ranges.items():
        rows = end - begin
        parts = min(max(-(-left * rows // max(rows_left, 1)), 1), max(rows, 1))
        left, rows_left = left - parts, rows_left - rows
        edges = [begin + rows * i // parts for i in range(parts)] + [end]
        if parts > 1:
            edges = _moved(edges, starts(partition))
        tasks += [(partition, first, last) for first, last in pairwise(edges)]
    return tasks


def _moved(edges: Sequence[int], starts: Sequence[int]) -> list[int]:
    """The edges between parts, each at a start if one is nearer than a quarter of a part."""
    reach = (edges[-1] - edges[0]) // (4 * (len(edges) - 1))
    moved = []
    for edge in edges:
        at = bisect_left(starts, edge)
        near = min(starts[max(at - 1, 0) : at + 1], key=lambda s: abs(s - edge), default=edge)
        moved.append(
            near if abs(near - edge) < reach and edge not in (edges[0], edges[-1]) else edge
        )
    return moved
