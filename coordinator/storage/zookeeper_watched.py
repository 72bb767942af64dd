"""Reads of znodes that are repeated only once a watch says that they would differ.

A znode is read with a watch, and kept until the watch fires. A server sends a watch's event before
any answer that shows the change, so after a `sync` what has not fired is as new as the `sync`. When
the connection is lost, kazoo fires every watch.

Source: ZooKeeper Programmer's Guide, "What ZooKeeper Guarantees about Watches"
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from kazoo.exceptions import NoNodeError

from coordinator.storage.zookeeper_client import ZooKeeperClient

ZooKeeperRead = tuple[str, str]
"""`get` or `get_children`, and a path."""


class _Read:
    """An answer, and whether its watch has fired."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self.has_changed = False
        self.answer: Any = None

    def changed(self, _: Any) -> None:
        """Called in kazoo's thread when the watch fires."""
        self.has_changed = True
        self._on_change()


class WatchedReads:
    """Data and children of znodes, as of the last `sync` or later.

    Args:
        on_change: called, in kazoo's thread, whenever a watch has fired.
    """

    def __init__(self, client: ZooKeeperClient, on_change: Callable[[], None]) -> None:
        self._client = client
        self._on_change = on_change
        self._reads: dict[ZooKeeperRead, _Read] = {}

    async def read(self, *wanted: ZooKeeperRead) -> list[Any]:
        """Answers to some calls; None: the znode does not exist. All go at once.

        Raises:
            Unavailable, Ambiguous: the servers do not answer.
        """
        due = [call for call in wanted if call not in self._reads or self._reads[call].has_changed]
        if due:
            answers = await asyncio.gather(*(self._request(*call) for call in due))
            self._reads.update(zip(due, answers, strict=True))
        return [self._reads[call].answer for call in wanted]

    async def _request(self, method: str, path: str) -> _Read:
        while True:
            read = _Read(self._on_change)
            try:
                read.answer = await self._client.request(method, path, watch=read.changed)
            except NoNodeError:
                # "exists" sets a watch even on a znode that does not exist.
                if await self._client.request("exists", path, watch=read.changed) is not None:
                    continue
            return read
