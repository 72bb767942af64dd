"""Assembly of a log from entries as they are read, each checked against the one before it."""

from __future__ import annotations

from coordinator.storage.log import Damaged, Entry, Loaded, ShardSnapshot


class Chain:
    """A shard's log, or the end of it.

    Args:
        where: the store and the shard, for error messages.
        snapshot: the shard's snapshot; ignored unless it goes further than `after`.
        after: sequence number of the last entry that the reader already has.
    """

    def __init__(self, where: str, snapshot: ShardSnapshot | None, after: int = 0) -> None:
        self._where = where
        self._snapshot = None if snapshot is None or snapshot.sequence <= after else snapshot
        self._entries: list[Entry] = []
        self.last = after if self._snapshot is None else self._snapshot.sequence
        """Sequence number of the last entry so far."""
        self._next_offset: int | None = None  # The reader knows where its own end is.
        if self._snapshot is not None:
            self._next_offset = self._snapshot.next_offset
        elif after == 0:
            self._next_offset = 0

    def add(self, entry: Entry) -> None:
        """Add the next entry.

        Raises:
            Damaged: the entry does not follow the last one.
        """
        offset = entry.base_offset if self._next_offset is None else self._next_offset
        if entry.sequence != self.last + 1 or entry.base_offset != offset:
            raise Damaged(
                f"{self._where}: entry {entry.sequence} (offset {entry.base_offset}) follows "
                f"entry {self.last} (offset {offset})"
            )
        self.last = entry.sequence
        self._next_offset = offset + len(entry.records)
        self._entries.append(entry)

    def loaded(self) -> Loaded:
        return Loaded(self._snapshot, self._entries)
