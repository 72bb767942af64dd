"""Three coordinators on a store of three, with a proxy in every wire."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from pathlib import Path
from typing import Any

from coordinator.storage.access import StoreAccess
from coordinator.storage.coordination import ClusterView
from coordinator.storage.etcd_coordination import EtcdCoordination
from coordinator.storage.log import Ambiguous, CannotOpen, LogUnavailable
from coordinator.storage.postgres_coordination import PostgresCoordination
from coordinator.storage.zookeeper_coordination import ZooKeeperCoordination
from tests.campaigns.faults.nodes import Nodes
from tests.campaigns.faults.stores import (
    Cluster,
    EtcdCluster,
    LonePostgres,
    ZooKeeperCluster,
    url_of,
)
from tests.kit.proxy import Proxy
from tests.kit.serving import Process, free_port
from tests.unit.storage.meetings import postgres_store

COORDINATIONS: dict[str, Any] = {"etcd": EtcdCoordination, "zookeeper": ZooKeeperCoordination}
STORES: dict[str, type[Cluster | LonePostgres]] = {
    "etcd": EtcdCluster, "zookeeper": ZooKeeperCluster, "postgresql": LonePostgres,
}  # fmt: skip
NODES = (1, 2, 3)
LOOK_S = 0.1
SHARDS = 8
SESSION_MS = 2_000
"""The default session timeout: a process is started again within it."""
NAME = "faults"
"""Prefix of all keys in the store."""


class Deployment(Nodes):
    """Use it as an async context manager.

    Args:
        kind: of the store, one of `STORES`.
        flags: more for every coordinator.
        store: another than the usual one of its kind.
    """

    numbers = NODES
    fail_over_s = SESSION_MS / 1_000
    """Longest time from the end of a fault until a fail-over that it has called for begins."""

    def __init__(self, kind: str, *flags: str, store: Cluster | None = None) -> None:
        super().__init__()
        self.kind = kind
        self._flags = flags
        self.store = store or STORES[kind]()
        self.fronts: dict[int, Proxy] = {}
        """Between a node and everybody who calls it: clients and other nodes."""
        self.to_store: dict[int, list[Proxy]] = {}
        """Between a node and each server of the store."""
        self._ports = {number: free_port() for number in NODES}
        self._stack = contextlib.AsyncExitStack()

    @property
    def addresses(self) -> list[str]:
        return [front.address for front in self.fronts.values()]

    @property
    def url(self) -> str:
        """URL of the store itself, past the proxies."""
        return url_of(self.kind, self.store.endpoints, NAME)

    async def __aenter__(self) -> Deployment:
        await asyncio.to_thread(self.store.__enter__)
        self._stack.callback(self.store.__exit__)
        for number in NODES:
            self.to_store[number] = [
                await self._stack.enter_async_context(Proxy(address))
                for address in self.store.endpoints
            ]
            front = Proxy(f"127.0.0.1:{self._ports[number]}")
            self.fronts[number] = await self._stack.enter_async_context(front)
            await self.start(number)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end()
        await self._stack.aclose()

    async def start(self, number: int) -> None:
        """Start a coordinator, and wait until it serves."""
        store = url_of(self.kind, [proxy.address for proxy in self.to_store[number]], NAME)
        flags = (
            "--store", store, "--node-id", str(number),
            "--listen", f"127.0.0.1:{self._ports[number]}", "--metrics-listen", "",
            "--console-listen", "",
            "--advertised-port", self.fronts[number].address.rpartition(":")[2],
            "--shards", str(SHARDS), "--store-session-timeout-ms", str(SESSION_MS),
            "--group-initial-rebalance-delay-ms", "50", "--group-min-session-timeout-ms", "100",
            "--replica-lag-time-max-ms", "1000", "--drain-timeout-ms", "3000", *self._flags,
        )  # fmt: skip
        self.nodes[number] = await asyncio.to_thread(Process, *flags, variables=self.variables)

    async def view(self) -> ClusterView:
        """Read the cluster's state from the store.

        Raises:
            Unavailable, Ambiguous, CannotOpen: it does not answer.
        """
        if isinstance(self.store, LonePostgres):
            coordination = self._of_postgres()
        else:
            access = StoreAccess(self.store.endpoints)
            coordination = COORDINATIONS[self.kind](access, prefix=NAME)
        try:
            return await coordination.read()
        finally:
            await coordination.close()

    def _of_postgres(self) -> PostgresCoordination:
        store = postgres_store(self.url.partition("?")[0], NAME)
        self._stack.callback(store.server.watchdog.close)
        return PostgresCoordination(store)

    async def controller(self) -> int:
        """The node that decides, as soon as there is one."""
        while True:
            with contextlib.suppress(LogUnavailable, Ambiguous, CannotOpen):
                if (number := (await self.view()).controller) in self.nodes:
                    return number
            await asyncio.sleep(LOOK_S)

    async def takeovers(self) -> int:
        """Number of times that a shard was given to another node, or to a restarted one."""
        while True:
            with contextlib.suppress(LogUnavailable, Ambiguous, CannotOpen):
                shards = (await self.view()).shards.values()
                return sum(state.leader_epoch - 1 for state in shards)
            await asyncio.sleep(LOOK_S)

    def dump(self, path: Path) -> None:
        """Write what the store holds, as lines."""
        with path.open("w") as file:
            command = [sys.executable, "-m", "coordinator", "log", "dump", self.url]
            subprocess.run(command, stdout=file, check=True)
