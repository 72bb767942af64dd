"""The one thread that writes to SQLite. What is asked of it while it commits goes into the
next commit: the busier it is, the more writes share one sync of the disk.

Checkpoints run when nothing is asked for, because an append that has to wait for one waits
for tens of milliseconds; only a write-ahead log that has grown very long is not put off.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import apsw

from coordinator.storage.log import Ambiguous, LogError, Unavailable

Job = Callable[[apsw.Connection], Any]
"""Runs inside a transaction that it shares with others. To refuse its part it raises a
`LogError` before it has written anything."""

IDLE_S = 0.2
CHECKPOINT_PAGES = 250
"""A shorter write-ahead log is left alone: it costs little to read back."""
CHECKPOINT_PAGES_MAX = 16_384
"""64 MiB: a longer one is checkpointed, however busy it is."""

_NOTHING_WRITTEN = (apsw.FullError, apsw.ReadOnlyError, apsw.CantOpenError, apsw.NoMemError)


class Writer:
    """Owns the connection from its first to its last statement.

    Args:
        open_connection: called in the thread: at first, and again when it is unclear what a
            commit has written. It makes sure that whatever the new connection shows is durable.
        on_commit: told how many jobs a commit carried and how long it took in seconds; called
            in the thread.
    """

    def __init__(
        self,
        open_connection: Callable[[], apsw.Connection],
        on_commit: Callable[[int, float], None] | None = None,
    ) -> None:
        self._open = open_connection
        self._on_commit = on_commit
        self._connection: apsw.Connection | None = None
        self._pages = 0  # In the write-ahead log, and not known to be in the database.
        self._jobs: queue.SimpleQueue[_Asked | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="log-writer", daemon=True)
        self._thread.start()

    async def run(self, job: Job) -> Any:
        """What the job returned, once everything it wrote is durable.

        Raises:
            LogError: what the job raised; `Unavailable` or `Ambiguous` if SQLite failed.
        """
        asked = _Asked(job, asyncio.get_running_loop())
        self._jobs.put(asked)
        return await asked.future

    async def close(self) -> None:
        """Finish what was asked for, and close the connection."""
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)

    # --- The thread ---

    def _run(self) -> None:
        stopping = False
        while not stopping:
            batch: list[_Asked] = []
            try:
                asked = self._jobs.get(timeout=IDLE_S)
                while asked is not None:
                    batch.append(asked)
                    asked = self._jobs.get_nowait()
                stopping = True
            except queue.Empty:
                pass
            if batch:
                self._commit(batch)
            if self._pages >= (CHECKPOINT_PAGES_MAX if batch else CHECKPOINT_PAGES):
                self._checkpoint()
        self._hang_up()

    def _commit(self, batch: list[_Asked]) -> None:
        began = time.monotonic()
        failure: Exception | None = None
        try:
            connection = self._connect()
            connection.execute("BEGIN IMMEDIATE")
            for asked in batch:
                try:
                    asked.result = asked.job(connection)
                except LogError as refused:
                    asked.error = refused
        except Exception as error:  # noqa: BLE001  # SQLite's trouble, or a bug: all or none.
            failure = Unavailable(_words(error)) if isinstance(error, apsw.Error) else error
            self._roll_back()
        else:
            failure = self._end(connection)
        if failure is not None:
            for asked in batch:
                asked.error = failure
        elif self._on_commit is not None:
            self._on_commit(len(batch), time.monotonic() - began)
        _deliver(batch)

    def _end(self, connection: apsw.Connection) -> LogError | None:
        try:
            connection.execute("COMMIT")
        except _NOTHING_WRITTEN as error:
            self._roll_back()
            return Unavailable(_words(error))
        except apsw.Error as error:
            self._hang_up()
            return Ambiguous(_words(error))
        return None

    def _connect(self) -> apsw.Connection:
        if self._connection is None:
            connection = self._open()
            connection.set_wal_hook(self._count_pages)
            self._connection = connection
        return self._connection

    def _count_pages(self, _: apsw.Connection, name: str, pages: int) -> int:
        self._pages = pages
        return apsw.SQLITE_OK

    def _roll_back(self) -> None:
        if self._connection is not None and self._connection.in_transaction:
            try:
                self._connection.execute("ROLLBACK")
            except apsw.Error:
                self._hang_up()

    def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close(True)

    def _checkpoint(self) -> None:
        assert self._connection is not None
        try:
            pages, moved = self._connection.wal_checkpoint()
        except apsw.Error:
            self._pages = 0  # Nothing is lost. The next commit counts the pages again.
        else:
            self._pages = pages - moved


def _words(error: BaseException) -> str:
    """SQLite's own, which say "database or disk is full" and the like."""
    return str(error).partition(": ")[2] or str(error)


def _deliver(batch: list[_Asked]) -> None:
    """One turn of the loop for all who asked from it."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Asked]] = {}
    for asked in batch:
        by_loop.setdefault(asked.loop, []).append(asked)
    for loop, theirs in by_loop.items():
        try:
            loop.call_soon_threadsafe(_answer, theirs)
        except RuntimeError:
            continue  # The loop is closed: nobody waits any more.


def _answer(batch: list[_Asked]) -> None:
    for asked in batch:
        asked.answer()


class _Asked:
    """A job, and the way back to who asked."""

    __slots__ = ("error", "future", "job", "loop", "result")

    def __init__(self, job: Job, loop: asyncio.AbstractEventLoop) -> None:
        self.job = job
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()
        self.result: Any = None
        self.error: Exception | None = None

    def answer(self) -> None:
        """Called in the loop."""
        if self.future.cancelled():
            return
        if self.error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(self.error)
