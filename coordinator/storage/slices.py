"""Slices of snapshots, which are written with appends in between."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from coordinator.storage import entry as frames
from coordinator.storage.log import Damaged, Entry, Fence, ShardSnapshot

SLICE_BYTES = 256 * 1024
"""Approximate size of a slice; a single record may be longer."""


def chunks(fence: Fence, snapshot: ShardSnapshot) -> Iterator[bytes]:
    """Frames of a snapshot's slices, numbered from 0 by their base offsets."""
    for number, records in enumerate(_slices(snapshot.records)):
        chunk = Entry(snapshot.sequence, fence.fence_epoch, number, records)
        yield frames.encode(fence.shard, chunk)


def snapshot_of(
    where: str, sequence: int, next_offset: int, parts: Sequence[Entry], count: int
) -> ShardSnapshot:
    """Put a snapshot together from the slices that were read.

    Args:
        where: the store and the shard, for the message.
        count: slices that were written.
    Raises:
        Damaged: a slice is missing.
    """
    if [part.base_offset for part in parts] != list(range(count)):
        raise Damaged(
            f"{where}: of the {count} slices of snapshot {sequence}, {len(parts)} are there"
        )
    return ShardSnapshot(sequence, next_offset, tuple(r for part in parts for r in part.records))


def _slices(records: Iterable[bytes]) -> Iterator[tuple[bytes, ...]]:
    """Groups of consecutive records, each about `SLICE_BYTES` long."""
    part: list[bytes] = []
    size = 0
    for record in records:
        part.append(record)
        size += len(record)
        if size >= SLICE_BYTES:
            yield tuple(part)
            part, size = [], 0
    if part:
        yield tuple(part)
