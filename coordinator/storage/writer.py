"""The writer of SQLite: one transaction for all jobs of a group commit.

Checkpoints run when the thread is idle, because an append that waits for one waits for tens of
milliseconds; only a very long write-ahead log is checkpointed while it is busy, and one that has as
many pages as the volume has free: a longer one might never get into the database. Where that fails,
rows are refused: what is left of the log is kept for fences, which each start writes, and for
snapshots, which make room.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import time
from collections.abc import Callable, Sequence
from typing import Any

import apsw

from coordinator.storage.group_commit import GroupCommit, QueuedJob
from coordinator.storage.log import Ambiguous, CannotOpen, Damaged, LogError, LogUnavailable
from coordinator.storage.soundness import ADVICE, is_damage
from coordinator.storage.store_files import StoreFiles

WriterJob = Callable[[apsw.Connection], Any]
"""A function that runs in a transaction shared with other jobs. To refuse its part it raises a
`LogError` before it has written anything."""

AddedRow = tuple[Any, ...]
AddRows = Callable[[apsw.Connection, list[AddedRow]], Sequence[LogError | None]]
"""A function that adds rows in one statement. It returns for each its refusal or None; nothing if
it has refused none."""

WAL_HEADER_BYTES = 32
WAL_FRAME_BYTES = 24
"""Size of the header before each page. Source: sqlite.org/fileformat2.html, section 4."""

IDLE_S = 0.2
FULL = "database or disk is full: its write-ahead log no longer gets into the database"
CHECKPOINT_PAGES = 250
"""Length from which an idle writer checkpoints: a shorter log costs little to read back."""
CHECKPOINT_PAGES_MAX = 16_384
"""Length from which a busy writer checkpoints too: 64 MiB."""


class Writer:
    """Owner of the connection that writes.

    A commit that has failed may have left pages in the write-ahead log which look written and
    never reached the disk, and a later sync would not bring them there. So the log is cut back
    to the last commit that succeeded before anything else is done.

    Args:
        open_connection: called in the thread, at first and after a commit that has failed.
        add_rows: adds the rows given to `add`.
        files: checked before a commit begins, before it is acknowledged, and when idle.
        on_commit: called in the thread with a commit's number of jobs and its duration in seconds.
        on_durable: called in the thread after each commit, before its jobs are answered.
    """

    def __init__(
        self,
        open_connection: Callable[[], apsw.Connection],
        add_rows: AddRows,
        files: StoreFiles,
        on_commit: Callable[[int, float], None] | None = None,
        on_durable: Callable[[apsw.Connection], None] | None = None,
    ) -> None:
        self._open = open_connection
        self._add_rows = add_rows
        self._files = files
        self._on_commit = on_commit
        self._on_durable = on_durable
        self._connection: apsw.Connection | None = None
        self._page_bytes = 0
        self._pages = 0  # Pages in the write-ahead log.
        self._to_checkpoint = 0  # Pages not known to be in the database.
        self._to_cut = self._is_full = False
        self._jobs = GroupCommit(
            self._commit, rest=self._rest, end=self._hang_up_in_peace, idle_s=IDLE_S
        )

    async def run(self, job: WriterJob) -> Any:
        """Run a job, and return its result once everything it wrote is durable.

        Raises:
            LogError: raised by the job; `LogUnavailable` or `Ambiguous` if SQLite failed.
            Damaged: the file is not what was written.
        """
        return await self._jobs.submit(job)

    def add(self, row: AddedRow) -> asyncio.Future[Any]:
        """Add a row; the future is done when it is durable, and fails as `run` does."""
        return self._jobs.submit(row)

    async def close(self) -> None:
        """Finish all jobs, and close the connection."""
        await self._jobs.close()

    # --- The thread ---

    def _commit(self, batch: list[QueuedJob]) -> None:
        """Carry a batch out. A failure of the commit is the answer to each job."""
        began = time.monotonic()
        self._files.check()
        try:
            connection = self._connect()
            connection.execute("BEGIN IMMEDIATE")
            self._carry_out(connection, batch)
        except Exception as error:  # SQLite's trouble, or a bug: all or none.
            self._roll_back()
            raise _in_our_words(error) from error
        self._end(connection)
        try:
            self._files.check()
        except LogUnavailable as gone:
            raise Ambiguous(str(gone)) from gone
        if self._on_durable is not None:
            with contextlib.suppress(apsw.Error):  # It is durable all the same.
                self._on_durable(connection)
        if self._on_commit is not None:
            self._on_commit(len(batch), time.monotonic() - began)

    def _carry_out(self, connection: apsw.Connection, batch: list[QueuedJob]) -> None:
        added = [queued for queued in batch if isinstance(queued.job, tuple)]
        refusals: Sequence[LogError | None] = ()
        if self._is_full:
            refusals = [LogUnavailable(FULL, is_lasting=True)] * len(added)
        elif added:
            refusals = self._add_rows(connection, [queued.job for queued in added])
        for queued, refused in zip(added, refusals, strict=False):
            queued.error = refused
        for queued in batch:
            if not isinstance(queued.job, tuple):
                try:
                    queued.result = queued.job(connection)
                except LogError as error:
                    queued.error = error

    def _rest(self, is_busy: bool) -> None:
        is_short = self._to_checkpoint * self._page_bytes >= self._files.free_bytes()
        most = CHECKPOINT_PAGES_MAX if is_busy else CHECKPOINT_PAGES
        is_due = self._to_checkpoint > 0 and (is_short or self._to_checkpoint >= most)
        if (is_due or not is_busy) and self._are_ours() and is_due:
            self._checkpoint()
        self._is_full = is_short and self._to_checkpoint > 0

    def _end(self, connection: apsw.Connection) -> None:
        try:
            connection.execute("COMMIT")
        except apsw.Error as error:
            self._hang_up()
            self._to_cut = True
            try:
                self._cut_back()
            except OSError:
                if not _is_incomplete(error):
                    raise Ambiguous(str(error)) from error
            raise _in_our_words(error) from error

    def _connect(self) -> apsw.Connection:
        if self._connection is None:
            self._cut_back()
            connection = self._open()
            self._files.note_connection()
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            connection.set_wal_hook(self._count_pages)
            self._pages, moved = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
            self._to_checkpoint = self._pages - moved
            self._page_bytes = connection.pragma("page_size")
            self._connection = connection
        return self._connection

    def _cut_back(self) -> None:
        if self._to_cut:
            # A log that had been checkpointed entirely was restarted by the commit that failed.
            frames = self._pages * (WAL_FRAME_BYTES + self._page_bytes)
            self._files.cut_log(WAL_HEADER_BYTES + frames if self._to_checkpoint else 0)
            self._to_cut = False

    def _count_pages(self, _: apsw.Connection, name: str, pages: int) -> int:
        self._pages = self._to_checkpoint = pages
        return apsw.SQLITE_OK

    def _roll_back(self) -> None:
        if self._connection is not None and self._connection.in_transaction:
            try:
                self._connection.execute("ROLLBACK")
            except apsw.Error:
                self._hang_up()

    def _hang_up(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close(True)
            self._files.forget_connection()

    def _are_ours(self) -> bool:
        """False if the files are not those that were opened, so that nothing may be written."""
        try:
            self._files.check()
        except LogUnavailable:
            return False
        return True

    def _hang_up_in_peace(self) -> None:
        """Close the connection; SQLite checkpoints everything first."""
        if self._connection is not None and self._are_ours():
            self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
        self._hang_up()

    def _checkpoint(self) -> None:
        # A failed checkpoint loses nothing, and is tried again the next time.
        with contextlib.suppress(apsw.Error, OSError, CannotOpen):
            pages, moved = self._connect().wal_checkpoint()
            self._to_checkpoint = pages - moved
        self._files.note_checkpoint()


_LASTING = (apsw.FullError, apsw.ReadOnlyError, apsw.PermissionsError)
"""Errors that waiting does not change. SQLITE_BUSY, SQLITE_IOERR and the like may pass."""
_LASTING_ERRNO = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)


def _in_our_words(error: Exception) -> Exception:
    """Translate an error for the callers. After `Damaged` the store is not used again."""
    if isinstance(error, apsw.Error) and is_damage(error):
        return Damaged(f"the store cannot be used: {error}; {ADVICE}")
    if not isinstance(error, apsw.Error | OSError):
        return error
    is_lasting = isinstance(error, _LASTING) or (
        isinstance(error, OSError) and error.errno in _LASTING_ERRNO
    )
    return LogUnavailable(str(error), is_lasting=is_lasting)


def _is_incomplete(error: apsw.Error) -> bool:
    """True if a page could not be written: then the last page, which commits, was not either."""
    if isinstance(error, apsw.FullError | apsw.ReadOnlyError):
        return True
    return bool(getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_WRITE)
