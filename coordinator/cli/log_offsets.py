"""Begin and end offsets of the topics' logs, from a CSV file: the coordinator does not have them.

The columns are topic, partition, offset and, to find offsets by time, timestamp_ms. A partition's
first row is the beginning of its log, its last row the end; rows between them give the time from
which on offsets were written.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from coordinator.assignors import TopicPartition
from coordinator.cli.partitions import PARTITION_MAX

OFFSET_MAX = 2**63 - 1
COLUMNS = "topic,partition,offset,timestamp_ms"


@dataclass(frozen=True, slots=True)
class LogOffsets:
    """(offset, epoch milliseconds or None) of each partition, in ascending order."""

    rows: dict[TopicPartition, list[tuple[int, int | None]]] = field(default_factory=dict)

    def earliest(self, partition: TopicPartition) -> int:
        """The first offset of the log.

        Raises:
            LookupError: the partition is not in the file.
        """
        return self._known(partition, "start")[0][0]

    def latest(self, partition: TopicPartition) -> int:
        """The offset after the last row of the log.

        Raises:
            LookupError: the partition is not in the file.
        """
        return self._known(partition, "end")[-1][0]

    def at(self, partition: TopicPartition, epoch_ms: int) -> int:
        """The first offset written at that time or later; the end if there is none.

        Raises:
            LookupError: the partition is not in the file, or has no times.
        """
        rows = self._known(partition, "end")
        times = [(stamp, offset) for offset, stamp in rows if stamp is not None]
        if not times:
            raise LookupError(
                f"{partition} has no timestamps: give column timestamp_ms in --log-offsets"
            )
        return next((offset for stamp, offset in times if stamp >= epoch_ms), rows[-1][0])

    def _known(self, partition: TopicPartition, option: str) -> list[tuple[int, int | None]]:
        rows = self.rows.get(partition)
        if not rows:
            raise LookupError(
                f"the {option} of the log of {partition} is unknown: give it by "
                f"--log-offsets, a CSV file with columns {COLUMNS}, or name the offset by "
                "--to-offset"
            )
        return rows


def read(lines: Iterable[str]) -> LogOffsets:
    """Parse the CSV.

    Raises:
        ValueError: a column is missing, or a value is no such number.
    """
    offsets: dict[TopicPartition, list[tuple[int, int | None]]] = {}
    try:
        for row in csv.DictReader(lines):
            try:
                if not row["topic"]:
                    raise ValueError("there is no topic")
                key = TopicPartition(row["topic"], number(row["partition"], PARTITION_MAX))
                stamp = row.get("timestamp_ms")
                entry = (number(row["offset"]), number(stamp) if stamp else None)
            except (KeyError, ValueError) as error:
                shown = ",".join(str(value) for value in row.values())
                raise ValueError(f"--log-offsets: {shown}: the columns are {COLUMNS}") from error
            offsets.setdefault(key, []).append(entry)
    except csv.Error as error:
        raise ValueError(f"--log-offsets is no CSV: {error}") from error
    return LogOffsets({key: sorted(rows, key=lambda row: row[0]) for key, rows in offsets.items()})


def read_file(path: Path | None) -> LogOffsets:
    """The offsets in a file; empty without a file.

    Raises:
        OSError, ValueError: it cannot be read.
    """
    if path is None:
        return LogOffsets()
    with path.open(newline="", encoding="utf-8-sig") as lines:
        return read(lines)


def number(text: str | None, most: int = OFFSET_MAX) -> int:
    """A whole number from 0 on, in plain digits.

    Raises:
        ValueError: it is something else, or larger than `most`.
    """
    if text is None or not (text.isascii() and text.isdecimal()) or len(text) > 19:
        raise ValueError(f"{text!r} is no whole number from 0 on")
    value = int(text)
    if value > most:
        raise ValueError(f"{text} is larger than {most}")
    return value
