"""A data folder as nodes and clients know it: its URL, and who serves from it.

A node that serves from a folder holds flock(2) on the file `lock`, which ends with the process,
however it ends. While it is held, the file says where the node is reached.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

LOCK = "lock"
SCHEME = "sqlite:"
_FORM = "write sqlite:///jobs for a folder beside, sqlite:////var/lib/jobs for one by its full path"


def path_of(url: str) -> str:
    """Path of the folder of sqlite:///RELATIVE or sqlite:////ABSOLUTE, as SQLAlchemy has it.

    Raises:
        ValueError: it is no such URL.
    """
    path = url.removeprefix(f"{SCHEME}///")
    if path == url or not path.strip("/") or "?" in path or "\0" in path:
        raise ValueError(f"{url!r} names no folder: {_FORM}")
    return path


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that holds the lock of a folder, or held it last.

    since: in ISO 8601. address: HOST:PORT; empty until it serves. token: of its clients; empty:
    they need none, or have their own.
    """

    pid: int = field(default_factory=os.getpid)
    host: str = field(default_factory=socket.gethostname)
    since: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    address: str = ""
    token: str = field(default="", repr=False)

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} since {self.since}"

    def write(self, descriptor: int) -> None:
        """Write it into a lock file, which nobody else may read if there is a token."""
        os.fchmod(descriptor, 0o600 if self.token else 0o644)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(asdict(self)).encode(), 0)


def last_holder(folder: Path) -> Holder | None:
    """Who holds the lock of a folder, or held it last; None if its file says nothing.

    Raises:
        PermissionError: it is another user's.
    """
    try:
        return Holder(**json.loads((folder / LOCK).read_text()))
    except PermissionError:
        raise
    except (OSError, ValueError, TypeError):
        return None


def is_held(folder: Path) -> bool:
    """True if a process holds the lock of a folder.

    Raises:
        PermissionError: the file is another user's.
    """
    try:
        descriptor = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        # Shared, so that those who look do not see each other; a node that starts tries again.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    return False
