"""The node of a data folder: found by the folder's lock, and run by this process if nobody serves.

One process of the machine at a time runs it: the one that has the lock of the file `turn`, from
before it starts a child until that has ended, so that of many that find nobody one starts a node.
Its lock is one of lockf(3), which forked processes do not share.
"""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coordinator.client.embedding.own_node import OwnNode
from coordinator.client.embedding.volume import network_file_system
from coordinator.client.errors import CannotEmbed, NotReachable
from coordinator.data_folder import is_held, last_holder
from coordinator.node_source import FoundNode

TURN = "turn"


class FolderNode(OwnNode):
    """See the top of this file."""

    def __init__(self, folder: Path, url: str, settings: Mapping[str, Any]) -> None:
        super().__init__(url, settings)
        self._folder = folder
        self._turn: int | None = None

    def look(self) -> FoundNode | None:
        """See `OwnNode`."""
        holder = last_holder(self._folder) if is_held(self._folder) else None
        if holder is None or not holder.address:
            return None
        if holder.host != socket.gethostname():
            raise NotReachable(
                f"{self.url} is served by {holder}, and a folder serves one machine: for several "
                "use a PostgreSQL store, or give workers the address of a server"
            )
        return FoundNode(holder.address, holder.token)

    def stay(self) -> None:
        """See `OwnNode`."""

    def _is_needed(self) -> bool:
        return not is_held(self._folder) and self._takes_turn() and not is_held(self._folder)

    def _environment(self) -> dict[str, str]:
        return {"COORDINATOR_STORE": "sqlite", "COORDINATOR_DATA_DIR": str(self._folder)}

    def _takes_turn(self) -> bool:
        if self._turn is not None:
            return True
        if kind := network_file_system(self._folder):
            raise CannotEmbed(
                f"{self.url} is on a network file system ({kind}), where SQLite loses data: use a "
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

    def _has_ended(self) -> None:
        turn, self._turn = self._turn, None
        if turn is not None:
            os.close(turn)
