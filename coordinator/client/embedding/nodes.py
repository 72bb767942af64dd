"""The nodes of a store, found by its URL; this process runs one where none serves."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import parse_qs

from coordinator.client.embedding.database_node import DatabaseNode
from coordinator.client.embedding.folder_node import FolderNode
from coordinator.client.embedding.own_node import OwnNode
from coordinator.client.errors import CannotEmbed, NoNode
from coordinator.client.transport.loop_thread import check_process
from coordinator.data_folder import SCHEME, path_of
from coordinator.node_source import FoundNode

LOOK_S = 0.05
MOST_NODES = 16
Serve = Literal["auto", False]


class Embedded:
    """The nodes of a store. Made by `embedded`; a context manager, given where addresses are."""

    def __init__(
        self, url: str, serve: Serve, nodes: int, timeout_s: float, settings: dict[str, Any]
    ) -> None:
        if serve not in ("auto", False):
            raise ValueError(f"serve is {serve!r}; it may be 'auto' or False")
        if not 1 <= nodes <= MOST_NODES:
            raise ValueError(f"nodes is {nodes}; it may be 1 to {MOST_NODES}")
        if url.startswith(SCHEME):
            path_of(url)
        self.url = shown(url)
        self._store, self._most, self._settings = url, nodes, settings
        self._serves, self._timeout_s = serve == "auto", timeout_s
        self._node: OwnNode | None = None
        self._pid: int | None = None

    def __repr__(self) -> str:
        return f"embedded({self.url!r})"

    def __str__(self) -> str:
        return self.url

    def open(self) -> None:
        """Wait until a node serves. Blocks.

        Raises:
            As `__enter__`.
        """
        self._pid = os.getpid()
        self._node = self._use()
        try:
            self.find_node(self._timeout_s)
            if self._serves:
                self._node.stay()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the node of this process, unless others in it use it. May be called again."""
        node, self._node = self._node, None
        if node is not None and self._serves and self._pid == os.getpid():
            node.release()

    def find_node(self, timeout_s: float) -> FoundNode:
        """See `NodeSource`; a node is run if none serves.

        Raises:
            As `__enter__`.
        """
        check_process(self._pid)
        until_s = time.monotonic() + timeout_s
        while (node := self._node) is not None:
            try:
                if (reached := node.probe()) is not None:
                    return reached
                if self._serves:
                    node.run()
            except OSError as error:
                reason = f"{error.filename}: {error.strerror}" if error.filename else str(error)
                raise CannotEmbed(f"{self.url} cannot be used: {reason}") from error
            if time.monotonic() >= until_s:
                raise NoNode(f"no node has served {self.url} for {timeout_s:g} s")
            time.sleep(LOOK_S)
        raise RuntimeError(f"{self!r} is not open: use it in `with {self!r} as bootstrap:`")

    def _use(self) -> OwnNode:
        """The node of the store that all in this process share; one apart, if it is never run."""
        if self._store.startswith(SCHEME):
            folder = Path(path_of(self._store)).resolve()
            node: OwnNode = FolderNode(folder, self.url, self._settings)
        else:
            node = DatabaseNode(self._store, self.url, self._settings, self._most)
        return OwnNode.use(node) if self._serves else node

    def __enter__(self) -> Self:
        """Wait until a node serves.

        Raises:
            CannotEmbed: none serves, and none can be run. NotReachable: it serves on another
                machine. NoNode: none has served in time. RuntimeError: this is a forked child of
                a process that uses nodes.
        """
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def shown(url: str) -> str:
    """A store's URL as it may be shown: without names, passwords and what else a query has."""
    if url.startswith(SCHEME):
        return url
    scheme, _, rest = url.partition("://")
    where, _, query = rest.partition("?")
    if "@" in query:  # Of a password that is not encoded, perhaps.
        return f"{scheme}://…"
    clusters = parse_qs(query).get("cluster", [])
    return f"{scheme}://{where.rpartition('@')[2]}" + "".join(
        f"?cluster={cluster}" for cluster in clusters
    )
