"""The tables of the SQLite log, its format version, and the pragmas it depends on.

meta      format version and number of shards
fence     one row a shard: its epoch, and the last sequence number written
entry     the log; rows of all shards in the order they were written, so that an append
          touches the end of one table and the one page of `fence`
chunk     slices of snapshots; those of the newest are alive when `snapshot` says so
snapshot  one row a shard: up to which entry its chunks go
"""

from __future__ import annotations

from typing import Any

import apsw

from coordinator.storage.log import CannotOpen

FORMAT = 1
"""Grows when an older version could not read what is written."""

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
    """Make the tables of a new store; check those of an old one.

    Raises:
        CannotOpen: a newer version made it, or for another number of shards, or it is
            another kind of file.
        apsw.Error: the file cannot be written.
    """
    connection.execute("PRAGMA journal_mode = WAL").fetchall()
    # Every commit reaches the disk before it is acknowledged.
    connection.execute("PRAGMA synchronous = FULL")
    # The writer decides when: see `writer.py`.
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
    """The number of shards of a store that this version can read.

    Raises:
        CannotOpen: a newer version made it, or it is another kind of file.
    """
    try:
        meta: dict[str, int] = dict(rows(connection, "SELECT name, value FROM meta"))
        found, shards = meta["format"], meta["shards"]
    except (apsw.SQLError, KeyError) as error:
        raise CannotOpen("the file is a database, but not one of the coordinator's") from error
    if found > FORMAT:
        raise CannotOpen(
            f"the store has format {found}, and this version reads up to {FORMAT}: a newer version "
            "has written it. Run that version, or restore a backup made before the upgrade"
        )
    return shards


def rows(connection: apsw.Connection, query: str, *values: object) -> list[tuple[Any, ...]]:
    """All rows of a query. Any: the columns' types, which the tables are strict about."""
    return connection.execute(query, values).fetchall()
