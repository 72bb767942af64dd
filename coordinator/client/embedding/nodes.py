"""The nodes of a store, found by its URL; this process runs one where none serves."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, Literal, Self

from coordinator.client.embedding.folder_node import FolderNode, served
from coordinator.client.errors import CannotEmbed, NoNode
from coordinator.client.transport.loop_thread import check_process
from coordinator.data_folder import path_of

LOOK_S = 0.05
Serve = Literal["auto", False]


class Embedded:
    """The nodes of a store. Made by `embedded`; a context manager, given where addresses are."""

    def __init__(self, url: str, serve: Serve, timeout_s: float, settings: dict[str, Any]) -> None:
        if serve not in ("auto", False):
            raise ValueError(f"serve is {serve!r}; it may be 'auto' or False")
        self.url = url
        self._path, self._settings = path_of(url), settings
        self._serves, self._timeout_s = serve == "auto", timeout_s
        self._folder: Path | None = None
        self._node: FolderNode | None = None
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
        self._folder = folder = Path(self._path).resolve()
        if self._serves:
            self._node = FolderNode.use(folder, self.url, self._settings)
        try:
            self.find_node(self._timeout_s)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the node of this process, unless others in it use it. May be called again."""
        node, self._node, self._folder = self._node, None, None
        if node is not None and self._pid == os.getpid():
            node.release()

    def find_node(self, timeout_s: float) -> tuple[str, str]:
        """See `NodeSource`; a node is run if none serves.

        Raises:
            As `__enter__`.
        """
        check_process(self._pid)
        until_s = time.monotonic() + timeout_s
        while (folder := self._folder) is not None:
            try:
                if (found := served(folder, self.url)) is not None:
                    return found
                if (node := self._node) is not None:
                    node.run()
            except OSError as error:
                what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
                raise CannotEmbed(f"{self.url} cannot be used: {what}") from error
            if time.monotonic() >= until_s:
                raise NoNode(f"no node has served {self.url} for {timeout_s:g} s")
            time.sleep(LOOK_S)
        raise RuntimeError(f"{self!r} is not open: use it in `with {self!r} as bootstrap:`")

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
