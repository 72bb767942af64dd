"""The node of a data folder: found by the folder's lock, and run here if nobody serves."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coordinator.client.embedding.own_node import OwnNode
from coordinator.client.embedding.volume import network_file_system
from coordinator.client.errors import CannotEmbed, NotReachable
from coordinator.data_folder import is_held, last_holder
from coordinator.node_source import FoundNode


class FolderNode(OwnNode):
    """See the top of this file."""

    def __init__(self, folder: Path, url: str, settings: Mapping[str, Any]) -> None:
        super().__init__(str(folder), url, settings)
        self._folder = folder

    def probe(self) -> FoundNode | None:
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
        """See `OwnNode`: one serves at a time."""

    def _is_needed(self) -> bool:
        if kind := network_file_system(self._folder):
            raise CannotEmbed(
                f"{self.url} is on a network file system ({kind}), where SQLite loses data: use a "
                "folder of this machine, or a PostgreSQL store"
            )
        return not is_held(self._folder)

    def _environment(self) -> dict[str, str]:
        return {"COORDINATOR_STORE": "sqlite", "COORDINATOR_DATA_DIR": str(self._folder)}
