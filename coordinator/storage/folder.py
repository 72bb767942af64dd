"""The data folder: its files, and the lock of the process that serves from it.

coordinator.sqlite3    the log of all shards
coordinator.store      the marker: see `marker.py`
lock                   held and written by the process that serves from the folder
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from datetime import UTC, datetime
from pathlib import Path

from coordinator.storage.log import CannotOpen

DATABASE = "coordinator.sqlite3"
LOCK = "lock"


class FolderLock:
    """Exclusive lock of a folder, held until `release` or the end of the process.

    The operating system releases the lock however the process ends; the file stays.

    Raises:
        CannotOpen: another process holds it, or the folder cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / LOCK
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            raise CannotOpen(
                f"{folder} cannot be used: {error.strerror}; choose another data_dir, or see that "
                "this one is a folder that may be written"
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            raise CannotOpen(
                f"{folder} is in use by {holder(folder) or 'another process'}: stop that one "
                "first, or give this one a data_dir of its own"
            ) from error
        mine = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, json.dumps(mine).encode(), 0)

    def release(self) -> None:
        os.close(self._file)


def holder(folder: Path) -> str | None:
    """Process that holds the lock or held it last, in words; None if the file is unreadable."""
    try:
        found = json.loads((folder / LOCK).read_text())
        return f"process {found['pid']} on {found['host']} since {found['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return None
