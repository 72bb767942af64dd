"""The seam between shards and durable storage: one fenced, append-only log per shard.

A log fails in exactly four ways. Which one it was decides what the shard does, so
a backend that cannot tell whether an entry was written has to say `Ambiguous`.

Two more things can be wrong before a log serves, and nobody retries them:
`CannotOpen`, and `Damaged`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from coordinator.core.ids import ShardId


class LogError(Exception):
    """One of the four below; never raised itself."""


class Fenced(LogError):
    """A newer fence epoch owns the shard. Nothing was written; stop and unload."""


class Ambiguous(LogError):
    """Written or not, nobody knows. Append the same entry under the same sequence again."""


class Unavailable(LogError):
    """Nothing was written, and the log cannot be written now. Later it may.

    Args:
        is_lasting: waiting does not change it: the store is full, read-only, or refuses the
            login. Writes are refused at once then, and else tried again for a while.
    """

    def __init__(self, *words: object, is_lasting: bool = False) -> None:
        super().__init__(*words)
        self.is_lasting = is_lasting


class TooLarge(LogError):
    """Nothing was written, and an entry of this size never will be. Split it."""


FENCES_PER_LEADER_EPOCH = 1 << 20
"""Fence epochs of a later leader epoch are above all those of an earlier one."""


def next_fence_epoch(stored: int, leader_epoch: int) -> int:
    """The fence epoch that follows the one a store holds, within a leader epoch.

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
    """What was stored is not what is read. The message says where, and what to do."""


@dataclass(frozen=True, slots=True)
class Fence:
    """The right to append to a shard: granted by `GroupLog.fence`, lost to a higher one.

    `token` is the log's own mark of it.
    """

    shard: ShardId
    fence_epoch: int
    token: int = 0

    def check(self, stored: int) -> None:
        """Compare with the fence epoch that the store holds.

        Raises:
            Fenced: they differ.
        """
        if stored != self.fence_epoch:
            raise Fenced(f"epoch {self.fence_epoch} has been followed by {stored}")


@dataclass(frozen=True, slots=True)
class Entry:
    """What is written in one go. The log does not look into its records.

    `sequence` counts a shard's entries from 1, `base_offset` the records before this entry.
    """

    sequence: int
    fence_epoch: int
    base_offset: int
    records: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a shard's entries up to and with `sequence` come to, in fewer records.

    `next_offset` is the offset of the first record after those entries.
    """

    sequence: int
    next_offset: int
    records: Iterable[bytes]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A shard as the log holds it: a snapshot, and the entries after it."""

    snapshot: Snapshot | None
    entries: list[Entry]

    @property
    def sequence(self) -> int:
        """Of the last entry; 0: there never was one."""
        if self.entries:
            return self.entries[-1].sequence
        return 0 if self.snapshot is None else self.snapshot.sequence

    @property
    def next_offset(self) -> int:
        """The offset that the next record will have."""
        if self.entries:
            return self.entries[-1].base_offset + len(self.entries[-1].records)
        return 0 if self.snapshot is None else self.snapshot.next_offset

    def records(self) -> Iterable[bytes]:
        """All records in order: applied one after the other, they make the shard's groups."""
        if self.snapshot is not None:
            yield from self.snapshot.records
        for entry in self.entries:
            yield from entry.records


class GroupLog(Protocol):
    """One append-only log per shard.

    Every method may raise any of the four `LogError`s.
    """

    async def fence(self, shard: ShardId, leader_epoch: int = 0) -> Fence:
        """Take the shard over under a fence epoch higher than every one before.

        Args:
            leader_epoch: of whoever granted the shard; without a controller it is always 0.
        Raises:
            Fenced: somebody has taken it over in a later leader epoch.
        """
        ...

    async def append(self, fence: Fence, entry: Entry) -> None:
        """Write `entry` if `fence` still holds and `entry.sequence` is the next one.

        Returns once it is durable. The same sequence with the same records twice is
        success; with others, `Fenced`: somebody else has written there.
        """
        ...

    async def load(self, fence: Fence, after: int = 0) -> Loaded:
        """Everything there is, linearizable: nothing acknowledged earlier is missing.

        Args:
            after: the last entry that the reader has already. If a snapshot has taken the place
                of entries after that one, everything is read all the same.
        Raises:
            Damaged: an entry is not what was written.
        """
        ...

    async def read(self, shard: ShardId, after: int = 0) -> Loaded:
        """The same for a reader who does not own the shard. See `load`."""
        ...

    async def write_snapshot(self, fence: Fence, snapshot: Snapshot) -> None:
        """Replace the entries that `snapshot` covers by it, all or none.

        Its records are taken in another thread, a slice at a time, beside the appends.
        """
        ...

    async def close(self) -> None:
        """Release what the log holds. Nothing may be called afterwards."""
        ...
