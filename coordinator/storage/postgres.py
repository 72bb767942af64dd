"""The log in PostgreSQL: one statement appends the entries of all shards that wait.

The statement locks the shards' rows of `fence` in the order of their numbers, compares epoch, token
and sequence number, claims the next numbers, and inserts the entries. READ COMMITTED compares again
what was changed meanwhile, so an append that is ordered behind a take-over is refused. A row that
another session has locked is left out: that shard tries again, and the others go on. It is one
autocommitted statement, so a process that is frozen holds no lock.

A commit is acknowledged when the server's own disk has it, and its synchronous standbys if it has
any. What a promotion of another standby loses is noticed: see `postgres_schema.py`.

Source: https://www.postgresql.org/docs/current/transaction-iso.html, 13.2.1
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import psycopg
from psycopg.adapt import Dumper
from psycopg.pq import Format

from coordinator.core.values.ids import ShardId
from coordinator.storage import entry as frames
from coordinator.storage.group_commit import GroupCommit, QueuedJob
from coordinator.storage.log import (
    FENCES_PER_LEADER_EPOCH,
    Ambiguous,
    CannotOpen,
    Entry,
    Fence,
    Loaded,
    LogError,
    LogUnavailable,
    ShardSnapshot,
    TooLarge,
    next_fence_epoch,
)
from coordinator.storage.postgres_connection import (
    COMMITTED_LOCALLY,
    CommittedLocally,
    PostgresConnection,
    failure_of,
)
from coordinator.storage.postgres_lineage import FIRST_LINEAGE, LastAcknowledged, PostgresStore
from coordinator.storage.postgres_schema import prepare
from coordinator.storage.slices import chunks
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

T = TypeVar("T")
FRAME_BYTES_MAX = 16 * 1024 * 1024
CALL_S = 10.0
"""Time limit of an append, after which it is ambiguous. A synchronous standby may take as long."""
READ_S = 60.0
"""Time limit of a load, or of a step of a snapshot."""
IDLE_S = 5.0
THREADS = 4
"""Loads and snapshots at a time, each with a connection."""
LOCKED_S = 0.01
"""Interval of attempts to append to a shard whose row is locked, for a third of a session."""
BATCH_MAX = 4_096

APPEND = """
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(%s, %s, %s, %s, %s) AS g(shard, epoch, token, sequence, frame)
), held AS MATERIALIZED (
    SELECT f.shard FROM fence f JOIN given g USING (shard)
    WHERE f.epoch = g.epoch AND f.token = g.token AND f.sequence = g.sequence - 1
    ORDER BY f.shard FOR NO KEY UPDATE OF f SKIP LOCKED
), claimed AS (
    UPDATE fence f SET sequence = g.sequence, lineage = %s FROM given g JOIN held USING (shard)
    WHERE f.shard = g.shard AND f.epoch = g.epoch AND f.token = g.token
        AND f.sequence = g.sequence - 1
    RETURNING f.shard
)
INSERT INTO entry SELECT g.shard, g.sequence, g.frame FROM given g JOIN claimed USING (shard)
RETURNING shard
"""
TAKE_OVER = """
INSERT INTO fence AS f (shard, epoch, token, sequence, lineage)
VALUES (%(shard)s, %(first)s + 1, %(token)s, 0, %(lineage)s)
ON CONFLICT (shard) DO UPDATE
SET epoch = greatest(f.epoch, %(first)s) + 1, token = %(token)s
WHERE (greatest(f.epoch, %(first)s) + 1) / %(size)s = %(leader_epoch)s
RETURNING epoch, sequence, (SELECT lineage_id FROM cluster)
"""
RAISED = """
SELECT CASE WHEN f.lineage = c.lineage THEN 0 ELSE c.raised END
FROM fence f, cluster c WHERE f.shard = ?
"""
CONFIRM = """
UPDATE fence SET sequence = sequence WHERE shard = (
    SELECT shard FROM fence WHERE shard = %s AND epoch = %s AND token = %s
    FOR NO KEY UPDATE SKIP LOCKED
)
"""
DIALECT = Dialect(
    fence="SELECT epoch, token, sequence FROM fence WHERE shard = ?",
    locked_fence="SELECT epoch, token, sequence FROM fence WHERE shard = ? FOR NO KEY UPDATE",
    entries="SELECT sequence, frame FROM entry WHERE shard = ? AND sequence > ? ORDER BY sequence",
    chunks="SELECT frame FROM chunk WHERE shard = ? AND sequence = ? ORDER BY number",
)


class PostgresLog:
    """`GroupLog` in a database of PostgreSQL 14 or later.

    Use `PostgresLog.open`.
    """

    def __init__(self, store: PostgresStore) -> None:
        self.shards = 0
        self._store = store
        self._connection: PostgresConnection | None = None  # The writer's, used in its thread.
        self._moves = 0
        self._warnings: list[str] = []
        self._threads = ThreadPoolExecutor(THREADS, "store-read")
        self._writer = GroupCommit(
            self._commit, rest=lambda _: None, end=self._hang_up, idle_s=IDLE_S, most=BATCH_MAX
        )

    @classmethod
    async def open(cls, store: PostgresStore, *, shards: int | None) -> PostgresLog:
        """Connect, and create the store if it does not exist.

        Args:
            shards: number of shards; None: the store is only read, and is not created.
        Raises:
            CannotOpen: no host can be written, or a newer version made the store, or it was made
                for another number of shards, or it does not exist and is not to be created.
        """
        log = cls(store)
        try:
            log.shards = await asyncio.to_thread(log._make, shards)
        except (LogError, psycopg.Error) as error:
            await log.close()
            reason = " ".join(str(error).split())
            raise CannotOpen(f"{store.server.target}: {reason}") from error
        except BaseException:
            await log.close()
            raise
        return log

    async def fence(self, shard: ShardId, leader_epoch: int = 0) -> Fence:
        token = secrets.randbits(62)

        def take_over(connection: PostgresConnection) -> int:
            if shard in self._store.acknowledged:
                self._store.check(connection)  # Before what it is compared with is replaced.
            context = {
                "shard": shard,
                "token": token,
                "leader_epoch": leader_epoch,
                "first": leader_epoch * FENCES_PER_LEADER_EPOCH,
                "size": FENCES_PER_LEADER_EPOCH,
                # The store may have lost that the shard was ever owned.
                "lineage": FIRST_LINEAGE if self._lineage == FIRST_LINEAGE else 0,
            }
            row = connection.execute(TAKE_OVER, context).fetchone()
            if row is None:
                stored, _, _ = fence_row(PostgresTransaction(connection), shard)
                next_fence_epoch(stored, leader_epoch)
                raise LogUnavailable(f"shard {shard} was taken over meanwhile")
            epoch, last, lineage_id = row
            self._store.acknowledged[shard] = LastAcknowledged(lineage_id, epoch, token, last)
            return int(epoch)

        # An epoch whose answer was lost has no owner, and does no harm.
        return Fence(shard, await self._writer.submit(take_over), token)

    async def append(self, fence: Fence, entry: Entry) -> None:
        frame = frames.encode(fence.shard, entry)
        if len(frame) > FRAME_BYTES_MAX:
            raise TooLarge(f"an entry of {len(frame)} bytes")
        until = time.monotonic() + self._store.server.target.session_s / 3
        while True:
            try:
                await self._writer.submit(_Append(fence, entry.sequence, frame))
                return
            except _Locked as locked:  # Mostly for a moment, by a snapshot.
                if time.monotonic() >= until:
                    raise LogUnavailable(str(locked)) from locked
                await asyncio.sleep(LOCKED_S)

    async def load(self, fence: Fence, after: int = 0) -> Loaded:
        def read(reading: PostgresTransaction) -> Loaded:
            epoch, token, _ = fence_row(reading, fence.shard)
            fence.check(epoch, token)
            ((raised,),) = reading.rows(RAISED, fence.shard)
            return replace(read_shard(reading, fence.shard, after), raised=raised)

        return await self._read(read)

    async def read(self, shard: ShardId, after: int = 0) -> Loaded:
        return await self._read(lambda transaction: read_shard(transaction, shard, after))

    async def write_snapshot(self, fence: Fence, snapshot: ShardSnapshot) -> None:
        await self._in_thread(self._write_snapshot, fence, snapshot)

    async def close(self) -> None:
        await self._writer.close()
        self._threads.shutdown(wait=False)
        await asyncio.to_thread(self._store.server.watchdog.close)

    async def _read(self, read: Callable[[PostgresTransaction], T]) -> T:
        """Read as of one moment: over a connection of its own, or over the writer's if the server
        gives no other."""
        try:
            return await self._in_thread(self._read_apart, read)
        except _NoConnection:
            if self._connection is None:
                raise
            result: T = await self._writer.submit(partial(_read_from, read))
            return result

    async def _in_thread(self, function: Callable[..., T], *arguments: object) -> T:
        """Run a function in a thread of the log: connections that stall take nobody else's."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)

    # --- In threads ---

    @property
    def _lineage(self) -> int:
        return 0 if self._store.lineage is None else self._store.lineage.number

    def _make(self, shards: int | None) -> int:
        server = self._store.server
        with contextlib.closing(server.connect()) as connection, self._limit(connection, READ_S):
            made_for = prepare(connection, server.target.schema, shards)
            self._store.check(connection)
        return made_for

    def _limit(
        self, connection: PostgresConnection, seconds: float
    ) -> contextlib.AbstractContextManager[None]:
        return self._store.server.watchdog.limit(connection, seconds)

    @contextlib.contextmanager
    def _another(self) -> Iterator[PostgresConnection]:
        """A connection for one load or snapshot. Errors of the server become those of a log."""
        try:
            connection = self._store.connect()
        except LogUnavailable as error:
            raise _NoConnection(str(error), is_lasting=error.is_lasting) from error
        try:
            yield connection
        except psycopg.Error as error:
            raise failure_of(error, is_sent=True) from error
        finally:
            connection.close()

    def _read_apart(self, read: Callable[[PostgresTransaction], T]) -> T:
        with self._another() as connection, self._limit(connection, READ_S):
            return _read_from(read, connection)

    def _write_snapshot(self, fence: Fence, snapshot: ShardSnapshot) -> None:
        with self._another() as connection:
            transaction = PostgresTransaction(connection)

            def step(run: Callable[..., T], *arguments: object) -> T:
                with self._limit(connection, READ_S), connection.transaction():
                    return run(transaction, *arguments)

            if not step(make_room, fence, snapshot.sequence):
                return
            count = 0
            for count, frame in enumerate(chunks(fence, snapshot), 1):
                step(_add_chunk, fence, snapshot.sequence, count - 1, frame)
            step(seal, fence, snapshot, count)
            step(trim, fence, snapshot.sequence)

    # --- The writer's thread ---

    def _commit(self, batch: list[QueuedJob]) -> None:
        """Carry out a batch: other jobs one by one, and appends in as few statements as can be."""
        appends = [queued for queued in batch if isinstance(queued.job, _Append)]
        for queued in batch:
            if not isinstance(queued.job, _Append):
                try:
                    queued.result = self._carry_out(queued.job)
                except LogError as refused:
                    queued.error = refused
        while appends:
            first = {append.job.fence.shard: append for append in reversed(appends)}
            self._append_all(list(first.values()))
            done = set(first.values())
            appends = [append for append in appends if append not in done]

    def _append_all(self, batch: list[QueuedJob]) -> None:
        """Append an entry to each of several shards."""
        appends = [queued.job for queued in batch]
        try:
            refusals = self._carry_out(lambda connection: self._append(connection, appends))
        except LogError as failure:
            refusals = [failure for _ in batch]
        acknowledged = self._store.acknowledged
        for queued, refused in zip(batch, refusals, strict=True):
            queued.error = refused
            shard = queued.job.fence.shard
            if refused is None and shard in acknowledged:
                acknowledged[shard] = replace(acknowledged[shard], sequence=queued.job.sequence)

    def _carry_out(self, job: Callable[[PostgresConnection], T]) -> T:
        """Run a job on the writer's connection; an error that may have broken it closes it.

        Raises:
            LogError: the job refused, or the server failed.
        """
        connection = self._connect()
        self._warnings.clear()
        try:
            with self._limit(connection, CALL_S):
                result = job(connection)
            if self._warnings:
                raise CommittedLocally("; ".join(self._warnings))
        except LogError:
            raise
        except (psycopg.Error, CommittedLocally) as error:
            self._hang_up()
            raise failure_of(error, is_sent=True) from error
        return result

    def _connect(self) -> PostgresConnection:
        is_broken = self._connection is not None and self._connection.closed
        if is_broken or self._moves != self._store.moves:
            self._hang_up()
        if self._connection is None:
            self._moves = self._store.moves
            connection = self._store.connect()
            for kind in (Int4Array, Int8Array, ByteaArray):
                connection.adapters.register_dumper(kind, kind.dumper)
            connection.add_notice_handler(self._note)
            self._connection = connection
        return self._connection

    def _note(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.sqlstate == COMMITTED_LOCALLY:
            self._warnings.append(notice.message_primary or "a commit is only local")

    def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _append(
        self, connection: PostgresConnection, appends: Sequence[_Append]
    ) -> Sequence[LogError | None]:
        """Append an entry to each of several shards; a refusal of each, or None."""
        written = connection.execute(
            APPEND,
            (
                Int4Array.of([append.fence.shard for append in appends]),
                Int8Array.of([append.fence.fence_epoch for append in appends]),
                Int8Array.of([append.fence.token for append in appends]),
                Int8Array.of([append.sequence for append in appends]),
                ByteaArray.of([append.frame for append in appends]),
                self._lineage,
            ),
            binary=True,
        ).fetchall()
        if len(written) == len(appends) or self._warnings:
            return [None] * len(appends)
        done = {shard for (shard,) in written}
        return [
            None if append.fence.shard in done else self._refusal_or_failure(connection, append)
            for append in appends
        ]

    def _refusal_or_failure(
        self, connection: PostgresConnection, append: _Append
    ) -> LogError | None:
        """Reason of `_refusal_of`; a failure to find it out is that of this entry alone."""
        try:
            refused = self._refusal_of(connection, append)
        except (psycopg.Error, LogError) as error:
            return failure_of(error, is_sent=True)
        if self._warnings:
            refused = Ambiguous("; ".join(self._warnings))
            self._warnings.clear()
        return refused

    def _refusal_of(self, connection: PostgresConnection, append: _Append) -> LogError | None:
        """Reason why an entry was not appended; None: an earlier attempt has, and it is durable."""
        fence, transaction = append.fence, PostgresTransaction(connection)
        is_locked = f"another session has locked shard {fence.shard} in the table fence"
        owner_has = fence.fence_epoch, fence.token, append.sequence - 1
        if fence_row(transaction, fence.shard) == owner_has:
            return _Locked(is_locked)
        self._store.check(connection)  # A lineage that begins replaces the token.
        refused = refusal(transaction, fence, append.sequence, append.frame)
        if refused is None:
            # The entry may be on this server alone: a commit after it waits for the standby too.
            owner = fence.shard, fence.fence_epoch, fence.token
            if connection.execute(CONFIRM, owner).rowcount != 1:
                return Ambiguous(is_locked)  # Or it was taken over: the next attempt says so.
        return refused


def _read_from(read: Callable[[PostgresTransaction], T], connection: PostgresConnection) -> T:
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        # A large load may pause for long between two rows.
        connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        return read(PostgresTransaction(connection))


def _add_chunk(
    transaction: PostgresTransaction, fence: Fence, sequence: int, number: int, frame: bytes
) -> None:
    check_fence(transaction, fence)
    transaction.run("INSERT INTO chunk VALUES (?, ?, ?, ?)", fence.shard, sequence, number, frame)


class _NoConnection(LogUnavailable):
    """No connection could be opened beside those that are held."""


class _Locked(LogError):
    """Another session has locked the shard's row: the entry is neither written nor refused."""


@dataclass(frozen=True, slots=True)
class _Append:
    fence: Fence
    sequence: int
    frame: bytes


@dataclass(frozen=True, slots=True)
class PostgresTransaction:
    """A transaction of a connection."""

    connection: PostgresConnection
    dialect = DIALECT

    def rows(self, statement: str, *values: object) -> Iterable[tuple[Any, ...]]:
        with self.connection.cursor(binary=True) as cursor:
            yield from cursor.stream(statement.replace("?", "%s").encode(), values)

    def run(self, statement: str, *values: object) -> None:
        self.connection.execute(statement.replace("?", "%s").encode(), values)


# --- Arrays ---------------------------------------------------------------------------------------
# Encoded here: psycopg's dumper of lists takes as long as all the rest of an append.

_HEADER = struct.Struct(">iiIii")  # Dimensions, nulls, type, length, first subscript.


class _Dumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: bytes) -> bytes:
        return obj


def _dumper(oid: int) -> type[Dumper]:
    return type("_ArrayDumper", (_Dumper,), {"oid": oid})


class _NumberArray(bytes):
    element_oid = 0
    item = struct.Struct("")
    dumper: type[Dumper]

    @classmethod
    def of(cls, values: Sequence[int]) -> _NumberArray:
        size = cls.item.size - 4
        pack = cls.item.pack
        header = _HEADER.pack(1, 0, cls.element_oid, len(values), 1)
        return cls(header + b"".join([pack(size, value) for value in values]))


class Int4Array(_NumberArray):
    """An array of 32-bit integers in PostgreSQL's binary format."""

    element_oid = 23
    item = struct.Struct(">ii")
    dumper = _dumper(1007)


class Int8Array(_NumberArray):
    """An array of 64-bit integers in PostgreSQL's binary format."""

    element_oid = 20
    item = struct.Struct(">iq")
    dumper = _dumper(1016)


class ByteaArray(bytes):
    """An array of byte strings in PostgreSQL's binary format."""

    dumper = _dumper(1001)

    @classmethod
    def of(cls, values: Sequence[bytes]) -> ByteaArray:
        parts = [_HEADER.pack(1, 0, 17, len(values), 1)]
        for value in values:
            parts += (len(value).to_bytes(4, "big"), value)
        return cls(b"".join(parts))
