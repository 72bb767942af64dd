"""The data folder: its files, and the lock of the process that serves from it.

coordinator.sqlite3    the log of all shards
coordinator.store      the marker: see `marker.py`
lock                   held and written by the process that serves from the folder
"""

from __future__ import annotations

import fcntl
import os
import time
from dataclasses import replace
from pathlib import Path

from coordinator.data_folder import LOCK, Holder, last_holder
from coordinator.storage.log import CannotOpen

DATABASE = "coordinator.sqlite3"
TRIES, PAUSE_S = 10, 0.02
"""Clients who look whether the lock is held hold it for some microseconds."""


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
        for left in reversed(range(TRIES)):
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if left:
                    time.sleep(PAUSE_S)
                    continue
                os.close(self._file)
                raise CannotOpen(
                    f"{folder} is in use by {holder(folder) or 'another process'}: stop that one "
                    "first, or give this one a data_dir of its own"
                ) from error
        self._holder = Holder()
        self._holder.write(self._file)

    def announce(self, address: str, token: str) -> None:
        """Write down where this process is reached, and the token that its clients need."""
        replace(self._holder, address=address, token=token).write(self._file)

    def release(self) -> None:
        os.close(self._file)


def holder(folder: Path) -> str | None:
    """Process that holds the lock or held it last, in words; None if the file is unreadable."""
    try:
        holder = last_holder(folder)
    except PermissionError:
        return None
    return None if holder is None else str(holder)
