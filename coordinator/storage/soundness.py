"""Checks of a data folder, made by `serve` before it writes, and by `coordinator log`.

Both make the same checks, so that they agree. The contents of entries and snapshots are checked by
`sql_log.read_shard` whenever they are read.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import apsw

from coordinator.data_folder import LOCK
from coordinator.storage import schema
from coordinator.storage.folder import DATABASE
from coordinator.storage.log import CannotOpen, Damaged
from coordinator.storage.marker import MARKER, Marker, read_marker
from coordinator.storage.schema import rows

ADVICE = "nothing was repaired: keep a copy of the folder, and restore a backup"
BUSY_MS = 5_000
"""SQLite's busy timeout: the longest wait for another connection, such as a backup's."""
PROBLEMS_MAX = 3
"""Greatest number of problems in one message."""


@dataclass(frozen=True, slots=True)
class Folder:
    """Result of `examine`: `marker` is None in a folder that was never used, or last used by a
    version without markers; `has_store` is False if a store is to be created."""

    marker: Marker | None
    has_store: bool


def open_to_read(path: Path, vfs: str | None = None) -> apsw.Connection:
    """Open one consistent view that lasts until the connection is closed; it never writes.

    Raises:
        apsw.Error: the file cannot be read.
    """
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY, vfs=vfs)
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.set_busy_timeout(BUSY_MS)
    # A bare BEGIN, not `with connection`: SQLite ends a transaction in which it finds damage, and
    # ending it again would raise an error that hides the damage.
    connection.execute("BEGIN")
    return connection


@contextlib.contextmanager
def sound_store(folder: Path, vfs: str | None = None) -> Iterator[apsw.Connection]:
    """Check a folder's store, and yield one consistent view of it.

    Raises:
        CannotOpen: there is no store, it cannot be read, or a newer version made it.
        Damaged: it is not what was written.
    """
    # The marker is read first: a store that is being served only grows after that.
    state = look(folder)
    path = folder / DATABASE
    if not state.has_store:
        raise CannotOpen(f"there is no {path}")
    with _in_words(path):
        connection = open_to_read(path, vfs)
        try:
            try:
                _check_store(connection, state.marker)
            except CannotOpen as error:
                raise CannotOpen(f"{path}: {error}") from error
            yield connection
        finally:
            connection.close(True)


def examine(folder: Path, vfs: str | None = None) -> Folder:
    """Check the store of a folder, if there is one, before anything is written.

    Raises:
        CannotOpen, Damaged: see `sound_store`.
    """
    state = look(folder)
    if state.has_store and state.marker is None:
        with _in_words(folder / DATABASE):
            if not _has_tables(folder / DATABASE, vfs):
                return Folder(None, False)  # A first start was interrupted.
    if state.has_store:
        with sound_store(folder, vfs):
            pass
    return state


def look(folder: Path) -> Folder:
    """Check the files of a folder, without SQLite: it would delete a log that has no database.

    Raises:
        CannotOpen: a file is of the wrong kind, or may not be read and written.
        Damaged: a file is missing or empty.
    """
    path, log = folder / DATABASE, folder / f"{DATABASE}-wal"
    sizes = {
        file: _size_of(file)
        for file in (path, log, folder / f"{DATABASE}-shm", folder / MARKER, folder / LOCK)
    }
    if folder.is_dir() and not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise CannotOpen(
            f"{folder} cannot be read and written, which SQLite needs even to read: change its "
            "permissions, or copy it to where they allow it"
        )
    try:
        marker = read_marker(folder)
    except Damaged as damage:
        raise Damaged(f"{damage}; {ADVICE}") from damage
    size_bytes = sizes[path]
    if size_bytes:
        return Folder(marker, True)
    reason = f"{path} is {'missing' if size_bytes is None else 'empty'}"
    if marker is not None:
        raise Damaged(f"{reason}, and the folder has been used; {ADVICE}")
    if sizes[log]:
        raise Damaged(f"{reason}, and its write-ahead log is not; {ADVICE}")
    return Folder(None, False)


def _size_of(path: Path) -> int | None:
    """Size of a file; None: there is no such file."""
    try:
        status = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise CannotOpen(
            f"{path} cannot be read: {error.strerror}; change the permissions of its folder"
        ) from error
    if stat.S_ISLNK(status.st_mode):
        raise CannotOpen(
            f"{path} is a symbolic link, and SQLite would look for the other files beside its "
            "target: put the file itself there, or make a link to the whole folder"
        )
    if not stat.S_ISREG(status.st_mode):
        raise CannotOpen(f"{path} is not a file: move it away; if it was one, restore a backup")
    if not os.access(path, os.R_OK | os.W_OK):
        raise CannotOpen(f"{path} cannot be read and written: change its permissions")
    return status.st_size


def _has_tables(path: Path, vfs: str | None) -> bool:
    # Opened for writing: SQLite rolls back what an interrupted first start has left.
    connection = apsw.Connection(str(path), vfs=vfs)
    try:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.set_busy_timeout(BUSY_MS)
        return bool(rows(connection, "SELECT 1 FROM sqlite_master LIMIT 1"))
    finally:
        connection.close(True)


@contextlib.contextmanager
def _in_words(path: Path) -> Iterator[None]:
    """Turn errors of SQLite and of the checks into messages that name the file."""
    try:
        yield
    except apsw.NotADBError as error:
        raise CannotOpen(
            f"{path}: {error}: restore a backup, or choose another data_dir if it is not ours"
        ) from error
    except apsw.Error as error:
        if is_damage(error):
            raise Damaged(f"{path}: {error}; {ADVICE}") from error
        raise CannotOpen(
            f"{path} cannot be used: {error}; see that its folder may be written and is on a disk "
            "that works, or restore a backup"
        ) from error
    except _Problem as problem:
        raise Damaged(f"{path}: {problem}; {ADVICE}") from problem


def is_damage(error: apsw.Error) -> bool:
    """True if the error means damage; False: the file may be sound, and cannot be used now.

    SQLite reports a file that ends too early as an I/O error.
    """
    if isinstance(error, apsw.CorruptError | apsw.NotADBError | apsw.SQLError):
        return True
    return bool(getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHORT_READ)


class _Problem(Exception):
    """A problem of the database; `_in_words` adds the file and the advice."""


def _check_store(connection: apsw.Connection, marker: Marker | None) -> None:
    """Check everything but the contents of entries and snapshots. Raises `_Problem` for damage."""
    present = schema.objects(connection)
    if ("table", "meta") not in present and marker is not None:
        raise _Problem("its table meta is missing")
    shards = schema.check_format(connection)
    expected = schema.expected_objects()
    for (kind, name), sql in expected.items():
        if (kind, name) not in present:
            raise _Problem(f"its {kind} {name} is missing")
        if present[kind, name] != sql:
            raise _Problem(f"its {kind} {name} is not the one that was made")
    results = [str(row[0]) for row in rows(connection, f"PRAGMA integrity_check({PROBLEMS_MAX})")]
    if results != ["ok"]:
        raise _Problem(", ".join(" ".join(part.split()) for part in results))
    fenced = {shard for (shard,) in rows(connection, "SELECT shard FROM fence WHERE shard >= 0")}
    if marker is not None:
        _check_against(connection, marker, shards, fenced)
    _check_shards(connection, shards, fenced)


def _check_against(
    connection: apsw.Connection, marker: Marker, shards: int, fenced: set[int]
) -> None:
    numbers = schema.store_numbers(connection)
    if set(numbers) - {marker.store}:
        raise _Problem(
            f"it, or its write-ahead log, is that of another store than {MARKER} was written for"
        )
    if shards != marker.shards:
        raise _Problem(f"it says {shards} shards, and it was made for {marker.shards}")
    missing = marker.owned_shards() - fenced
    if missing or len(numbers) < 2:
        names = ", ".join(map(str, sorted(missing)[:PROBLEMS_MAX])) or "the store itself"
        raise _Problem(f"rows are missing from its table fence or meta: {names}")
    entries, epochs = schema.totals(connection)
    if entries < marker.entries or epochs < marker.epochs:
        raise _Problem(
            f"of {marker.entries} entries that were acknowledged it has {entries} (and {epochs} of "
            f"{marker.epochs} epochs): an older copy, or its write-ahead log is missing or damaged"
        )


def _check_shards(connection: apsw.Connection, shards: int, fenced: set[int]) -> None:
    stray = {shard for shard in fenced if shard >= shards}
    for table in ("entry", "snapshot", "chunk"):
        numbers = {shard for (shard,) in rows(connection, f"SELECT DISTINCT shard FROM {table}")}  # noqa: S608
        stray |= numbers - fenced
    if stray:
        names = ", ".join(map(str, sorted(stray)[:PROBLEMS_MAX]))
        raise _Problem(f"there are rows of shards that are not in its table fence: {names}")
