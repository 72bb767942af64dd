"""A shard made of what the log holds, at a load or beside another node that leads it."""

from __future__ import annotations

from coordinator.runtime import codec
from coordinator.shard.effects import Warm
from coordinator.shard.followers import TailEntry
from coordinator.shard.shard import Shard
from coordinator.shard.snapshots import SnapshotPolicy
from coordinator.storage.log import Damaged, Entry, Loaded


def build(shard: Shard, loaded: Loaded, now_ms: int) -> Warm:
    """What the store holds, in a shard that is empty. It takes a while: call it in a thread."""
    shard.replay(map(codec.decode, loaded.records()), now_ms)
    policy = SnapshotPolicy(
        len(loaded.entries),
        sum(len(record) for entry in loaded.entries for record in entry.records),
        sum(map(len, loaded.snapshot.records)) if loaded.snapshot else 0,
    )
    return Warm(shard, loaded.sequence, loaded.next_offset, policy)


def add_entry(warm: Warm, entry: Entry | TailEntry, now_ms: int) -> None:
    """Apply the next entry, from the store or from whoever leads the shard.

    Raises:
        Damaged: it is not the one that follows.
    """
    if (entry.sequence, entry.base_offset) != (warm.sequence + 1, warm.next_offset):
        raise Damaged(
            f"entry {entry.sequence} (offset {entry.base_offset}) follows entry {warm.sequence} "
            f"(offset {warm.next_offset})"
        )
    warm.shard.replay(map(codec.decode, entry.records), now_ms)
    warm.sequence, warm.next_offset = entry.sequence, entry.base_offset + len(entry.records)
    warm.policy.appended(sum(map(len, entry.records)))
