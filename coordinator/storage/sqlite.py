"""The log in SQLite, for one machine: WAL mode, each commit synced before it is acknowledged.

An append adds its frame to the end of `entry`, where a trigger compares the shard's epoch
and claims the next sequence number. The lock of the folder keeps a second process out; the trigger
would refuse its appends too.

Source: https://www.sqlite.org/wal.html
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import apsw

from coordinator.core.values.ids import ShardId
from coordinator.storage import entry as frames
from coordinator.storage import schema
from coordinator.storage.folder import DATABASE, FolderLock
from coordinator.storage.log import (
    CannotOpen,
    Damaged,
    Entry,
    Fence,
    Loaded,
    LogError,
    LogUnavailable,
    ShardSnapshot,
    TooLarge,
    next_fence_epoch,
)
from coordinator.storage.marker import (
    Marker,
    MarkerFile,
    create_marker,
    shards_of_share,
    share_in_words,
)
from coordinator.storage.schema import rows
from coordinator.storage.slices import chunks
from coordinator.storage.soundness import (
    ADVICE,
    BUSY_MS,
    examine,
    is_damage,
    look,
    open_to_read,
    sound_store,
)
from coordinator.storage.sql_log import (
    Dialect,
    check_fence,
    fence_row,
    make_room,
    read_shard,
    refusal,
    seal,
    trim,
)
from coordinator.storage.store_files import StoreFiles
from coordinator.storage.writer import Writer

FRAME_BYTES_MAX = 64 * 1024 * 1024
CHANGES_AN_ENTRY = 2
"""Changes that SQLite counts for an entry: its row, and the trigger's update of `fence`."""


class SqliteLog:
    """`GroupLog` in a folder of this machine.

    Args:
        folder: the data folder, created if it does not exist.
        shards: number of shards, fixed when the store is created.
        share: (K, N), to lead only the K-th of N shares of the shards; fixed too.
        vfs: name of an SQLite VFS; None: the default one.
        on_commit: see `Writer`.
        on_failure: see `StoreFiles`.
    Raises:
        CannotOpen: the folder is in use, or not ours, or cannot be written.
        Damaged: the store is not what was written. It is left as it is.
    """

    def __init__(
        self,
        folder: Path,
        *,
        shards: int,
        share: tuple[int, int] = (1, 1),
        vfs: str | None = None,
        on_commit: Callable[[int, float], None] | None = None,
        on_failure: Callable[[str, str], None] = lambda event, reason: None,
    ) -> None:
        self.folder = folder
        self._shards = shards
        self._vfs = vfs
        look(folder)  # Before `FolderLock` creates a file.
        self._lock = FolderLock(folder)
        try:
            self._marker = MarkerFile(folder, self._open_store(share))
            self._files = StoreFiles(folder, self._examine_all, on_failure)
        except (apsw.Error, OSError) as error:
            self._lock.release()
            raise CannotOpen(f"{folder / DATABASE} cannot be used: {error}") from error
        except BaseException:
            self._lock.release()
            raise
        self._writer = Writer(self._open, _append_all, self._files, on_commit, self._acknowledge)

    def announce(self, address: str, token: str) -> None:
        """See `FolderLock.announce`."""
        self._lock.announce(address, token)

    async def fence(self, shard: ShardId, leader_epoch: int = 0) -> Fence:
        def job(connection: apsw.Connection) -> int:
            stored, _, _ = fence_row(SqliteTransaction(connection), shard)
            fence_epoch = next_fence_epoch(stored, leader_epoch)
            connection.execute(
                "INSERT INTO fence VALUES (?1, ?2, 0) ON CONFLICT DO UPDATE SET epoch = ?2",
                (shard, fence_epoch),
            )
            return fence_epoch

        return Fence(shard, await self._writer.run(job))

    async def append(self, fence: Fence, entry: Entry) -> None:
        frame = frames.encode(fence.shard, entry)
        if len(frame) > FRAME_BYTES_MAX:
            raise TooLarge(f"an entry of {len(frame)} bytes")
        await self._writer.add((fence.shard, fence.fence_epoch, entry.sequence, frame))

    async def load(self, fence: Fence, after: int = 0) -> Loaded:
        fence_epoch, loaded = await asyncio.to_thread(self._read, fence.shard, after)
        fence.check(fence_epoch)
        return loaded

    async def read(self, shard: ShardId, after: int = 0) -> Loaded:
        return (await asyncio.to_thread(self._read, shard, after))[1]

    async def write_snapshot(self, fence: Fence, snapshot: ShardSnapshot) -> None:
        if not await self._writer.run(partial(_make_room, fence, snapshot.sequence)):
            return
        parts = chunks(fence, snapshot)
        count = 0
        while frame := await asyncio.to_thread(next, parts, None):
            await self._writer.run(partial(_add_chunk, fence, snapshot.sequence, frame))
            count += 1
        await self._writer.run(partial(_seal, fence, snapshot, count))

    async def close(self) -> None:
        await self._writer.close()
        self._marker.close()
        self._lock.release()

    # --- Inside ---

    def _open_store(self, share: tuple[int, int]) -> Marker:
        """Check the store, create what is missing, and return its marker."""
        state = examine(self.folder, self._vfs)
        if state.marker is not None:
            _check_share(self.folder, state.marker.share, share)
        with contextlib.closing(self._open()) as connection:
            if state.marker is not None:
                return state.marker
            # The folder is new, or was last used by a version without markers.
            owned = shards_of_share(share, self._shards)
            fenced = {shard for (shard,) in rows(connection, "SELECT shard FROM fence")}
            if {shard for shard in fenced if shard >= 0} - owned:
                raise CannotOpen(
                    f"{self.folder} has groups of shards that are not in {share_in_words(share)}: "
                    "start it with the --share, or in the folder, that it had before"
                )
            number = schema.identify(connection, secrets.randbits(63), owned)
            marker = Marker(number, self._shards, share, *schema.totals(connection))
        create_marker(self.folder, marker)
        return marker

    def _acknowledge(self, connection: apsw.Connection) -> None:
        self._marker.acknowledge(*schema.totals(connection))

    def _open(self) -> apsw.Connection:
        connection = apsw.Connection(str(self.folder / DATABASE), vfs=self._vfs)
        try:
            connection.set_busy_timeout(BUSY_MS)
            schema.prepare(connection, self._shards)
        except CannotOpen as error:
            connection.close(True)
            raise CannotOpen(f"{self.folder / DATABASE}: {error}") from error
        except BaseException:
            connection.close(True)
            raise
        return connection

    def _examine_all(self) -> None:
        """Check the whole store, as a start and a load of every shard would."""
        with sound_store(self.folder, self._vfs) as connection:
            for (shard,) in rows(connection, "SELECT shard FROM fence WHERE shard >= 0"):
                read_shard(SqliteTransaction(connection), shard)

    def _read(self, shard: ShardId, after: int) -> tuple[int, Loaded]:
        """Fence epoch and log of a shard, as of one moment."""
        path = self.folder / DATABASE
        self._files.check()
        try:
            with contextlib.closing(open_to_read(path, self._vfs)) as connection:
                reading = SqliteTransaction(connection)
                loaded = read_shard(reading, shard, after)
                fence_epoch, _, _ = fence_row(reading, shard)
        except Damaged as error:
            raise Damaged(f"{path}: {error}; {ADVICE}") from error
        except apsw.Error as error:
            if is_damage(error):
                raise Damaged(f"{path}: {error}; {ADVICE}") from error
            raise LogUnavailable(f"{path}: {error}") from error
        return fence_epoch, loaded


def _check_share(folder: Path, made_for: tuple[int, int], wanted: tuple[int, int]) -> None:
    """Raise `CannotOpen` if the folder has another share of the shards."""
    if made_for == wanted:
        return
    number, shares = made_for
    if shares == 1:
        hint = "start it without --share and without --nodes"
    else:
        hint = (
            f"start the folder above it with --nodes {shares}, or this one alone with --share "
            f"{number}/{shares}"
        )
    raise CannotOpen(
        f"{folder} has {share_in_words(made_for)}, and not {share_in_words(wanted)}: {hint}"
    )


_FENCE = "SELECT epoch, 0, sequence FROM fence WHERE shard = ?"
DIALECT = Dialect(
    fence=_FENCE,
    locked_fence=_FENCE,  # The one transaction that writes has everything.
    entries="SELECT sequence, frame FROM entry WHERE shard = ? AND sequence > ? ORDER BY id",
    chunks="SELECT frame FROM chunk WHERE shard = ? AND sequence = ? ORDER BY id",
)


@dataclass(frozen=True, slots=True)
class SqliteTransaction:
    """A transaction of a connection, or a connection that reads as of one moment."""

    connection: apsw.Connection
    dialect = DIALECT

    def rows(self, statement: str, *values: object) -> Iterable[tuple[Any, ...]]:
        return self.connection.execute(statement, values)

    def run(self, statement: str, *values: object) -> None:
        self.connection.execute(statement, values)


# --- Jobs of the writer -------------------------------------------------------------------------


def _append_all(
    connection: apsw.Connection, entries: list[tuple[Any, ...]]
) -> Sequence[LogError | None]:
    """Add rows of (shard, epoch, sequence, frame); the trigger ignores those it refuses."""
    before = connection.total_changes()
    connection.executemany(
        "INSERT INTO entry (shard, epoch, sequence, frame) VALUES (?, ?, ?, ?)", entries
    )
    if connection.total_changes() - before == CHANGES_AN_ENTRY * len(entries):
        return ()
    transaction = SqliteTransaction(connection)
    return [
        refusal(transaction, Fence(shard, fence_epoch), sequence, frame)
        for shard, fence_epoch, sequence, frame in entries
    ]


def _make_room(fence: Fence, sequence: int, connection: apsw.Connection) -> bool:
    return make_room(SqliteTransaction(connection), fence, sequence)


def _add_chunk(fence: Fence, sequence: int, frame: bytes, connection: apsw.Connection) -> None:
    check_fence(SqliteTransaction(connection), fence)
    connection.execute(
        "INSERT INTO chunk (shard, sequence, frame) VALUES (?, ?, ?)",
        (fence.shard, sequence, frame),
    )


def _seal(fence: Fence, snapshot: ShardSnapshot, chunks: int, connection: apsw.Connection) -> None:
    """Make the snapshot valid, and delete the entries that it covers."""
    transaction = SqliteTransaction(connection)
    seal(transaction, fence, snapshot, chunks)
    trim(transaction, fence, snapshot.sequence)
