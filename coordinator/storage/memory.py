"""A log that lives as long as its process: for tests, and for trying things out.

It is as strict as a durable one: it checks the fence and the sequence number, treats a repeated
entry as success, and can be told to fail at every step in each of the four ways.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from coordinator.core.values.ids import ShardId
from coordinator.storage import entry as frames
from coordinator.storage.chain import Chain
from coordinator.storage.log import (
    Ambiguous,
    Entry,
    Fence,
    Fenced,
    Loaded,
    LogError,
    LogUnavailable,
    ShardSnapshot,
    TooLarge,
    next_fence_epoch,
)

FAILURES: dict[str, Callable[[], LogError]] = {
    "fenced": Fenced,
    "ambiguous": Ambiguous,
    "lost": Ambiguous,
    "unavailable": LogUnavailable,
    "full": partial(LogUnavailable, is_lasting=True),
    "too_large": TooLarge,
}
"""The four failures, by the names under which tests ask for them. Both "ambiguous" and "lost" raise
`Ambiguous`: the former carries the step out, the latter does not. "full" is an "unavailable" that
waiting does not change."""

SNAPSHOT_PART = 500
"""Records of a snapshot that are taken before other tasks run."""


class MemoryLog:
    """`GroupLog` in memory. The `…_now` methods serve callers that cannot await."""

    def __init__(self) -> None:
        self._frames: dict[ShardId, dict[int, bytes]] = {}
        self._snapshots: dict[ShardId, ShardSnapshot] = {}
        self._fence_epochs: dict[ShardId, int] = {}
        self._last: dict[ShardId, int] = {}
        self._raised: dict[ShardId, int] = {}  # Shards that nobody has written since `go_back`.
        self._failures: dict[str, deque[str]] = {}

    def fail_next(self, step: str, kind: str) -> None:
        """Let the next `fence`, `append`, `load`, `read` or `write_snapshot` fail; calls queue up.

        Args:
            kind: one of `FAILURES`.
        """
        assert kind in FAILURES, f"{kind} is none of {', '.join(FAILURES)}"
        self._failures.setdefault(step, deque()).append(kind)

    def fail_next_append(self, kind: str) -> None:
        self.fail_next("append", kind)

    def forget_failures(self) -> None:
        """Cancel all failures that were asked for."""
        self._failures.clear()

    def go_back(self, shard: ShardId, sequence: int, raised: int) -> None:
        """Lose a shard's entries after `sequence`, as a store does whose stale standby is promoted.

        Args:
            raised: what the next owner has to raise numbers by.
        """
        stored = self._frames.get(shard, {})
        for number in [number for number in stored if number > sequence]:
            del stored[number]
        self._last[shard] = min(self._last.get(shard, 0), sequence)
        self._fence_epochs[shard] = self._fence_epochs.get(shard, 0) + 1  # Its owner is refused.
        self._raised[shard] = raised

    def fence_now(self, shard: ShardId, leader_epoch: int = 0) -> Fence:
        ambiguous = self._failure("fence")
        fence_epoch = next_fence_epoch(self._fence_epochs.get(shard, 0), leader_epoch)
        self._fence_epochs[shard] = fence_epoch
        if ambiguous:
            raise Ambiguous
        return Fence(shard, fence_epoch)

    def append_now(self, fence: Fence, entry: Entry) -> None:
        ambiguous = self._failure("append")
        self._check(fence)
        stored = self._frames.setdefault(fence.shard, {})
        frame = frames.encode(fence.shard, entry)
        last = self._last.get(fence.shard, 0)
        if stored.get(entry.sequence) == frame:
            return
        if entry.sequence != last + 1:
            raise Fenced(f"entry {entry.sequence} follows entry {last}")
        stored[entry.sequence] = frame
        self._last[fence.shard] = entry.sequence
        self._raised.pop(fence.shard, None)
        if ambiguous:
            raise Ambiguous

    def load_now(self, fence: Fence, after: int = 0) -> Loaded:
        self._failure("load")
        self._check(fence)
        loaded = self._read(fence.shard, after if after <= self._last.get(fence.shard, 0) else 0)
        return replace(loaded, raised=self._raised.get(fence.shard, 0))

    def write_snapshot_now(self, fence: Fence, snapshot: ShardSnapshot) -> None:
        ambiguous = self._failure("write_snapshot")
        self._check(fence)
        older = self._snapshots.get(fence.shard)
        if older is None or older.sequence < snapshot.sequence:
            kept = ShardSnapshot(snapshot.sequence, snapshot.next_offset, tuple(snapshot.records))
            self._snapshots[fence.shard] = kept
            stored = self._frames.get(fence.shard, {})
            for sequence in [number for number in stored if number <= snapshot.sequence]:
                del stored[sequence]
        if ambiguous:
            raise Ambiguous

    async def fence(self, shard: ShardId, leader_epoch: int = 0) -> Fence:
        return self.fence_now(shard, leader_epoch)

    async def append(self, fence: Fence, entry: Entry) -> None:
        self.append_now(fence, entry)

    async def load(self, fence: Fence, after: int = 0) -> Loaded:
        return self.load_now(fence, after)

    async def read(self, shard: ShardId, after: int = 0) -> Loaded:
        self._failure("read")
        return self._read(shard, after)

    async def write_snapshot(self, fence: Fence, snapshot: ShardSnapshot) -> None:
        records = []
        for number, record in enumerate(snapshot.records, 1):  # They are encoded as they are taken.
            records.append(record)
            if number % SNAPSHOT_PART == 0:
                await asyncio.sleep(0)
        whole = ShardSnapshot(snapshot.sequence, snapshot.next_offset, tuple(records))
        self.write_snapshot_now(fence, whole)

    async def close(self) -> None:
        pass

    def _read(self, shard: ShardId, after: int) -> Loaded:
        chain = Chain(f"memory, shard {shard}", self._snapshots.get(shard), after)
        for sequence, frame in sorted(self._frames.get(shard, {}).items()):
            if sequence > chain.last:
                chain.add(frames.decode(frame, shard, sequence))
        return chain.loaded()

    def _failure(self, step: str) -> bool:
        """True if this step is to be carried out, and to raise `Ambiguous` then."""
        queue = self._failures.get(step)
        kind = queue.popleft() if queue else None
        if kind is None:
            return False
        if kind != "ambiguous":
            failure = FAILURES[kind]()
            raise failure
        return True

    def _check(self, fence: Fence) -> None:
        fence.check(self._fence_epochs.get(fence.shard, 0))
