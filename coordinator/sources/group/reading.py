"""A partition of a source, read chunk by chunk from its position on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from coordinator.client.worker.partition import PartitionView
from coordinator.commit_metadata import of_reader, parsed
from coordinator.sources.base import LogChanged, Snapshot, Source, snapshot_of


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows up to the offset `after`, as Arrow record batches. `metadata`: of its commit."""

    batches: Iterator[Any]  # Any: Arrow is untyped.
    after: int
    metadata: str


class Reading:
    """Reader of one holding's rows. `log_end`: where the log ended at the last look.

    Before each chunk it compares the rows that were read before with their mark, also while there
    is nothing new, so that it stops at a log that changes.
    """

    def __init__(self, source: Source, p: PartitionView) -> None:
        self._source, self._number = source, p.number
        self._mark = parsed(p.metadata).mark
        self._offset = _begin(snapshot_of(source, p.number), p)
        self.log_end = -1

    def next(self, rows: int, end: int | None = None) -> Chunk | None:
        """The next chunk, of at most `rows` rows; None: there is none now.

        Args:
            end: offset to read to; None: the current end of the log.
        Raises:
            LogChanged: rows before the position have changed or are gone.
        """
        snapshot = snapshot_of(self._source, self._number)
        snapshot.check(self._mark)
        self.log_end = snapshot.end() if end is None else end
        begin, after = self._offset, min(self._offset + rows, self.log_end)
        if after <= begin:
            # Nothing is known of rows that a former version committed: from now on it is.
            self._mark = self._mark or snapshot.mark(begin)
            return None
        self._offset, self._mark = after, snapshot.mark(after)
        return Chunk(snapshot.read(begin, after), after, of_reader(self._mark))


def _begin(snapshot: Snapshot, p: PartitionView) -> int:
    """Where to begin.

    Raises:
        LogChanged: the group no longer knows the order of the files at the stored offset.
    """
    first = snapshot.begin()
    is_recorded = getattr(snapshot, "record", "") != ""
    if is_recorded and 0 <= p.stored == p.position < first:
        raise LogChanged(
            f"{p.key}: offset {p.stored} is stored, and the group knows the order of files from "
            f"offset {first} on: read everything again in a new group, or go on at {first}",
            rows_are_gone=True,
        )
    return max(p.position, first)
