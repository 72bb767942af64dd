"""Schedule of snapshots, which replace a shard's entries by their result.

A load reads the last snapshot and the entries after it, so snapshots bound both the disk
and the time of a load. Each costs a pass over the shard's groups: with many groups they
are taken more rarely, so that no more is written for snapshots than for entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from coordinator.core.values.records import Record

ENTRIES = 2_000
BYTES = 8 * 1024 * 1024


class SnapshotPolicy:
    """Counts the entries that a load would have to read.

    Args:
        entries, entry_bytes: number and size of the entries after the last snapshot.
        snapshot_bytes: size of the last snapshot.
    """

    def __init__(self, entries: int, entry_bytes: int, snapshot_bytes: int) -> None:
        self._entries = entries
        self._entry_bytes = entry_bytes
        self._snapshot_bytes = snapshot_bytes
        self._under_way = False

    def appended(self, size_bytes: int) -> None:
        """Count one more entry."""
        self._entries += 1
        self._entry_bytes += size_bytes

    def is_due(self) -> bool:
        """True if a snapshot is worth its cost."""
        if self._under_way or self._entry_bytes < self._snapshot_bytes:
            return False
        return self._entries >= ENTRIES or self._entry_bytes >= BYTES

    def begin(self) -> None:
        """Note that a snapshot has begun; later entries count for the next one."""
        self._under_way = True
        self._entries = self._entry_bytes = 0

    def end(self, snapshot_bytes: int) -> None:
        """Note that the snapshot is durable, or has failed (0 bytes)."""
        self._under_way = False
        self._snapshot_bytes = snapshot_bytes or self._snapshot_bytes


class Encoded:
    """Iterator that encodes records one at a time and adds up their size."""

    def __init__(self, records: Iterable[Record], encode: Callable[[Record], bytes]) -> None:
        self._records = records
        self._encode = encode
        self.size_bytes = 0

    def __iter__(self) -> Iterator[bytes]:
        for record in self._records:
            data = self._encode(record)
            self.size_bytes += len(data)
            yield data
