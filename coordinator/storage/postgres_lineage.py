"""The lineage of a PostgreSQL store: how it is noticed that the store has lost commits.

A standby that replicates asynchronously and is promoted is the store as of an earlier
moment: acknowledged entries are gone, and the numbers in them would be issued again. So `cluster`
names the history that it belongs to by the server's system identifier and timeline. Whoever finds
another history there begins a new lineage, in one transaction: all epochs and versions are raised
by a `raise` that no other promotion has drawn, all fence tokens are replaced, and nobody is a node,
the controller or a leader. So does a node that finds less in the same history than was there
before: a shorter write-ahead log, an older version of what nodes agree on, or a shard that it has
owned without an entry or a take-over that was acknowledged. Then a copy was put back under running
nodes. The id of a lineage is random, because two standbys that are promoted independently agree in
everything else.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import psycopg

from coordinator.core.values.ids import ShardId
from coordinator.storage.coordination import NOBODY, ShardState
from coordinator.storage.log import CannotOpen, LogUnavailable
from coordinator.storage.postgres_connection import (
    POSITION,
    Position,
    PostgresConnection,
    Server,
    failure_of,
    position_of,
)

RAISE_MIN, RAISE_RANDOM = 1 << 16, 1 << 20
"""Numbers that epochs are raised by in a new lineage: more than were issued in the lost interval,
and a random number besides, so that two standbys promoted in turn do not issue the same ones."""
FIRST_LINEAGE = 1
CHECK_S = 10.0
"""Time limit of a check, which may wait for another node's."""


@dataclass(frozen=True, slots=True)
class Lineage:
    """History of a store since commits were last lost.

    number: counts lineages from 1. id: random. raised: what its epochs were raised by; 0: the first
    lineage. position: of the server in it; `flushed` is what a reader has seen, and so is
    version: of what nodes agree on.
    """

    number: int
    id: int
    raised: int
    version: int
    position: Position


@dataclass(frozen=True, slots=True)
class WentBack:
    """A store was found to have lost commits: the lineage before, and the one begun since."""

    before: Lineage
    after: Lineage

    def __str__(self) -> str:
        old, new = self.before.position, self.after.position
        was, now = (
            f"timeline {position.timeline} of system {position.system}" for position in (old, new)
        )
        reason = (
            f"a copy of {now} was put back" if was == now else f"it was {was}, and is {now} now"
        )
        come = f", which had come to {_lsn(old)}" if old.flushed else ""
        return (
            f"the store went back: {reason}, at {_lsn(new)}{come}, so commits that were "
            f"acknowledged last may be lost; lineage {self.after.number} begins, and numbers go on "
            f"{self.after.raised:,} higher"
        )


def _lsn(position: Position) -> str:
    """Position in the write-ahead log as PostgreSQL's tools write it."""
    return f"LSN {position.flushed >> 32:X}/{position.flushed & 0xFFFFFFFF:X}"


@dataclass(frozen=True, slots=True)
class LastAcknowledged:
    """A shard as this process had it acknowledged last: its take-over, and the last entry."""

    lineage_id: int
    epoch: int
    token: int
    sequence: int

    def is_lost(self, epoch: int, token: int, sequence: int) -> bool:
        """True if the store, in the same lineage, has less, or has issued the epoch twice."""
        if epoch == self.epoch and token != self.token:
            return True
        return epoch < self.epoch or sequence < self.sequence


class StoreWentBack(LogUnavailable):
    """A connection has shown less than the store had: the next one begins a new lineage."""


_LINEAGE = "SELECT lineage, lineage_id, raised, version, system, timeline FROM cluster"


def stored_lineage(row: tuple[Any, ...], flushed: int = 0) -> Lineage:
    """The lineage in a row of (lineage, lineage_id, raised, version, system, timeline)."""
    number, id_, raised, version, system, timeline = row
    return Lineage(number, id_, raised, version, Position(int(system), timeline, flushed))


def check_lineage(
    connection: PostgresConnection,
    seen: Lineage | None = None,
    acknowledged: Mapping[ShardId, LastAcknowledged] | None = None,
    *,
    is_restored: bool = False,
) -> tuple[Lineage, WentBack | None]:
    """The lineage of the store as it is; a new one is begun if the store has lost commits.

    Args:
        seen: the lineage as this process saw it last. A server that has flushed less since, in the
            same lineage, was put back; so was one with an older version.
        acknowledged: shards as this process had them last; so was a server that has less of one.
        is_restored: the store is known to have lost commits, though nothing may show it.
    """
    owned = dict(acknowledged or {})  # Before the store is read, which has all of it then.

    def is_as_before(stored: Lineage) -> bool:
        has_less = is_restored or _has_lost(connection, stored.id, owned)
        return _is_same(stored, position, seen) and not has_less

    row = connection.execute(_LINEAGE).fetchone()
    assert row is not None
    position = server_position(connection)
    if is_as_before(stored_lineage(row)):
        return stored_lineage(row, position.flushed), None
    with connection.transaction():
        row = connection.execute(f"{_LINEAGE} FOR UPDATE").fetchone()
        assert row is not None
        known = None if seen is None or seen.id != row[1] else seen
        before = stored_lineage(row, 0 if known is None else known.position.flushed)
        if is_as_before(before):  # Another node was faster.
            return replace(before, position=position), None
        raised = RAISE_MIN + secrets.randbelow(RAISE_RANDOM)
        after = Lineage(
            before.number + 1, secrets.randbits(62), raised, before.version + raised, position
        )
        _begin(connection, after)
    return after, WentBack(before, after)


def _is_same(stored: Lineage, position: Position, seen: Lineage | None) -> bool:
    if (stored.position.system, stored.position.timeline) != (position.system, position.timeline):
        return False
    if seen is not None and (seen.number, seen.id) == (stored.number, stored.id):
        return position.flushed >= seen.position.flushed and stored.version >= seen.version
    return True


def _has_lost(
    connection: PostgresConnection, lineage_id: int, owned: Mapping[ShardId, LastAcknowledged]
) -> bool:
    """True if the store has less of a shard than this process had acknowledged in the lineage."""
    owned = {shard: one for shard, one in owned.items() if one.lineage_id == lineage_id}
    if not owned:
        return False
    rows = connection.execute("SELECT shard, epoch, token, sequence FROM fence").fetchall()
    stored = {shard: row for shard, *row in rows}
    return any(one.is_lost(*stored.get(shard, (0, 0, 0))) for shard, one in owned.items())


def _begin(connection: PostgresConnection, new: Lineage) -> None:
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


def server_position(connection: PostgresConnection) -> Position:
    row = connection.execute(POSITION).fetchone()
    assert row is not None
    return position_of(row)


@dataclass(slots=True)
class PostgresStore:
    """A server and the lineage that this process has seen there. Used in any thread.

    Args:
        report: told of a `WentBack`, and of hosts that can be written besides the one in use.
    """

    server: Server
    report: Callable[[str, str], None] = lambda what, words: None
    lineage: Lineage | None = None
    acknowledged: dict[ShardId, LastAcknowledged] = field(default_factory=dict)
    """Shards that this process has taken over. Written by the log."""
    moves: int = 0
    """Number of times that another host was found to be the one to write to: connections made
    before are left."""
    _host: str = ""  # The one that connections are to be made to, as of the last survey.
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def connect(self, *, to_survey: bool = False) -> PostgresConnection:
        """A new connection, in the lineage that is noted here.

        Args:
            to_survey: wait for the answers of all hosts.
        Raises:
            LogUnavailable: no host can be written, or none suits; an old primary never does.
        """
        try:
            known = self.lineage
            connection = self.server.connect(0 if known is None or to_survey else known.number)
        except CannotOpen as error:
            raise LogUnavailable(str(error), is_lasting=True) from error
        try:
            with self.server.watchdog.limit(connection, CHECK_S):
                self.check(connection)
        except psycopg.Error as error:
            connection.close()
            raise failure_of(error, is_sent=False) from error
        except LogUnavailable:
            connection.close()
            raise
        self._host = self._host or self.server.host
        return connection

    def check(self, connection: PostgresConnection, *, is_restored: bool = False) -> None:
        """Notice if the store has lost commits since this process or any other saw it last.

        Args:
            is_restored: see `check_lineage`.
        Raises:
            LogUnavailable: the server has a lineage before the one that is noted here. It is an old
                primary, and the new one cannot be reached just now.
        """
        lineage, went_back = check_lineage(
            connection, self.lineage, self.acknowledged, is_restored=is_restored
        )
        with self._lock:
            known = self.lineage
            if known is not None and lineage.number < known.number:
                raise LogUnavailable(
                    f"the server at {connection.info.host}:{connection.info.port} has lineage "
                    f"{lineage.number}, and lineage {known.number} has begun elsewhere; if an "
                    "older copy was put back there, run `coordinator store restored`"
                )
            if known is None or lineage.id != known.id:
                self.lineage = lineage
        if went_back is None and known is not None and lineage.id != known.id:
            went_back = WentBack(known, lineage)  # Another node has noticed it first.
        if went_back is not None:
            self.report("store_went_back", str(went_back))

    def note(self, lineage_id: int, version: int, flushed: int | None = None) -> None:
        """Note what the store has in a lineage: a version, and how far the server has come.

        Raises:
            StoreWentBack: it was newer before.
        """
        with self._lock:
            known = self.lineage
            if known is None or known.id != lineage_id:
                return
            if version < known.version:
                raise StoreWentBack(
                    f"the store went back: it has version {version} after {known.version}"
                )
            position = (
                known.position if flushed is None else replace(known.position, flushed=flushed)
            )
            self.lineage = replace(known, version=version, position=position)

    def survey(self) -> None:
        """Ask all hosts again which of them can be written; leave one that has been overtaken."""
        self.connect(to_survey=True).close()
        if self.server.host != self._host:
            self._host = self.server.host
            self.moves += 1
        if self.server.rivals:
            others = ", ".join(self.server.rivals)
            self.report("two_primaries", f"{others} can be written besides {self.server.host}")
