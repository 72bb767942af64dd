"""Looking into a data folder, live or stopped, without the lock and without changing anything."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import apsw

from coordinator.core.ids import ShardId
from coordinator.storage.folder import DATABASE
from coordinator.storage.log import CannotOpen, Damaged
from coordinator.storage.schema import check_format, rows
from coordinator.storage.sqlite import open_to_read, read_shard


@dataclass(frozen=True, slots=True)
class ShardReport:
    """What there is of one shard; `problem` says what is wrong, empty: nothing."""

    shard: int
    epoch: int
    sequence: int
    """Of the last entry."""
    entries: int
    """After the snapshot."""
    snapshot_sequence: int
    records: int
    problem: str = ""


@contextlib.contextmanager
def reading(folder: Path) -> Iterator[apsw.Connection]:
    """One consistent view of the store, however long it is looked at.

    Raises:
        CannotOpen: there is no store in the folder, or a newer version made it.
    """
    path = folder / DATABASE
    if not path.exists():
        raise CannotOpen(f"there is no {path}")
    try:
        connection = open_to_read(path)
        with connection:
            check_format(connection)
            yield connection
        connection.close()
    except apsw.Error as error:
        raise CannotOpen(f"{path} cannot be read: {error}") from error


def shards(connection: apsw.Connection) -> list[ShardId]:
    """Those that were ever taken over."""
    return [ShardId(shard) for (shard,) in rows(connection, "SELECT shard FROM fence ORDER BY 1")]


def verify(folder: Path) -> Iterator[ShardReport]:
    """Read everything there is, and check every checksum, number and place.

    Raises:
        CannotOpen: see `reading`.
        Damaged: SQLite's own check of its file fails.
    """
    with reading(folder) as connection:
        said = [row[0] for row in rows(connection, "PRAGMA integrity_check")]
        if said != ["ok"]:
            raise Damaged(f"{folder / DATABASE}: {'; '.join(map(str, said))}")
        for shard in shards(connection):
            ((epoch, sequence),) = rows(
                connection, "SELECT epoch, sequence FROM fence WHERE shard = ?", shard
            )
            try:
                found = read_shard(connection, shard)
            except Damaged as damage:
                yield ShardReport(shard, epoch, sequence, 0, 0, 0, str(damage))
            else:
                before = 0 if found.snapshot is None else found.snapshot.sequence
                count = sum(1 for _ in found.records())
                yield ShardReport(shard, epoch, sequence, len(found.entries), before, count)


def backup(folder: Path, target: Path) -> int:
    """Copy the store, as it is at one moment, into another folder; the copy's size in bytes.

    Appends go on meanwhile. A copy is restored by starting a coordinator on it.

    Raises:
        CannotOpen: there is no store, or there is something at the target already.
    """
    path = target / DATABASE
    if path.exists():
        raise CannotOpen(f"there is a {path} already")
    try:
        target.mkdir(parents=True, exist_ok=True)
        with reading(folder) as source:
            copy = apsw.Connection(str(path))
            with copy.backup("main", source, "main") as under_way:
                under_way.step()
            copy.close()
    except (apsw.Error, OSError) as error:
        raise CannotOpen(f"{target} cannot be written: {error}") from error
    return path.stat().st_size
