"""A log that lives as long as its process: for tests, and for trying things out.

It is no laxer than a durable one: it checks the fence and the sequence number, treats
a repeated entry as success, and can be told to fail the next append in each of the
four ways.
"""

from __future__ import annotations

from collections import deque

from coordinator.core.ids import ShardId
from coordinator.storage.log import (
    Ambiguous,
    Entry,
    Fence,
    Fenced,
    LogError,
    TooLarge,
    Unavailable,
)

FAILURES: dict[str, type[LogError]] = {
    "fenced": Fenced,
    "ambiguous": Ambiguous,
    "unavailable": Unavailable,
    "too_large": TooLarge,
}
"""The four failures, by the names under which tests ask for them."""


class MemoryLog:
    """`GroupLog` in a list. The `…_now` methods serve callers that cannot await."""

    def __init__(self) -> None:
        self._entries: dict[ShardId, list[Entry]] = {}
        self._epochs: dict[ShardId, int] = {}
        self._failures: deque[type[LogError]] = deque()

    def fail_next_append(self, kind: str) -> None:
        """Let the next append fail; further calls queue up.

        An "ambiguous" append is written all the same, which is the hard half of the case.

        Raises:
            KeyError: `kind` is not one of `FAILURES`.
        """
        self._failures.append(FAILURES[kind])

    def fence_now(self, shard: ShardId) -> Fence:
        """See `GroupLog.fence`."""
        epoch = self._epochs.get(shard, 0) + 1
        self._epochs[shard] = epoch
        return Fence(shard, epoch)

    def append_now(self, fence: Fence, entry: Entry) -> None:
        """See `GroupLog.append`."""
        failure = self._failures.popleft() if self._failures else None
        if failure is not None and failure is not Ambiguous:
            raise failure
        if self._epochs.get(fence.shard, 0) != fence.epoch:
            raise Fenced
        entries = self._entries.setdefault(fence.shard, [])
        if entry.sequence == len(entries) and entries[-1].records == entry.records:
            return
        if entry.sequence != len(entries) + 1:
            raise Fenced
        entries.append(entry)
        if failure is not None:
            raise failure

    def load_now(self, fence: Fence) -> list[Entry]:
        """See `GroupLog.load`."""
        if self._epochs.get(fence.shard, 0) != fence.epoch:
            raise Fenced
        return list(self._entries.get(fence.shard, ()))

    async def fence(self, shard: ShardId) -> Fence:
        return self.fence_now(shard)

    async def append(self, fence: Fence, entry: Entry) -> None:
        self.append_now(fence, entry)

    async def load(self, fence: Fence) -> list[Entry]:
        return self.load_now(fence)

    async def close(self) -> None:
        pass
