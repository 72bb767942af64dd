"""Begin and end offsets of the topics' logs, from a CSV file: the coordinator does not have them.

The columns are topic, partition, offset and, for `--to-datetime`, timestamp_ms. A partition's first
row is the beginning of its log, its last row the end; rows between them give the time from which
on offsets were written.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from coordinator.assignors import TopicPartition


@dataclass(frozen=True, slots=True)
class LogOffsets:
    """(offset, epoch milliseconds or None) of each partition, in ascending order."""

    rows: dict[TopicPartition, list[tuple[int, int | None]]] = field(default_factory=dict)

    def earliest(self, partition: TopicPartition) -> int:
        """The first offset of the log; 0 if it is unknown."""
        known = self.rows.get(partition)
        return known[0][0] if known else 0

    def latest(self, partition: TopicPartition) -> int:
        """The offset after the last row of the log.

        Raises:
            LookupError: the partition is not in the file.
        """
        known = self.rows.get(partition)
        if not known:
            raise LookupError(
                f"the end of {partition.topic}-{partition.partition} is unknown: use --log-offsets"
            )
        return known[-1][0]

    def at(self, partition: TopicPartition, epoch_ms: int) -> int:
        """The first offset written at that time or later; the end if there is none.

        Raises:
            LookupError: the partition is not in the file, or has no times.
        """
        latest = self.latest(partition)
        times = [(stamp, offset) for offset, stamp in self.rows[partition] if stamp is not None]
        if not times:
            raise LookupError(f"{partition.topic}-{partition.partition} has no timestamps")
        return next((offset for stamp, offset in times if stamp >= epoch_ms), latest)


def read(lines: Iterable[str]) -> LogOffsets:
    """Parse the CSV.

    Raises:
        ValueError: a column is missing, or a value is not a number.
    """
    found: dict[TopicPartition, list[tuple[int, int | None]]] = {}
    for row in csv.DictReader(lines):
        try:
            key = TopicPartition(row["topic"], int(row["partition"]))
            stamp = row.get("timestamp_ms")
            entry = (int(row["offset"]), int(stamp) if stamp else None)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{row}: the columns are topic,partition,offset,timestamp_ms"
            ) from error
        found.setdefault(key, []).append(entry)
    return LogOffsets({key: sorted(rows, key=lambda row: row[0]) for key, rows in found.items()})


def read_file(path: Path | None) -> LogOffsets:
    """The offsets in a file; empty without a file.

    Raises:
        OSError, ValueError: it cannot be read.
    """
    if path is None:
        return LogOffsets()
    with path.open(newline="") as lines:
        return read(lines)
