"""The seam between shards and durable storage: one fenced, append-only log per shard.

A log fails in exactly four ways. Which one it was decides what the shard does, so
a backend that cannot tell whether an entry was written has to say `Ambiguous`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from coordinator.core.ids import ShardId


class LogError(Exception):
    """One of the four below; never raised itself."""


class Fenced(LogError):
    """A newer epoch owns the shard. Nothing was written; stop and unload."""


class Ambiguous(LogError):
    """Written or not, nobody knows. Append the same entry under the same sequence again."""


class Unavailable(LogError):
    """Nothing was written, and the log cannot be written now. Later it may."""


class TooLarge(LogError):
    """Nothing was written, and an entry of this size never will be. Split it."""


@dataclass(frozen=True, slots=True)
class Fence:
    """The right to append to a shard: granted by `GroupLog.fence`, lost to a higher epoch."""

    shard: ShardId
    epoch: int


@dataclass(frozen=True, slots=True)
class Entry:
    """What is written in one go. `records` are values the log does not look into."""

    sequence: int
    epoch: int
    base_offset: int
    records: tuple[Any, ...]  # Any: the log carries records, it does not know their types.


class GroupLog(Protocol):
    """One append-only log per shard.

    Every method may raise any of the four `LogError`s.
    """

    async def fence(self, shard: ShardId) -> Fence:
        """Take the shard over under an epoch higher than every one before."""
        ...

    async def append(self, fence: Fence, entry: Entry) -> None:
        """Write `entry` if `fence` still holds and `entry.sequence` is the next one.

        The same sequence with the same records twice is success.
        """
        ...

    async def load(self, fence: Fence) -> list[Entry]:
        """All entries in order, linearizable: nothing acknowledged earlier is missing."""
        ...

    async def close(self) -> None:
        """Release what the log holds. Nothing may be called afterwards."""
        ...
