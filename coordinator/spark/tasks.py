"""Tasks, each of which reads a range of a partition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import InputPartition

from coordinator.sources.base import Snapshot
from coordinator.spark.ranges import split
from coordinator.spark.refusals import with_plain_errors
from coordinator.spark.worker_imports import ImportedInWorkers


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
    with with_plain_errors():
        yield from partition.snapshot.read(partition.begin, partition.end)
