"""What the processes of one user on a machine share about a store: its last answer, and two turns.

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
from collections.abc import Callable
from enum import IntEnum
from hashlib import sha256
from pathlib import Path

FRESH_S = 1.0
"""Age up to which an answer is taken for the store's."""


class Turn(IntEnum):
    """What one process does at a time; the byte of the file that is locked for it."""

    ASK = 0
    START = 1


class Neighbours:
    """Those who know the URL of a store."""

    def __init__(self, store: str) -> None:
        self._turns = self._answers = None
        folder = Path(tempfile.gettempdir(), f"coordinator-{os.getuid()}")
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, exist_ok=True)
            about = folder.lstat()
            if stat.S_IMODE(about.st_mode) == 0o700 and about.st_uid == os.getuid():
                name = str(folder / sha256(store.encode()).hexdigest()[:32])
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                self._turns = os.open(f"{name}.turns", flags, 0o600)
                self._answers = os.open(name, flags, 0o600)

    def ask(self, ask: Callable[[], str]) -> str | None:
        """The store's answer, of this moment or up to `FRESH_S` ago; None: another process asks."""
        if self._answers is None:
            return ask()
        if not self.take(Turn.ASK):
            return None
        try:
            about = os.fstat(self._answers)
            if about.st_size and 0 <= time.time() - about.st_mtime < FRESH_S:
                return os.pread(self._answers, about.st_size, 0).decode()
            answer = ask()
            os.ftruncate(self._answers, 0)
            os.pwrite(self._answers, answer.encode(), 0)
            return answer
        finally:
            self.give(Turn.ASK)

    def take(self, turn: Turn) -> bool:
        """Take a turn; False: another process has it."""
        if self._turns is None:
            return True
        try:
            fcntl.lockf(self._turns, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, turn)
        except BlockingIOError:
            return False
        return True

    def give(self, turn: Turn) -> None:
        """Give a turn up, if this process has it."""
        if self._turns is not None:
            fcntl.lockf(self._turns, fcntl.LOCK_UN, 1, turn)

    def close(self) -> None:
        """Give everything up."""
        for descriptor in (self._turns, self._answers):
            if descriptor is not None:
                os.close(descriptor)
        self._turns = self._answers = None
