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

**Lineage.** A standby that replicates asynchronously and is promoted is the store as of an earlier
moment: acknowledged entries are gone, and the numbers in them would be issued again. So `cluster`
names the history that it belongs to by the server's system identifier and timeline. Whoever finds
another history there begins a new lineage, in one transaction: all epochs and versions are raised
by a `raise` that no other promotion has drawn, all fence tokens are replaced, and nobody is a node,
the controller or a leader. The id of a lineage is random, because two standbys that are promoted
independently agree in everything else.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, replace
from typing import Any

from psycopg import sql

from coordinator.storage.coordination import NOBODY, ShardState
from coordinator.storage.log import CannotOpen
from coordinator.storage.postgres_connection import (
    POSITION,
    Connection,
    Position,
    position_of,
)

FORMAT = 1
RAISE_MIN, RAISE_RANDOM = 1 << 16, 1 << 20
"""What epochs are raised by in a new lineage: more than were issued in the lost interval, and a
random number besides, so that two standbys promoted in turn do not issue the same ones."""

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
"""
_BOOT_LOCK = 0x636F6F7264  # The one advisory lock, held while tables are made.
TABLE_NAMES = ("cluster", "node", "shard", "fence", "entry", "chunk", "snapshot")


@dataclass(frozen=True, slots=True)
class Lineage:
    """History of a store since commits were last lost.

    number: counts lineages from 1. id: random. raised: what its epochs were raised by; 0: the first
    lineage. position: of the server in it; `flushed` is what a reader has seen.
    """

    number: int
    id: int
    raised: int
    position: Position


@dataclass(frozen=True, slots=True)
class WentBack:
    """A store was found to have lost commits: the lineage before, and the one begun since."""

    before: Lineage
    after: Lineage

    def __str__(self) -> str:
        old, new = self.before.position, self.after.position
        return (
            f"the store went back: it was timeline {old.timeline} of system {old.system}, and is "
            f"timeline {new.timeline} of system {new.system} now, so commits that were acknowledged"
            f" last may be lost; numbers go on {self.after.raised:,} higher"
        )


def ddl(schema: str, role: str = "") -> str:
    """SQL that makes the tables, and grants a role all it needs at run time."""
    name = _quoted(schema)
    lines = [f"CREATE SCHEMA IF NOT EXISTS {name};", f"SET search_path = {name};", TABLES.strip()]
    if role:
        lines += [
            f"GRANT USAGE ON SCHEMA {name} TO {_quoted(role)};",
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {name}",
            f"    TO {_quoted(role)};",
        ]
    return "\n".join(lines) + "\n"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def prepare(connection: Connection, schema: str, shards: int | None) -> int:
    """Make the tables of a new store; check the format of an old one.

    Args:
        shards: number of shards; None: the store is not created.
    Returns:
        The store's number of shards.
    Raises:
        CannotOpen: a newer version made it, or for another number of shards, or it is missing.
        psycopg.Error: it cannot be made.
    """
    found = _format(connection, schema)
    if found is None and shards is not None:
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_BOOT_LOCK,))
            found = _format(connection, schema)
            if found is None:
                connection.execute(ddl(schema).encode())
                position = _position(connection)
                found = FORMAT, shards
                connection.execute(
                    "INSERT INTO cluster (format, shards, lineage, lineage_id, raised, system, "
                    "timeline, controller_epoch, version) VALUES (%s, %s, 1, %s, 0, %s, %s, 0, 0) "
                    "ON CONFLICT DO NOTHING",
                    (*found, secrets.randbits(62), str(position.system), position.timeline),
                )
    if found is None:
        raise CannotOpen("there is no store of this name")
    stored, made_for = found
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


def _format(connection: Connection, schema: str) -> tuple[int, int] | None:
    """Format and number of shards of a store; None: there is none."""
    row = connection.execute("SELECT to_regclass(%s)", (f"{_quoted(schema)}.cluster",)).fetchone()
    if row is None or row[0] is None:
        return None
    named = sql.SQL("SELECT format, shards FROM {}.cluster").format(sql.Identifier(schema))
    found = connection.execute(named).fetchone()
    return None if found is None else (found[0], found[1])


def _position(connection: Connection) -> Position:
    row = connection.execute(POSITION).fetchone()
    assert row is not None
    return position_of(row)


# --- Lineage ------------------------------------------------------------------------------------

_LINEAGE = "SELECT lineage, lineage_id, raised, system, timeline FROM cluster"


def stored_lineage(row: tuple[Any, ...], flushed: int = 0) -> Lineage:
    """The lineage in a row of (lineage, lineage_id, raised, system, timeline)."""
    number, id_, raised, system, timeline = row
    return Lineage(number, id_, raised, Position(int(system), timeline, flushed))


def check_lineage(
    connection: Connection, seen: Lineage | None = None, *, is_restored: bool = False
) -> tuple[Lineage, WentBack | None]:
    """The lineage of the store as it is; a new one is begun if the store has lost commits.

    Args:
        seen: the lineage as this process saw it last. A server that has flushed less since, in the
            same lineage, was put back.
        is_restored: an operator says that a copy was put back, which nothing else shows.
    """
    row = connection.execute(_LINEAGE).fetchone()
    assert row is not None
    position = _position(connection)
    if not is_restored and _is_same(stored_lineage(row), position, seen):
        return stored_lineage(row, position.flushed), None
    with connection.transaction():
        row = connection.execute(f"{_LINEAGE} FOR UPDATE").fetchone()
        assert row is not None
        before = stored_lineage(row)
        if not is_restored and _is_same(before, position, seen):  # Another node was faster.
            return replace(before, position=position), None
        after = Lineage(
            before.number + 1,
            secrets.randbits(62),
            RAISE_MIN + secrets.randbelow(RAISE_RANDOM),
            position,
        )
        _begin(connection, after)
    return after, WentBack(before, after)


def _is_same(stored: Lineage, position: Position, seen: Lineage | None) -> bool:
    if (stored.position.system, stored.position.timeline) != (position.system, position.timeline):
        return False
    if seen is not None and (seen.number, seen.id) == (stored.number, stored.id):
        return position.flushed >= seen.position.flushed
    return True


def _begin(connection: Connection, new: Lineage) -> None:
    """Write a new lineage: all numbers raised, all tokens replaced, nobody in charge."""
    connection.execute(
        "UPDATE cluster SET lineage = %s, lineage_id = %s, raised = %s, system = %s, "
        "timeline = %s, controller_epoch = controller_epoch + %s, controller = NULL, "
        "version = version + %s",
        (
            new.number, new.id, new.raised, str(new.position.system), new.position.timeline,
            new.raised, new.raised,
        ),
    )  # fmt: skip
    connection.execute("DELETE FROM node")
    for shard, version, state in connection.execute("SELECT shard, version, state FROM shard"):
        stored = ShardState.from_bytes(state.encode(), version)
        raised = replace(stored, leader=NOBODY, leader_epoch=stored.leader_epoch + new.raised)
        connection.execute(
            "UPDATE shard SET version = version + %s, state = %s WHERE shard = %s",
            (new.raised, raised.to_bytes().decode(), shard),
        )
    for (shard,) in connection.execute("SELECT shard FROM fence").fetchall():
        connection.execute(
            "UPDATE fence SET token = %s WHERE shard = %s", (secrets.randbits(62), shard)
        )


def described(lineage: Lineage) -> str:
    """A lineage as JSON, for operators."""
    return json.dumps(
        {
            "lineage": lineage.number,
            "raised": lineage.raised,
            "system": str(lineage.position.system),
            "timeline": lineage.position.timeline,
        }
    )
