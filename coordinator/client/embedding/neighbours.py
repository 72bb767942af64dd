"""State about a store that one user's processes on a machine share: its last answer, and turns.

Of hundreds that start together one asks the store, and one starts a node. A turn is a lock of
lockf(3), which forked processes do not share and which ends with the process. Where the folder
cannot be made, or is not this user's alone, each process is on its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cached_property
from hashlib import sha256
from pathlib import Path

FRESH_S = 1.0
"""Age up to which an answer is taken for the store's."""


class Neighbours:
    """Those who know the URL of a store."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._start: int | None = None

    @cached_property
    def _name(self) -> str:
        """Path of the store's file, in a folder that is made now; empty: this process is alone."""
        folder = Path(tempfile.gettempdir(), f"coordinator-{os.getuid()}")
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, exist_ok=True)
            about = folder.lstat()
            if stat.S_IMODE(about.st_mode) == 0o700 and about.st_uid == os.getuid():
                return str(folder / sha256(self._store.encode()).hexdigest()[:32])
        return ""

    def ask(self, ask: Callable[[], str]) -> str | None:
        """The store's answer, of this moment or up to `FRESH_S` ago; None: another process asks."""
        if not self._name:
            return ask()
        with _locked(self._name) as file:
            if file is None:
                return None
            about = os.fstat(file)
            if about.st_size and 0 <= time.time() - about.st_mtime < FRESH_S:
                return os.pread(file, about.st_size, 0).decode()
            answer = ask()
            os.ftruncate(file, 0)
            os.pwrite(file, answer.encode(), 0)
            return answer

    def take_start(self) -> bool:
        """Take the turn to start a node; False: another process has it."""
        if self._name and self._start is None:
            self._start = _lock(f"{self._name}.start")
            return self._start is not None
        return True

    def give_start(self) -> None:
        """Give that turn up, if this process has it."""
        start, self._start = self._start, None
        if start is not None:
            os.close(start)


def _lock(name: str) -> int | None:
    """A file that this process has locked; None: another one has."""
    file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    return file


@contextlib.contextmanager
def _locked(name: str) -> Iterator[int | None]:
    file = _lock(name)
    try:
        yield file
    finally:
        if file is not None:
            os.close(file)
