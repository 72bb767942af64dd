"""The node that this process runs as a child for a store, if it runs one."""

from __future__ import annotations

import logging
import os
import subprocess
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from coordinator.client.embedding.neighbours import Neighbours
from coordinator.client.embedding.node_process import NodeProcess, flags_of
from coordinator.client.errors import CannotEmbed
from coordinator.client.transport.loop_thread import check_process
from coordinator.node_source import FoundNode

LOGGER = logging.getLogger("coordinator.node")
STOP_S = 40.0
"""Time to stop for a node, which drains and syncs, before it is killed."""
DEFAULTS = {
    "listen": "127.0.0.1:0",
    "metrics_listen": "",
    "console_listen": "",
    # Processes of one application come soon after each other, if they come together.
    "group_initial_rebalance_delay_ms": 500,
}


class OwnNode(ABC):
    """The node of a store that this process runs, or is ready to run; all who use it share it.

    Args:
        key: of the store: the same for all who mean it. url: as messages name it.
        settings: of `coordinator serve`.
    """

    _all: ClassVar[dict[str, OwnNode]] = {}
    _all_lock = threading.Lock()

    def __init__(self, key: str, url: str, settings: Mapping[str, Any]) -> None:
        self.key, self.url, self.settings = key, url, dict(settings)
        self._neighbours = Neighbours(key)
        self._pid = os.getpid()
        self._users = 0
        self._lock = threading.Lock()
        self._node: NodeProcess | None = None

    @classmethod
    def use(cls, made: OwnNode) -> OwnNode:
        """That of a store in this process: `made`, if there is none. Given up by `release`.

        Raises:
            ValueError: there is one with other settings.
        """
        with cls._all_lock:
            node = cls._all.setdefault(made.key, made)
            check_process(node._pid)
            if node.settings != made.settings:
                raise ValueError(f"this process has embedded {node.url} already, otherwise")
            node._users += 1
            return node

    def release(self) -> None:
        """Give up one use; the last one ends the node."""
        with self._all_lock:
            self._users -= 1
            if self._users:
                return
            del self._all[self.key]
        with self._lock:
            node, self._node = self._node, None
        if node is not None:
            node.end_input()
            try:
                node.wait(STOP_S)
            except subprocess.TimeoutExpired:
                node.kill()

    def run(self) -> None:
        """Start the node, unless it runs, is not needed, or it is another process's turn.

        Raises:
            CannotEmbed: it has ended before it served, or the store is not one for a node.
            OSError: the store cannot be used.
        """
        with self._lock:
            node = self._node
            if node is not None and not node.has_ended:
                return
            self._node = None
            if not self._users or not self._neighbours.take_start():
                return
            try:
                if self._is_needed():
                    if node is not None and not node.address and (reason := _last_words(node)):
                        raise CannotEmbed(f"no node can serve {self.url}: {reason}")
                    self._node = self._start()
            finally:
                if self._node is None:
                    self._neighbours.give_start()

    def _start(self) -> NodeProcess:
        return NodeProcess(
            flags_of({**DEFAULTS, **self.settings, "embedded_by": os.getpid()}),
            {**os.environ, **self._environment()},
            wait=False,
            on_line=self._receive,
            on_end=self._neighbours.give_start,
        )

    def _receive(self, line: Mapping[str, Any]) -> None:
        _log(line)
        if line["event"] == "serving":
            self._neighbours.give_start()

    @abstractmethod
    def probe(self) -> FoundNode | None:
        """A node that serves; None: there is none, or it loads.

        Raises:
            NotReachable: it is on another machine. OSError: the store cannot be read.
        """

    @abstractmethod
    def stay(self) -> None:
        """Run the node later too, where several may serve."""

    @abstractmethod
    def _is_needed(self) -> bool:
        """True if this process is to run the node."""

    @abstractmethod
    def _environment(self) -> dict[str, str]:
        """Variables that name the store to the node."""


def _last_words(node: NodeProcess) -> str:
    """Why a node has ended, in its own words; empty: it was not needed."""
    errors = [
        line.get("what", line["event"]) for line in node.last_lines if line["level"] == "error"
    ]
    if any(line["event"] == "enough_nodes" for line in node.last_lines):
        return ""
    return errors[-1] if errors else node.other.strip() or "it has ended without a word"


def _log(line: Mapping[str, Any]) -> None:
    """Hand a line of the node's log to the program's own; what is only information is for DEBUG."""
    level = logging.getLevelNamesMapping().get(str(line.get("level", "")).upper(), logging.INFO)
    if level == logging.INFO:
        level = logging.DEBUG
    known = ("event", "level", "timestamp")
    rest = " ".join(f"{name}={value}" for name, value in line.items() if name not in known)
    LOGGER.log(level, "%s", f"{line['event']} {rest}".strip())
