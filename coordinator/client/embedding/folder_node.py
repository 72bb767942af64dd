"""The node of a data folder: found by the folder's lock, and run by this process if nobody serves.

One process of the machine at a time runs it: the one that has the lock of the file `turn`, from
before it starts a child until that has ended, so that of many that find nobody one starts a node.
Its lock is one of lockf(3), which forked processes do not share.
"""

from __future__ import annotations

import fcntl
import logging
import os
import socket
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from coordinator.client.embedding.node_process import NodeProcess
from coordinator.client.embedding.volume import network_file_system
from coordinator.client.errors import CannotEmbed, NotReachable
from coordinator.client.transport.loop_thread import check_process
from coordinator.data_folder import is_held, last_holder

LOGGER = logging.getLogger("coordinator.node")
TURN = "turn"
STOP_S = 40.0
"""Time to stop for a node, which drains and syncs, before it is killed."""
DEFAULTS = {
    "listen": "127.0.0.1:0",
    "metrics_listen": "",
    "console_listen": "",
    # Processes of one machine come soon after each other, if they come together.
    "group_initial_rebalance_delay_ms": 500,
}


def served(folder: Path, url: str) -> tuple[str, str] | None:
    """Address and token of the node that serves a folder; None: none does, or it loads.

    Raises:
        NotReachable: it is on another machine. OSError: the folder cannot be read.
    """
    holder = last_holder(folder) if is_held(folder) else None
    if holder is None or not holder.address:
        return None
    if holder.host != socket.gethostname():
        raise NotReachable(
            f"{url} is served by {holder}, and a folder serves one machine: for several use a "
            "PostgreSQL store, or give workers the address of a server"
        )
    return holder.address, holder.token


class FolderNode:
    """The node that this process runs, or is ready to run; got by `use`, given up by `release`."""

    _all: ClassVar[dict[Path, FolderNode]] = {}
    _all_lock = threading.Lock()

    def __init__(self, folder: Path, url: str, settings: Mapping[str, Any]) -> None:
        self._folder, self._url, self._settings = folder, url, dict(settings)
        self._pid = os.getpid()
        self._users = 0
        self._lock = threading.Lock()
        self._turn: int | None = None
        self._node: NodeProcess | None = None

    @classmethod
    def use(cls, folder: Path, url: str, settings: Mapping[str, Any]) -> FolderNode:
        """That of a folder, made if this process has none.

        Raises:
            ValueError: it has one, with other settings.
        """
        with cls._all_lock:
            node = cls._all.get(folder)
            if node is None:
                node = cls._all[folder] = cls(folder, url, settings)
            check_process(node._pid)
            if node._settings != dict(settings):
                raise ValueError(f"this process has embedded {url} already, with other settings")
            node._users += 1
            return node

    def release(self) -> None:
        """Give up one use; the last one ends the node."""
        with self._all_lock:
            self._users -= 1
            if self._users:
                return
            del self._all[self._folder]
        with self._lock:
            node, self._node = self._node, None
        if node is not None:
            node.end_input()
            try:
                node.wait(STOP_S)
            except subprocess.TimeoutExpired:
                node.kill()
        with self._lock:
            self._end_turn()

    def run(self) -> None:
        """Start the node, if nobody serves, and it is this process's turn.

        Raises:
            CannotEmbed: it has ended before it served, or the folder is not one for a node.
            OSError: the folder cannot be made.
        """
        with self._lock:
            node = self._node
            if node is not None and not node.has_ended:
                return  # It loads.
            self._node = None
            if is_held(self._folder):
                return  # By another one, which loads.
            if node is not None and not node.address:
                raise CannotEmbed(f"no node can serve {self._url}: {_told(node)}")
            if self._users and self._takes_turn() and not is_held(self._folder):
                self._node = self._start()

    def _start(self) -> NodeProcess:
        environment = {**os.environ, "COORDINATOR_STORE": f"sqlite:///{self._folder}"}
        environment.pop("COORDINATOR_DATA_DIR", None)
        flags = {**DEFAULTS, **self._settings, "embedded_by": os.getpid()}
        return NodeProcess(
            [f"--{name.replace('_', '-')}={_text(value)}" for name, value in flags.items()],
            environment,
            wait=False,
            on_line=_log,
            on_end=self._node_has_ended,
        )

    def _takes_turn(self) -> bool:
        if self._turn is not None:
            return True
        if kind := network_file_system(self._folder):
            raise CannotEmbed(
                f"{self._url} is on a network file system ({kind}), where SQLite loses data: use a "
                "folder of this machine, or a PostgreSQL store"
            )
        self._folder.mkdir(parents=True, exist_ok=True)
        turn = os.open(self._folder / TURN, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.lockf(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(turn)
            return False
        self._turn = turn
        return True

    def _node_has_ended(self) -> None:
        """Let others run one: here nobody may be there to ask for it."""
        with self._lock:
            self._end_turn()

    def _end_turn(self) -> None:
        turn, self._turn = self._turn, None
        if turn is not None:
            os.close(turn)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _told(node: NodeProcess) -> str:
    """Why a node has ended, in its own words."""
    errors = [line.get("what", line["event"]) for line in node.last_lines if _is_error(line)]
    return errors[-1] if errors else node.other.strip() or "it has ended without a word"


def _is_error(line: Mapping[str, Any]) -> bool:
    return bool(line.get("level") in ("error", "critical"))


def _log(line: Mapping[str, Any]) -> None:
    """Hand a line of the node's log to the program's own."""
    level = logging.getLevelNamesMapping().get(str(line.get("level", "")).upper(), logging.INFO)
    known = ("event", "level", "timestamp")
    rest = " ".join(f"{name}={value}" for name, value in line.items() if name not in known)
    LOGGER.log(level, "%s", f"{line['event']} {rest}".strip())
