"""Read-only inspection of a data folder, live or stopped, without its lock."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import apsw

from coordinator.core.values.ids import ShardId
from coordinator.storage.folder import DATABASE
from coordinator.storage.log import CannotOpen, Damaged, Loaded
from coordinator.storage.marker import MARKER, create_marker, read_marker, sync_folder
from coordinator.storage.schema import rows, totals
from coordinator.storage.soundness import ADVICE, is_damage, open_to_read, sound_store
from coordinator.storage.sql_log import read_shard
from coordinator.storage.sqlite import SqliteTransaction


@dataclass(frozen=True, slots=True)
class ShardReport:
    """Summary of one shard; `problem` is empty if it is sound."""

    shard: int
    epoch: int
    sequence: int
    """Sequence number of the last entry."""
    entries: int
    """Number of entries after the snapshot."""
    snapshot_sequence: int
    records: int
    problem: str = ""


@contextlib.contextmanager
def reading(folder: Path) -> Iterator[apsw.Connection]:
    """Yield one consistent view of the store as far as it can be read, even if it is damaged.

    Raises:
        CannotOpen: there is no store, or it cannot be read at all.
        Damaged: raised on exit if the store is not what was written.
    """
    damage = None
    try:
        with sound_store(folder):
            pass
    except Damaged as error:
        damage = error
    path = folder / DATABASE
    try:
        with contextlib.closing(open_to_read(path)) as connection:
            yield connection
    except apsw.Error as error:
        if damage is None:
            kind = Damaged if is_damage(error) else CannotOpen
            raise kind(f"{path} cannot be read: {error}; {ADVICE}") from error
    if damage is not None:
        raise damage


def shards(connection: apsw.Connection) -> list[ShardId]:
    """Shards that were ever taken over."""
    numbers = rows(connection, "SELECT shard FROM fence WHERE shard >= 0 AND epoch > 0 ORDER BY 1")
    return [ShardId(shard) for (shard,) in numbers]


def verify(folder: Path, check: Callable[[bytes], object]) -> Iterator[ShardReport]:
    """Read the whole store, and check every checksum, number and place.

    Args:
        check: called with each record; raises `Damaged` for one that is unreadable.
    Raises:
        CannotOpen, Damaged: see `sound_store`.
    """
    with sound_store(folder) as connection:
        for shard in shards(connection):
            ((epoch, sequence),) = rows(
                connection, "SELECT epoch, sequence FROM fence WHERE shard = ?", shard
            )
            try:
                loaded = read_shard(SqliteTransaction(connection), shard)
                _check_records(shard, loaded, check)
            except (Damaged, apsw.CorruptError, apsw.IOError) as damage:
                yield ShardReport(shard, epoch, sequence, 0, 0, 0, str(damage))
            else:
                before = 0 if loaded.snapshot is None else loaded.snapshot.sequence
                count = sum(1 for _ in loaded.records())
                yield ShardReport(shard, epoch, sequence, len(loaded.entries), before, count)


def _check_records(shard: ShardId, loaded: Loaded, check: Callable[[bytes], object]) -> None:
    try:
        for record in loaded.records():
            check(record)
    except Damaged as damage:
        raise Damaged(f"shard {shard}: {damage}") from damage


def backup(folder: Path, target: Path) -> int:
    """Copy the store, as of one moment, into another folder; return the copy's size in bytes.

    Appends go on during the backup. A coordinator started on the copy restores it. An interrupted
    copy has no database.

    Raises:
        CannotOpen: there is no store, or the target is in use or cannot be written.
        Damaged: the store is not what was written.
    """
    path = target / DATABASE
    for used in (path, target / f"{DATABASE}-wal", target / MARKER):
        if used.exists() or used.is_symlink():
            raise CannotOpen(f"there is a {used} already: name an empty folder")
    unfinished = target / f"{DATABASE}.unfinished"
    with sound_store(folder) as source:
        marker = read_marker(folder)
        try:
            target.mkdir(parents=True, exist_ok=True)
            unfinished.unlink(missing_ok=True)
            with contextlib.closing(apsw.Connection(str(unfinished))) as copy:
                with copy.backup("main", source, "main") as under_way:
                    under_way.step()
            unfinished.replace(path)
            sync_folder(target)
            if marker is not None:
                entries, epochs = totals(source)
                create_marker(target, replace(marker, entries=entries, epochs=epochs))
        except (apsw.Error, OSError) as error:
            raise CannotOpen(f"{target} cannot be written: {error}") from error
    return path.stat().st_size
