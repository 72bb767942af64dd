"""The nodes of a PostgreSQL store: found by a child command, so that clients need no driver.

The store is asked at the start, and when no known node is reached any more. This process runs a
node of its own at once if there is none, else after `LIVES_S`, if there are fewer than there may
be: so processes that end soon run none. Whether there are enough the node decides, in the store.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
from collections.abc import Mapping
from typing import Any

from coordinator.client.embedding.node_process import command
from coordinator.client.embedding.own_node import LOGGER, OwnNode
from coordinator.client.errors import CannotEmbed, CoordinatorError, NotReachable
from coordinator.dial import is_loopback
from coordinator.node_source import FoundNode

LIVES_S = 5.0
ASK_S = 20.0
CONNECT_S = 1.0


class DatabaseNode(OwnNode):
    """See the top of this file.

    Args:
        store: URL of the store, with its password.
        most: nodes that there may be in all.
    """

    def __init__(self, store: str, url: str, settings: Mapping[str, Any], most: int) -> None:
        super().__init__(store, url, {**settings, "embedded_nodes": most})
        self._store, self._most = store, most
        self._known: list[str] = []
        self._token = ""
        self._starting = 0
        self._asking = threading.Lock()  # Turns are of processes.
        self._stays: threading.Timer | None = None

    def probe(self) -> FoundNode | None:
        """See `OwnNode`."""
        reached = self._reached()
        if reached is None and self._request_nodes():
            reached = self._reached()
        return reached

    def stay(self) -> None:
        """See `OwnNode`."""
        if self._stays is None:
            self._stays = threading.Timer(LIVES_S, self._run_one_more)
            self._stays.daemon = True
            self._stays.start()

    def _run_one_more(self) -> None:
        self._stays = None
        if not self._users:
            return
        try:
            is_answered = self._request_nodes()
            if is_answered and len(self._known) < self._most:
                self.run()
        except (CoordinatorError, OSError) as error:
            LOGGER.warning("no further node is run: %s", error)
        if self._users and self._node is None and len(self._known) < self._most:
            self.stay()  # Others have their turn.

    def _reached(self) -> FoundNode | None:
        for address in list(self._known):
            # Asked again, it is since this one did not do: the others come first then.
            self._known = [
                *(node_address for node_address in self._known if node_address != address),
                address,
            ]
            host, _, port = address.rpartition(":")
            try:
                socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
            except OSError:
                continue
            return FoundNode(address, self._token, is_insecure=bool(self.settings.get("insecure")))
        return None

    def _request_nodes(self) -> bool:
        """Ask which nodes there are; False: another process is asking.

        Raises:
            CannotEmbed: the store cannot be asked. NotReachable: the nodes are on other machines'
                loopback.
        """
        with self._asking:
            text = self._neighbours.ask(self._answer)
        if text is None:
            return False
        answer = json.loads(text)
        here = socket.gethostname()
        nodes = {
            entry["address"]: entry["machine"] in ("", here)
            or not is_loopback(entry["address"].rpartition(":")[0])
            for entry in answer["nodes"]
        }
        if nodes and not any(nodes.values()):
            raise NotReachable(
                f"the nodes of {self.url} listen on the loopback of another machine: say "
                "embedded(…, listen='HOST:0') there, with TLS or insecure=True"
            )
        self._known = [address for address, is_reachable in nodes.items() if is_reachable]
        self._token, self._starting = answer["token"], answer["starting"]
        return True

    def _answer(self) -> str:
        try:
            done = subprocess.run(  # noqa: S603  # Our own program.
                command("store", "nodes"),
                env={**os.environ, **self._environment()},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=ASK_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise CannotEmbed(f"{self.url} has not answered for {ASK_S:g} s") from None
        if done.returncode:
            stderr = done.stderr.strip().removeprefix("coordinator: ")
            raise CannotEmbed(f"the nodes of {self.url} cannot be found: {stderr}")
        return done.stdout

    def _is_needed(self) -> bool:
        return self._starting < self._most

    def _environment(self) -> dict[str, str]:
        return {"COORDINATOR_STORE": self._store}
