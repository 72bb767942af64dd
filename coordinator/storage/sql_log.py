"""The common part of logs in SQL databases: reading a shard, refusals of appends, and snapshots.

The tables are alike (`schema.py`, `postgres_schema.py`): `fence` has the epoch and the last
sequence number of each shard, `entry` the log, and `chunk` the slices of snapshots, which count
once `snapshot` has their sequence number. Functions are given a transaction.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from coordinator.core.values.ids import ShardId
from coordinator.storage import entry as frames
from coordinator.storage.chain import Chain
from coordinator.storage.log import Damaged, Fence, Fenced, Loaded, LogError, ShardSnapshot
from coordinator.storage.slices import snapshot_of


class Transaction(Protocol):
    """A transaction of a database. Statements have `?` for their values."""

    @property
    def dialect(self) -> Dialect:
        """The queries that differ between the databases."""

    def rows(self, statement: str, *values: object) -> Iterable[tuple[Any, ...]]:
        """The rows of a query, which are read to the end before the next statement."""

    def run(self, statement: str, *values: object) -> None:
        """Carry out a statement without rows."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """Queries that differ between the databases.

    fence: epoch, token and last sequence number of a shard; locked_fence: the same, with a lock
    for the rest of the transaction. entries: numbers and frames of a shard after a number, in
    order. chunks: frames of a shard's snapshot, in order.
    """

    fence: str
    locked_fence: str
    entries: str
    chunks: str


def fence_row(
    transaction: Transaction, shard: ShardId, *, is_locked: bool = False
) -> tuple[int, int, int]:
    """Epoch, token and last sequence number; zeros for a shard that nobody ever took over."""
    dialect = transaction.dialect
    rows = list(transaction.rows(dialect.locked_fence if is_locked else dialect.fence, shard))
    if not rows:
        return 0, 0, 0
    ((epoch, token, sequence),) = rows
    return epoch, token, sequence


def check_fence(transaction: Transaction, fence: Fence) -> int:
    """Compare the fence, and return the last sequence number of the shard. Raises `Fenced`."""
    epoch, token, last = fence_row(transaction, fence.shard, is_locked=True)
    fence.check(epoch, token)
    return last


def read_shard(transaction: Transaction, shard: ShardId, after: int = 0) -> Loaded:
    """Read a shard's log, or the part after the entry `after`; all of it if it ends before that.

    Raises:
        Damaged: an entry is not what was written, or is missing.
    """
    epoch, _, last = fence_row(transaction, shard)
    after = after if after <= last else 0
    chain = Chain(f"shard {shard}", _read_snapshot(transaction, shard), after)
    # One row at a time: all frames together are as large as the entries made of them.
    for sequence, frame in transaction.rows(transaction.dialect.entries, shard, chain.last):
        chain.add(frames.decode(frame, shard, sequence))
    if chain.last != last:
        raise Damaged(f"shard {shard}: it ends with entry {chain.last}, and {last} was written")
    loaded = chain.loaded()
    if loaded.entries and loaded.entries[-1].fence_epoch > epoch:
        raise Damaged(
            f"shard {shard}: entry {last} is of epoch {loaded.entries[-1].fence_epoch}, "
            f"and the shard has only come to {epoch}"
        )
    return loaded


def _read_snapshot(transaction: Transaction, shard: ShardId) -> ShardSnapshot | None:
    query = "SELECT sequence, next_offset, chunks FROM snapshot WHERE shard = ?"
    for sequence, next_offset, count in list(transaction.rows(query, shard)):
        rows = transaction.rows(transaction.dialect.chunks, shard, sequence)
        parts = [frames.decode(frame, shard, sequence) for (frame,) in rows]
        return snapshot_of(f"shard {shard}", sequence, next_offset, parts, count)
    return None


def refusal(transaction: Transaction, fence: Fence, sequence: int, frame: bytes) -> LogError | None:
    """Reason why an entry was refused; None: it is stored, by an earlier attempt."""
    epoch, token, last = fence_row(transaction, fence.shard)
    try:
        fence.check(epoch, token)
    except Fenced as fenced:
        return fenced
    stored = transaction.rows(
        "SELECT frame FROM entry WHERE shard = ? AND sequence = ?", fence.shard, sequence
    )
    if [bytes(frame_stored) for (frame_stored,) in stored] != [frame]:
        return Fenced(f"entry {sequence} does not follow entry {last}")
    return None


# --- Snapshots ----------------------------------------------------------------------------------


def make_room(transaction: Transaction, fence: Fence, sequence: int) -> bool:
    """Drop chunks of an interrupted snapshot; False if a snapshot as new as this exists."""
    check_fence(transaction, fence)
    _drop_chunks(transaction, fence.shard)
    sealed = transaction.rows("SELECT sequence FROM snapshot WHERE shard = ?", fence.shard)
    return all(number < sequence for (number,) in sealed)


def seal(transaction: Transaction, fence: Fence, snapshot: ShardSnapshot, chunks: int) -> None:
    """Make a snapshot valid whose chunks are written."""
    check_fence(transaction, fence)
    transaction.run(
        "INSERT INTO snapshot (shard, sequence, next_offset, chunks) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (shard) DO UPDATE SET sequence = excluded.sequence, "
        "next_offset = excluded.next_offset, chunks = excluded.chunks",
        fence.shard,
        snapshot.sequence,
        snapshot.next_offset,
        chunks,
    )


def trim(transaction: Transaction, fence: Fence, sequence: int) -> None:
    """Delete the entries that a sealed snapshot covers, and the chunks of the one before."""
    transaction.run("DELETE FROM entry WHERE shard = ? AND sequence <= ?", fence.shard, sequence)
    _drop_chunks(transaction, fence.shard)


def _drop_chunks(transaction: Transaction, shard: ShardId) -> None:
    """Drop the chunks that belong to no sealed snapshot."""
    transaction.run(
        "DELETE FROM chunk WHERE shard = ? AND sequence IS DISTINCT FROM "
        "(SELECT sequence FROM snapshot WHERE shard = ?)",
        shard,
        shard,
    )
