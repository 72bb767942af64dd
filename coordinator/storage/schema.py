"""The tables of the SQLite log, its format version, and the pragmas it depends on.

meta      format version, number of shards, and a random number that identifies this store
fence     one row a shard: its epoch, and the last sequence number written; and a row -1 with the
          number of the store, so that pages of another store are noticed
entry     the log; rows of all shards in the order they were written, so that an append
          touches the end of one table and the one page of `fence`
chunk     slices of snapshots; they count once `snapshot` has their sequence number
snapshot  one row a shard: the last entry that it covers, and the number of its chunks
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import apsw

from coordinator.storage.log import CannotOpen

FORMAT = 1
"""Format version; increased when older versions cannot read new stores."""
STORE, STORE_ROW = "store", -1
"""Rows that hold the number of the store: one of `meta`, and one of `fence`."""

_TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE fence (
    shard INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, sequence INTEGER NOT NULL
) STRICT;
CREATE TABLE entry (
    id INTEGER PRIMARY KEY, shard INTEGER NOT NULL, epoch INTEGER NOT NULL,
    sequence INTEGER NOT NULL, frame BLOB NOT NULL
) STRICT;
CREATE TRIGGER claim BEFORE INSERT ON entry BEGIN
    UPDATE fence SET sequence = NEW.sequence
        WHERE shard = NEW.shard AND epoch = NEW.epoch AND sequence = NEW.sequence - 1;
    SELECT RAISE(IGNORE) WHERE changes() = 0;
END;
CREATE TABLE chunk (
    id INTEGER PRIMARY KEY, shard INTEGER NOT NULL, sequence INTEGER NOT NULL, frame BLOB NOT NULL
) STRICT;
CREATE TABLE snapshot (
    shard INTEGER PRIMARY KEY, sequence INTEGER NOT NULL, next_offset INTEGER NOT NULL,
    chunks INTEGER NOT NULL
) STRICT;
"""


def prepare(connection: apsw.Connection, shards: int) -> None:
    """Make the tables of a new store; check the format of an old one.

    Raises:
        CannotOpen: a newer version made it, or for another number of shards, or it is
            another kind of file.
        apsw.Error: the file cannot be written.
    """
    connection.execute("PRAGMA journal_mode = WAL").fetchall()
    # Every commit reaches the disk before it is acknowledged.
    connection.execute("PRAGMA synchronous = FULL")
    # The writer runs checkpoints: see `writer.py`.
    connection.execute("PRAGMA wal_autocheckpoint = 0").fetchall()
    with connection:
        if not rows(connection, "SELECT 1 FROM sqlite_master"):
            connection.execute(_TABLES)
            connection.executemany(
                "INSERT INTO meta VALUES (?, ?)", [("format", FORMAT), ("shards", shards)]
            )
    made_for = check_format(connection)
    if made_for != shards:
        raise CannotOpen(
            f"the store was made for {made_for} shards, which cannot change: set shards to that"
        )


def check_format(connection: apsw.Connection) -> int:
    """Check the format version, and return the number of shards.

    Raises:
        CannotOpen: a newer version made it, or it is another kind of file.
    """
    try:
        meta: dict[str, int] = dict(rows(connection, "SELECT name, value FROM meta"))
        version, shards = meta["format"], meta["shards"]
    except (apsw.SQLError, KeyError) as error:
        raise CannotOpen(
            "the file is a database, but not one of the coordinator's: choose another data_dir, or "
            "restore a backup"
        ) from error
    if version < 1 or shards < 1:
        raise CannotOpen(f"it says format {version} and {shards} shards: restore a backup")
    if version > FORMAT:
        raise CannotOpen(
            f"the store has format {version}, and this version reads up to {FORMAT}: a newer "
            "version has written it. Run that version, or restore a backup made before the upgrade"
        )
    return shards


def expected_objects() -> dict[tuple[str, str], str]:
    """Tables and triggers of a sound store by kind and name, as SQLite stores their SQL."""
    connection = apsw.Connection(":memory:")
    try:
        connection.execute(_TABLES)
        return objects(connection)
    finally:
        connection.close()


def objects(connection: apsw.Connection) -> dict[tuple[str, str], str]:
    """The tables and triggers that a database has."""
    stored = rows(connection, "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL")
    return {(kind, name): sql for kind, name, sql in stored}


def identify(connection: apsw.Connection, number: int, shards: Iterable[int]) -> int:
    """Give a store its number, and each shard a row of `fence`, unless they exist.

    Returns:
        The number of the store, new or old.
    """
    with connection:
        connection.execute("INSERT OR IGNORE INTO meta VALUES (?, ?)", (STORE, number))
        ((number,),) = rows(connection, "SELECT value FROM meta WHERE name = ?", STORE)
        connection.execute("INSERT OR REPLACE INTO fence VALUES (?, ?, 0)", (STORE_ROW, number))
        connection.executemany(
            "INSERT OR IGNORE INTO fence VALUES (?, 0, 0)", [(shard,) for shard in shards]
        )
    return number


def store_numbers(connection: apsw.Connection) -> list[int]:
    """Numbers of the store in its two places; empty: it was never given one."""
    stored = rows(
        connection,
        "SELECT value FROM meta WHERE name = ? UNION ALL SELECT epoch FROM fence WHERE shard = ?",
        STORE,
        STORE_ROW,
    )
    return [number for (number,) in stored]


def totals(connection: apsw.Connection) -> tuple[int, int]:
    """Sums of all shards' last sequence numbers and epochs, which only grow."""
    ((entries, epochs),) = rows(
        connection,
        "SELECT coalesce(sum(sequence), 0), coalesce(sum(epoch), 0) FROM fence WHERE shard >= 0",
    )
    return entries, epochs


def rows(connection: apsw.Connection, query: str, *values: object) -> list[tuple[Any, ...]]:
    """All rows of a query. Any: the tables are strict about the columns' types."""
    return connection.execute(query, values).fetchall()
