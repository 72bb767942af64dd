"""Coordination in PostgreSQL: short transactions under the lock of one row, and beats.

Each change locks the row of `cluster`, is decided here, raises the version, and notifies the other
nodes. A process that is frozen inside one delays the others by the time limit of idle transactions.

A renewal raises the node's beat under its session's token, without waiting for the disk: what a
crash of the server loses of it is renewed at once. Its answer has the version, so a lost
notification is made up for, and how far the server has come in its lineage. Nodes are judged by
their beats (`node_heartbeats.py`), so the server's clock decides nothing.

Source: https://www.postgresql.org/docs/current/sql-notify.html
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import psycopg

from coordinator.core.values.ids import ShardId
from coordinator.storage.coordination import (
    NOBODY,
    ClusterView,
    Conflict,
    Deposed,
    NodeInfo,
    Session,
    ShardState,
    loop_time_s,
    signals,
)
from coordinator.storage.log import Ambiguous, LogError, LogUnavailable
from coordinator.storage.node_heartbeats import judge_others, outlive, renew
from coordinator.storage.postgres_connection import PostgresConnection, failure_of, server_pid
from coordinator.storage.postgres_lineage import PostgresStore, StoreWentBack

T = TypeVar("T")
LISTEN_S = 1.0
"""Interval at which the thread that listens looks whether it is to end."""
RELISTEN_S = 0.2
SURVEY_S = 10.0
"""Interval at which all hosts are asked which of them can be written."""

READ = """
SELECT lineage_id, lineage, controller_epoch, controller,
    (SELECT json_agg(json_build_array(id, session, info)) FROM node),
    (SELECT json_agg(json_build_array(shard, version, state)) FROM shard)
FROM cluster
"""
LOCK = "SELECT lineage_id, controller_epoch, controller, version FROM cluster FOR UPDATE"
CHANGE = "UPDATE cluster SET controller_epoch = %s, controller = %s, version = %s"
RENEW = """
WITH hurried AS (SELECT set_config('synchronous_commit', 'off', true))
UPDATE node SET beat = beat + 1 FROM hurried, cluster WHERE id = %s AND session = %s
RETURNING version, lineage_id, pg_wal_lsn_diff(pg_current_wal_flush_lsn(), '0/0'), pg_backend_pid()
"""
JOIN = """
INSERT INTO node VALUES (%(id)s, %(session)s, %(info)s, 1)
ON CONFLICT (id) DO UPDATE SET session = %(session)s, info = %(info)s, beat = node.beat + 1
"""
WRITE = """
INSERT INTO shard VALUES (%s, %s, %s)
ON CONFLICT (shard) DO UPDATE SET version = excluded.version, state = excluded.state
"""


class PostgresCoordination:
    """`Coordination` in a database whose tables `PostgresLog.open` has made.

    Args:
        timeout_s: of sessions.
    """

    def __init__(self, store: PostgresStore, *, timeout_s: float = 2.0) -> None:
        self._store = store
        self._timeout_s = timeout_s
        self._thread = ThreadPoolExecutor(1, "store-coordination")
        self._connection: PostgresConnection | None = None  # Used in that thread.
        self._pid = self._moves = 0
        self._joins = itertools.count(1)
        self._work: dict[Session, list[asyncio.Task[None]]] = {}
        self._listeners: dict[asyncio.Event, None] = {}
        self._version = 0  # The newest one that was told.
        self._listening: threading.Thread | None = None
        self._closing = threading.Event()

    async def join(self, node: NodeInfo) -> Session:
        while True:
            sent_at = loop_time_s()
            token = f"{node.incarnation}.{next(self._joins)}"
            beat = await self._run_job(partial(self._heartbeat_of, node.node_id))
            if beat is not None and _incarnation(beat[0]) != node.incarnation:
                check_node = partial(self._read_node, node.node_id)
                await outlive(node.node_id, beat, self._timeout_s, check_node)
            if await self._run_job(partial(self._join, node, token, beat)):
                break
        assert self._store.lineage is not None
        session = _Session(
            node, self._timeout_s, sent_at, token=token, lineage_id=self._store.lineage.id
        )
        work = (
            renew(session, partial(self._renew, session)),
            judge_others(session, partial(self._run_job, self._heartbeats), self._take_out_silent),
            self._survey(),
        )
        self._work[session] = [asyncio.create_task(part) for part in work]
        return session

    async def announce(self, session: Session, node: NodeInfo) -> None:
        def announce(connection: PostgresConnection) -> bool:
            with self._change(connection) as agreed:
                changed = connection.execute(
                    "UPDATE node SET info = %s WHERE id = %s AND session = %s",
                    (node.to_bytes().decode(), node.node_id, _token(session)),
                )
                agreed.is_changed = changed.rowcount == 1
            return agreed.is_changed

        if await self._run_job(announce):
            session.node = node
        else:
            session.lost.set()

    async def campaign(self, session: Session) -> int | None:
        def campaign(connection: PostgresConnection) -> tuple[bool, int | None]:
            with self._change(connection) as agreed:
                living = self._living(connection)
                if living.get(session.node.node_id) != _token(session):
                    return False, None
                if agreed.controller == _signature(session):
                    return True, agreed.controller_epoch
                if _living_controller(agreed.controller, living) != NOBODY:
                    return True, None
                agreed.controller = _signature(session)
                agreed.controller_epoch += 1
                agreed.is_changed = True
                return True, agreed.controller_epoch

        is_living, epoch = await self._run_job(campaign)
        if not is_living:
            session.lost.set()
        return epoch

    async def resign(self, session: Session) -> None:
        def resign(connection: PostgresConnection) -> None:
            with self._change(connection) as agreed:
                if agreed.controller == _signature(session):
                    agreed.controller, agreed.is_changed = None, True

        await self._run_job(resign)

    async def read(self) -> ClusterView:
        def read(connection: PostgresConnection) -> tuple[Any, ...]:
            row = connection.execute(READ).fetchone()
            assert row is not None
            return row

        lineage, number, epoch, controller, nodes, shards = await self._run_job(read)
        living = {number: session for number, session, _ in nodes or ()}
        return ClusterView(
            {number: NodeInfo.from_bytes(info.encode()) for number, _, info in nodes or ()},
            _living_controller(controller, living),
            epoch,
            {
                ShardId(shard): ShardState.from_bytes(state.encode(), version)
                for shard, version, state in shards or ()
            },
            lineage,
            number,
        )

    async def write(self, controller_epoch: int, *states: ShardState) -> list[ShardState]:
        def write(connection: PostgresConnection) -> list[ShardState]:
            with self._change(connection) as agreed:
                if agreed.controller_epoch != controller_epoch:
                    raise Deposed(
                        f"controller epoch {controller_epoch} has been followed by "
                        f"{agreed.controller_epoch}"
                    )
                stored: dict[int, int] = dict(
                    connection.execute("SELECT shard, version FROM shard").fetchall()
                )
                for state in states:
                    if state.version != stored.get(state.shard, 0):
                        raise Conflict(f"shard {state.shard} was written meanwhile")
                written = [replace(state, version=agreed.version + 1) for state in states]
                with connection.cursor() as cursor:
                    cursor.executemany(
                        WRITE,
                        [
                            (new_state.shard, new_state.version, new_state.to_bytes().decode())
                            for new_state in written
                        ],
                    )
                agreed.is_changed = bool(written)
            return written

        return await self._run_job(write)

    def changes(self) -> AsyncIterator[None]:
        changed = asyncio.Event()
        self._listeners[changed] = None
        if self._listening is None:
            tell = partial(asyncio.get_running_loop().call_soon_threadsafe, self._notify)
            self._listening = threading.Thread(
                target=self._listen, args=(tell,), name="store-listener", daemon=True
            )
            self._listening.start()
        return signals(changed, lambda: self._listeners.pop(changed))

    async def leave(self, session: Session) -> None:
        for task in self._work.pop(session, ()):
            task.cancel()
        session.lost.set()
        with contextlib.suppress(LogUnavailable, Ambiguous):  # Then it ends by itself.
            await self._run_job(
                partial(self._take_out, session.node.node_id, _token(session), None)
            )

    async def close(self) -> None:
        for tasks in self._work.values():
            for task in tasks:
                task.cancel()
        self._closing.set()
        self._thread.submit(self._hang_up)
        await asyncio.to_thread(self._thread.shutdown)
        if self._listening is not None:
            await asyncio.to_thread(self._listening.join)

    # --- On the loop ---

    async def _run_job(self, job: Callable[[PostgresConnection], T]) -> T:
        """Run a job on the connection, in its thread.

        Raises:
            Unavailable, Ambiguous: the server failed.
        """
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._carry_out, job)

    async def _renew(self, session: _Session) -> bool:
        row = await self._run_job(partial(self._send_heartbeat, session))
        if row is None:
            return False
        version, lineage_id = row
        if lineage_id != session.lineage_id:
            return False
        if version != self._version:
            self._version = version
            self._notify()
        return True

    async def _read_node(self, number: int) -> tuple[tuple[str, int] | None, str]:
        row = await self._run_job(partial(self._heartbeat_of, number))
        return row, "" if row is None else _incarnation(row[0])

    async def _take_out_silent(self, number: int, beat: tuple[str, int]) -> None:
        await self._run_job(partial(self._take_out, number, *beat))

    async def _survey(self) -> None:
        """Ask all hosts from time to time; nothing to ask if there is one."""
        while len(self._store.server.target.hosts) > 1:
            await asyncio.sleep(SURVEY_S)
            with contextlib.suppress(LogError, psycopg.Error):
                await asyncio.to_thread(self._store.survey)

    def _notify(self) -> None:
        for changed in self._listeners:
            changed.set()

    # --- In the thread of the connection ---

    def _carry_out(self, job: Callable[[PostgresConnection], T]) -> T:
        if self._moves != self._store.moves:
            self._hang_up()
        if self._connection is None:
            self._moves = self._store.moves
            self._connection = self._store.connect()
            self._pid = server_pid(self._connection)
        connection = self._connection
        try:
            # Longer than the time limit of a lock, which is a third of a session.
            with self._store.server.watchdog.limit(connection, self._timeout_s / 2):
                return job(connection)
        except psycopg.Error as error:
            self._hang_up()
            raise failure_of(error, is_sent=True) from error
        except StoreWentBack:
            self._hang_up()
            raise

    def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @contextlib.contextmanager
    def _change(self, connection: PostgresConnection) -> Iterator[_Agreed]:
        """A transaction under the lock of the row of `cluster`, which is written if it changed."""
        with connection.transaction():
            row = connection.execute(LOCK).fetchone()
            assert row is not None
            agreed = _Agreed(*row)
            self._store.note(agreed.lineage_id, agreed.version)
            yield agreed
            if agreed.is_changed:
                values = agreed.controller_epoch, agreed.controller, agreed.version + 1
                connection.execute(CHANGE, values)
                channel = self._store.server.target.schema
                connection.execute("SELECT pg_notify(%s, '')", (channel,))
        if agreed.is_changed:
            self._store.note(agreed.lineage_id, agreed.version + 1)

    @staticmethod
    def _living(connection: PostgresConnection) -> dict[int, str]:
        """Tokens of the living sessions, by node."""
        return dict(connection.execute("SELECT id, session FROM node").fetchall())

    @staticmethod
    def _heartbeats(connection: PostgresConnection) -> dict[int, tuple[str, int]]:
        rows = connection.execute("SELECT id, session, beat FROM node").fetchall()
        return {number: (session, beat) for number, session, beat in rows}

    @staticmethod
    def _heartbeat_of(number: int, connection: PostgresConnection) -> tuple[str, int] | None:
        """Token and beat of a node."""
        rows = connection.execute("SELECT session, beat FROM node WHERE id = %s", (number,))
        row = rows.fetchone()
        return None if row is None else (row[0], row[1])

    def _send_heartbeat(
        self, session: Session, connection: PostgresConnection
    ) -> tuple[int, int] | None:
        row = connection.execute(RENEW, (session.node.node_id, _token(session))).fetchone()
        if row is None:
            return None
        version, lineage_id, flushed, pid = row
        if pid != self._pid:
            self._hang_up()
            raise LogUnavailable(
                "a pooler gives statements to any server process: use session mode"
            )
        self._store.note(lineage_id, version, int(flushed))
        return version, lineage_id

    def _join(
        self,
        node: NodeInfo,
        token: str,
        instead: tuple[str, int] | None,
        connection: PostgresConnection,
    ) -> bool:
        """Begin a session, if the node is still as it was read; or is one of this process."""
        with self._change(connection) as agreed:
            beat = self._heartbeat_of(node.node_id, connection)
            if beat != instead and beat is not None:
                if _incarnation(beat[0]) != node.incarnation:
                    return False
            info = node.to_bytes().decode()
            connection.execute(JOIN, {"id": node.node_id, "session": token, "info": info})
            agreed.is_changed = True
        return True

    def _take_out(
        self, number: int, session: str, beat: int | None, connection: PostgresConnection
    ) -> None:
        """End a node's session, if that is its last beat, and its controller epoch with it."""
        with self._change(connection) as agreed:
            gone = connection.execute(
                "DELETE FROM node WHERE id = %s AND session = %s AND beat = coalesce(%s, beat)",
                (number, session, beat),
            )
            if gone.rowcount:
                agreed.is_changed = True
                if agreed.controller == f"{number} {session}":
                    agreed.controller = None

    # --- In the thread that listens ---

    def _listen(self, tell: Callable[[], object]) -> None:
        """Tell of each notification; and of each new connection, since some may be missed."""
        while not self._closing.is_set():
            with contextlib.suppress(LogError, psycopg.Error, RuntimeError):
                with contextlib.closing(self._store.connect()) as connection:
                    channel = psycopg.sql.Identifier(self._store.server.target.schema)
                    connection.execute(psycopg.sql.SQL("LISTEN {}").format(channel))
                    tell()
                    moves = self._store.moves
                    while not self._closing.is_set() and moves == self._store.moves:
                        for _ in connection.notifies(timeout=LISTEN_S, stop_after=1):
                            tell()
            self._closing.wait(RELISTEN_S)


@dataclass(eq=False, kw_only=True)
class _Session(Session):
    """A session with a token that no other of its node has, and the lineage it began in."""

    token: str
    lineage_id: int


@dataclass(slots=True)
class _Agreed:
    """The row of `cluster` inside a transaction."""

    lineage_id: int
    controller_epoch: int
    controller: str | None
    version: int
    is_changed: bool = False


def _token(session: Session) -> str:
    assert isinstance(session, _Session), "a session of another store"
    return session.token


def _signature(session: Session) -> str:
    return f"{session.node.node_id} {_token(session)}"


def _incarnation(token: str) -> str:
    """The incarnation of the process that has a session."""
    return token.rpartition(".")[0]


def _living_controller(signature: str | None, living: dict[int, str]) -> int:
    """The node whose living session a signature names."""
    number, _, token = (signature or "").partition(" ")
    if not number.isdigit() or living.get(int(number)) != token:
        return NOBODY
    return int(number)
