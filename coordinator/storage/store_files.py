"""The files of a data folder while a process serves from it: are they still the ones it opened?

A file that was deleted or replaced stays writable for whoever has it open, so SQLite goes on
committing to a database that the next start will not find. And a database that somebody else writes
over in place is mixed with what SQLite has in memory. So the writer compares the files' identities
before it begins a commit and before it acknowledges one, and at least once a second.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from coordinator.data_folder import LOCK
from coordinator.storage.folder import DATABASE
from coordinator.storage.log import CannotOpen, Damaged, LogUnavailable
from coordinator.storage.marker import MARKER

LOOK_S = 0.2
"""Interval of looks at the files that hold no commits, such as the lock."""
FileIdentity = tuple[int, int]
"""Device and inode."""
STORE_GONE, STORE_BACK = "store_gone", "store_back"
"""Events that are reported: the files are not those that were opened; they are again."""
WAL = f"{DATABASE}-wal"
_OF_A_CONNECTION = (WAL, f"{DATABASE}-shm")


class StoreFiles:
    """Identities of a folder's files, noted when they were opened. Made once the store exists.

    Args:
        examine: checks the whole store; raises `Damaged` or `CannotOpen`. Called in the thread of
            `check` if somebody else has written to the database.
        report: told of `STORE_GONE` and `STORE_BACK`, with an account in words.
    """

    def __init__(
        self,
        folder: Path,
        examine: Callable[[], None],
        report: Callable[[str, str], None] = lambda event, reason: None,
    ) -> None:
        self._folder = folder
        self._examine = examine
        self._report = report
        self._opened: dict[str, FileIdentity] = {}  # By path; as text, which saves 5 us a file.
        for name in ("", LOCK, MARKER, DATABASE):
            self._note(name)
        self._database = str(folder / DATABASE)
        self._synced: list[str] = []  # The files that a commit is in.
        self._looked_s = 0.0
        self._written = (0, 0)
        self._damage = self._reported = ""
        self._lock = threading.Lock()  # Loads check in threads of their own.

    def note_connection(self) -> None:
        """Note the files of a connection that was just opened."""
        with self._lock:
            for name in _OF_A_CONNECTION:
                self._note(name)
            self._synced = [self._database, str(self._folder / WAL)]
        self.note_checkpoint()

    def forget_connection(self) -> None:
        """Forget the files of a connection that was closed: another may make them anew."""
        with self._lock:
            self._synced = []
            for name in _OF_A_CONNECTION:
                self._opened.pop(str(self._folder / name), None)

    def note_checkpoint(self) -> None:
        """Note that this process has written to the database itself, which only checkpoints do."""
        with contextlib.suppress(OSError):  # `check` says so.
            self._written = _content(os.stat(self._database))

    def check(self) -> None:
        """Compare the files with those that were opened.

        The two that a commit is in are looked at each time (4 us a file), the others each `LOOK_S`.

        Raises:
            LogUnavailable: one is gone, another one is in its place, or its content was replaced.
        """
        with self._lock:
            now_s = time.monotonic()
            is_due = self._reported or not self._synced or now_s - self._looked_s >= LOOK_S
            if is_due:
                self._looked_s = now_s
            reason = self._damage or self._difference(self._opened if is_due else self._synced)
            if bool(reason) != bool(self._reported):
                back = f"the files of {self._folder} are back"
                self._report(*((STORE_GONE, reason) if reason else (STORE_BACK, back)))
            self._reported = reason
        if reason:
            raise LogUnavailable(reason, is_lasting=True)

    def free_bytes(self) -> int:
        """Free bytes of the volume; no end of them if the folder is gone, which `check` tells."""
        try:
            volume = os.statvfs(self._folder)
        except OSError:
            return sys.maxsize
        return volume.f_bavail * volume.f_frsize

    def cut_log(self, size_bytes: int) -> None:
        """Shorten the write-ahead log and sync it. Raises OSError."""
        path = self._folder / WAL
        if path.exists() and path.stat().st_size > size_bytes:
            with path.open("r+b") as file:
                file.truncate(size_bytes)
                os.fsync(file.fileno())

    def _note(self, name: str) -> None:
        path = str(self._folder / name)
        self._opened[path] = _identity(os.stat(path))

    def _difference(self, paths: Iterable[str]) -> str:
        for path in paths:
            try:
                status = os.stat(path)
            except OSError as error:
                return f"{path} was opened, and is gone ({error.strerror}); {_ADVICE}"
            if _identity(status) != self._opened[path]:
                return f"{path} is not the one that was opened; {_ADVICE}"
            if path == self._database and self._written not in ((0, 0), _content(status)):
                # A checkpoint by a tool, or a copy that was written over it.
                try:
                    self._examine()
                except (CannotOpen, Damaged) as error:
                    self._damage = f"{path} was written to by another process: {error}"
                    return self._damage
                self._written = _content(status)
        return ""


_ADVICE = "nothing more is written: put it back and restart, or restore a backup"


def _identity(status: os.stat_result) -> FileIdentity:
    return status.st_dev, status.st_ino


def _content(status: os.stat_result) -> tuple[int, int]:
    return status.st_size, status.st_mtime_ns
