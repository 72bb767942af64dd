"""The seam between shards and durable storage: one fenced, append-only log per shard.

A log fails in exactly four ways, and the shard acts on which one it was. A backend that cannot tell
whether an entry was written has to raise `Ambiguous`.

Opening and loading fail in two more ways, which are not retried: `CannotOpen`, and `Damaged`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from coordinator.core.values.ids import ShardId


class LogError(Exception):
    """Base class of the four failures; never raised itself."""


class Fenced(LogError):
    """A newer fence epoch owns the shard. Nothing was written; stop and unload."""


class Ambiguous(LogError):
    """The entry may have been written. Append it again under the same sequence number."""


class LogUnavailable(LogError):
    """Nothing was written, and the log cannot be written now. Later it may.

    Args:
        is_lasting: True if waiting does not help: the store is full, read-only, or refuses the
            login. Writes are refused at once then; otherwise they are retried for a while.
    """

    def __init__(self, *reason: object, is_lasting: bool = False) -> None:
        super().__init__(*reason)
        self.is_lasting = is_lasting


class TooLarge(LogError):
    """Nothing was written: the entry is larger than the log allows. Split it."""


FENCES_PER_LEADER_EPOCH = 1 << 20
"""Fence epochs of a later leader epoch are above all those of an earlier one."""


def next_fence_epoch(stored: int, leader_epoch: int) -> int:
    """Return the fence epoch after the one that a store holds, within a leader epoch.

    Raises:
        Fenced: a later leader epoch has begun, or this one has run out of fence epochs.
    """
    fence_epoch = max(stored, leader_epoch * FENCES_PER_LEADER_EPOCH) + 1
    if fence_epoch // FENCES_PER_LEADER_EPOCH != leader_epoch:
        raise Fenced(
            f"leader epoch {leader_epoch} has been followed by {stored // FENCES_PER_LEADER_EPOCH}"
        )
    return fence_epoch


class CannotOpen(Exception):
    """The store cannot be used as it is. The message says why, and what to do."""


class Damaged(Exception):
    """The store returns something else than was written. The message says where, and what to do."""


@dataclass(frozen=True, slots=True)
class Fence:
    """The right to append to a shard: granted by `GroupLog.fence`, lost to a higher fence epoch.

    `token` is the log's own identification of it.
    """

    shard: ShardId
    fence_epoch: int
    token: int = 0

    def check(self, stored: int, token: int = 0) -> None:
        """Compare with the fence epoch and the token that the store holds.

        Raises:
            Fenced: they differ.
        """
        if stored != self.fence_epoch:
            raise Fenced(f"epoch {self.fence_epoch} has been followed by {stored}")
        if token != self.token:
            raise Fenced(f"epoch {self.fence_epoch} was issued a second time: the store went back")


@dataclass(frozen=True, slots=True)
class Entry:
    """Records that are written atomically. The log does not look into them.

    `sequence` counts a shard's entries from 1, `base_offset` the records before this entry.
    """

    sequence: int
    fence_epoch: int
    base_offset: int
    records: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class ShardSnapshot:
    """A shard's entries up to and including `sequence`, compacted into fewer records.

    `next_offset` is the offset of the first record after those entries.
    """

    sequence: int
    next_offset: int
    records: Iterable[bytes]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A shard as the log holds it: a snapshot, and the entries after it.

    raised: the store has lost commits, and nobody has written since; all numbers of the shard have
    to be raised by this at least, in the first entry. 0: nothing was lost.
    """

    snapshot: ShardSnapshot | None
    entries: list[Entry]
    raised: int = 0

    @property
    def sequence(self) -> int:
        """Sequence number of the last entry; 0: there never was one."""
        if self.entries:
            return self.entries[-1].sequence
        return 0 if self.snapshot is None else self.snapshot.sequence

    @property
    def next_offset(self) -> int:
        if self.entries:
            return self.entries[-1].base_offset + len(self.entries[-1].records)
        return 0 if self.snapshot is None else self.snapshot.next_offset

    def records(self) -> Iterable[bytes]:
        """All records in order; replaying them restores the shard's groups."""
        if self.snapshot is not None:
            yield from self.snapshot.records
        for entry in self.entries:
            yield from entry.records


class GroupLog(Protocol):
    """One append-only log per shard.

    Every method may raise any of the four `LogError`s.
    """

    async def fence(self, shard: ShardId, leader_epoch: int = 0) -> Fence:
        """Take the shard over under a fence epoch higher than all before.

        Args:
            leader_epoch: epoch in which the shard was granted; always 0 without a controller.
        Raises:
            Fenced: the shard was taken over in a later leader epoch.
        """
        ...

    async def append(self, fence: Fence, entry: Entry) -> None:
        """Write `entry` if `fence` still holds and `entry.sequence` is the next one.

        Returns once it is durable. Appending the same sequence with the same records again
        succeeds; with other records it raises `Fenced`: another owner has written there.
        """
        ...

    async def load(self, fence: Fence, after: int = 0) -> Loaded:
        """Load the shard's log, linearizable: nothing acknowledged earlier is missing.

        Args:
            after: sequence number of the last entry that the reader already has. If a snapshot
                has replaced entries after that one, everything is read.
        Raises:
            Damaged: an entry is not what was written.
        """
        ...

    async def read(self, shard: ShardId, after: int = 0) -> Loaded:
        """Load without a fence, for a reader that does not own the shard; see `load`."""
        ...

    async def write_snapshot(self, fence: Fence, snapshot: ShardSnapshot) -> None:
        """Replace the entries that `snapshot` covers by it, atomically.

        Its records are iterated in another thread, a slice at a time, beside the appends.
        """
        ...

    async def close(self) -> None:
        """Close files and connections. No method may be called afterwards."""
        ...
