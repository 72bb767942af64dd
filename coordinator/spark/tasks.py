"""Tasks, each of which reads a range of a partition, and the batch reader that plans them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from coordinator.client.offsets import OffsetAndMetadata
from coordinator.sources.base import Snapshot, snapshots_of
from coordinator.spark.options import StreamOptions
from coordinator.spark.ranges import NOTHING_STORED, split
from coordinator.spark.refusals import told_plainly
from coordinator.spark.worker_imports import ImportedInWorkers

NOTHING = OffsetAndMetadata(NOTHING_STORED)


class RangePartition(InputPartition, metaclass=ImportedInWorkers):
    """Rows that one task reads, and the files that hold them, so that it need not look for them."""

    def __init__(self, partition: int, begin: int, end: int, snapshot: Snapshot) -> None:
        super().__init__((partition, begin, end))
        self.partition, self.begin, self.end = partition, begin, end
        self.snapshot = snapshot.cut(begin, end)


def tasks(
    ranges: Mapping[int, tuple[int, int]],
    snapshots: Mapping[int, Snapshot],
    least_tasks: int | None,
) -> list[RangePartition]:
    """Tasks for the begin and end of each partition, which may be split; see `split`."""

    def starts(partition: int) -> Sequence[int]:
        return snapshots[partition].cut(*ranges[partition]).starts()

    return [
        RangePartition(partition, begin, end, snapshots[partition])
        for partition, begin, end in split(ranges, least_tasks, starts)
    ]


def read(partition: InputPartition) -> Iterator[Any]:  # Any: Arrow is untyped.
    """The rows of a task. Refusals are told plainly while they are read, too."""
    assert isinstance(partition, RangePartition)
    with told_plainly():
        yield from partition.snapshot.read(partition.begin, partition.end)


class GroupReader(DataSourceReader, metaclass=ImportedInWorkers):
    """Batch reader of all rows after the committed offsets; it does not join the group.

    It takes no filters of Spark's: Spark 4.2 and 4.3 keep what a reader has made of them for every
    other scan of the DataFrame, which then lacks rows (decision 0009).
    """

    def __init__(self, options: StreamOptions) -> None:
        self._options = options.in_group()

    def partitions(self) -> list[RangePartition]:
        ranges = {}
        with told_plainly():
            numbers = self._options.partitions()
            stored = self._options.stored_commits()
            options = self._options.begun(numbers, stored, may_store=False)
            snapshots = snapshots_of(options.source, numbers)
            for number, snapshot in snapshots.items():
                position, _ = options.begin(number, stored.get(number, NOTHING), snapshot)
                ranges[number] = (
                    position.begin,
                    max(position.begin, options.ending(number, snapshot)),
                )
            return tasks(ranges, snapshots, options.min_partitions)

    def read(self, partition: InputPartition) -> Iterator[Any]:  # Any: Arrow is untyped.
        return read(partition)
