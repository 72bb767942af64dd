"""The tables of the PostgreSQL store, one schema a cluster; their format, and the store's lineage.

cluster   one row: format, number of shards, lineage, the controller, and a version of what nodes
          agree on
node      nodes: session token, description, and a beat that each renewal raises
shard     state of each shard as the controller decided it
fence     one row a shard: epoch and token of its owner, the last sequence number, and the lineage
          in which it was written last
entry     the log; the primary key is its order
chunk     slices of snapshots; they count once `snapshot` has their sequence number
snapshot  one row a shard: the last entry that it covers, and the number of its chunks
reservation  nodes that workers run, from before they start: see `postgres_reservations.py`
"""

from __future__ import annotations

from psycopg import sql

from coordinator.storage.log import CannotOpen
from coordinator.storage.postgres_connection import POSITION, PostgresConnection
from coordinator.storage.postgres_lineage import FIRST_LINEAGE

FORMAT = 1

TABLES = """
CREATE TABLE IF NOT EXISTS cluster (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    format integer NOT NULL, shards integer NOT NULL,
    lineage bigint NOT NULL, lineage_id bigint NOT NULL, raised bigint NOT NULL,
    system text NOT NULL, timeline bigint NOT NULL,
    controller_epoch bigint NOT NULL, controller text, version bigint NOT NULL
) WITH (fillfactor = 10);
CREATE TABLE IF NOT EXISTS node (
    id bigint PRIMARY KEY, session text NOT NULL, info text NOT NULL, beat bigint NOT NULL
) WITH (fillfactor = 10);
CREATE TABLE IF NOT EXISTS shard (
    shard integer PRIMARY KEY, version bigint NOT NULL, state text NOT NULL
);
CREATE TABLE IF NOT EXISTS fence (
    shard integer PRIMARY KEY, epoch bigint NOT NULL, token bigint NOT NULL,
    sequence bigint NOT NULL, lineage bigint NOT NULL
) WITH (fillfactor = 10);
CREATE TABLE IF NOT EXISTS entry (
    shard integer NOT NULL, sequence bigint NOT NULL, frame bytea NOT NULL,
    PRIMARY KEY (shard, sequence)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);
ALTER TABLE entry ALTER COLUMN frame SET STORAGE EXTERNAL;
CREATE TABLE IF NOT EXISTS chunk (
    shard integer NOT NULL, sequence bigint NOT NULL, number integer NOT NULL,
    frame bytea NOT NULL, PRIMARY KEY (shard, sequence, number)
);
ALTER TABLE chunk ALTER COLUMN frame SET STORAGE EXTERNAL;
CREATE TABLE IF NOT EXISTS snapshot (
    shard integer PRIMARY KEY, sequence bigint NOT NULL, next_offset bigint NOT NULL,
    chunks integer NOT NULL
);
CREATE TABLE IF NOT EXISTS reservation (
    node bigint PRIMARY KEY, token text NOT NULL, machine text NOT NULL,
    serves boolean NOT NULL DEFAULT false, made timestamptz NOT NULL DEFAULT clock_timestamp()
);
"""
_BOOT_LOCK = 0x636F6F7264  # The one advisory lock, held while tables are made.


def ddl(schema: str, shards: int, role: str = "") -> str:
    """SQL that makes the tables of an empty store, and grants a role all it needs at run time."""
    name = _quoted(schema)
    lines = [
        f"CREATE SCHEMA IF NOT EXISTS {name};",
        f"SET search_path = {name};",
        TABLES.strip(),
        "INSERT INTO cluster (format, shards, lineage, lineage_id, raised, system, timeline,",
        "    controller_epoch, version)",
        f"SELECT {FORMAT}, {shards}, {FIRST_LINEAGE}, (random() * {2**62})::bigint, 0, system,",
        "    ('x' || timeline)::bit(32)::bigint, 0, 0",
        f"FROM ({POSITION}) AS position (system, timeline, flushed)",
        "ON CONFLICT DO NOTHING;",
    ]
    if role:
        lines += [
            f"GRANT USAGE ON SCHEMA {name} TO {_quoted(role)};",
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {name}",
            f"    TO {_quoted(role)};",
        ]
    return "\n".join(lines) + "\n"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def prepare(connection: PostgresConnection, schema: str, shards: int | None) -> int:
    """Make the tables of a new store; check the format of an old one.

    Args:
        shards: number of shards; None: the store is not created.
    Returns:
        The store's number of shards.
    Raises:
        CannotOpen: a newer version made it, or for another number of shards, or it is missing.
        psycopg.Error: it cannot be made.
    """
    version = _format(connection, schema)
    if version is None and shards is not None:
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_BOOT_LOCK,))
            version = _format(connection, schema)
            if version is None:
                connection.execute(ddl(schema, shards).encode())
                version = FORMAT, shards
    if version is None:
        raise CannotOpen("there is no store of this name")
    stored, made_for = version
    if stored > FORMAT:
        raise CannotOpen(
            f"the store has format {stored}, and this version reads up to {FORMAT}: a newer "
            "version has written it. Run that version"
        )
    if shards not in (None, made_for):
        raise CannotOpen(
            f"the store was made for {made_for} shards, which cannot change: set shards to that"
        )
    return made_for


def exists(connection: PostgresConnection, schema: str) -> bool:
    """True if the store's tables were made."""
    return _format(connection, schema) is not None


def _format(connection: PostgresConnection, schema: str) -> tuple[int, int] | None:
    """Format and number of shards of a store; None: there is none."""
    row = connection.execute("SELECT to_regclass(%s)", (f"{_quoted(schema)}.cluster",)).fetchone()
    if row is None or row[0] is None:
        return None
    named = sql.SQL("SELECT format, shards FROM {}.cluster").format(sql.Identifier(schema))
    version_row = connection.execute(named).fetchone()
    return None if version_row is None else (version_row[0], version_row[1])
