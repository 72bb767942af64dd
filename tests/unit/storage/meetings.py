"""Stores in which nodes of one cluster meet, and what operators and bugs do to them by hand."""

from __future__ import annotations

import asyncio
import contextlib
import uuid

import psycopg
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from coordinator.storage.access import StoreAccess
from coordinator.storage.coordination import Coordination, NodeInfo, Session
from coordinator.storage.etcd_api import rpc_pb2 as pb
from coordinator.storage.etcd_client import EtcdClient
from coordinator.storage.etcd_coordination import EtcdCoordination
from coordinator.storage.etcd_txn import delete, put
from coordinator.storage.postgres import PostgresLog
from coordinator.storage.postgres_connection import Database, Server
from coordinator.storage.postgres_coordination import PostgresCoordination
from coordinator.storage.postgres_lineage import PostgresStore
from coordinator.storage.zookeeper_coordination import ZooKeeperCoordination
from tests.unit.storage.memory_coordination import MemoryCoordination

SESSION_S = 6.0
"""Longer than a busy machine keeps a node from renewing it. No test waits for its end."""


class Meeting:
    """Called, it makes one more `Coordination` of the cluster."""

    renews = True
    """Whether its sessions have to be."""

    def __init__(self) -> None:
        self._made: list[Coordination] = []

    def __call__(self) -> Coordination:
        self._made.append(self._make())
        return self._made[-1]

    async def close(self) -> None:
        for coordination in self._made:
            await coordination.close()

    def _make(self) -> Coordination:
        raise NotImplementedError

    async def end_session(self, number: int) -> None:
        """End a node's session, as if its process had been silent for long enough."""
        raise NotImplementedError

    async def name_controller(self, number: int) -> None:
        """Have the controller's key name a node, in a session that nobody has."""
        raise NotImplementedError

    async def delete_controller(self) -> None:
        """Delete the controller's key, as an operator does."""
        raise NotImplementedError


class MemoryMeeting(Meeting):
    renews = False

    def __init__(self) -> None:
        super().__init__()
        self._one = MemoryCoordination()

    def _make(self) -> Coordination:
        return self._one

    async def end_session(self, number: int) -> None:
        self._one.expire(self._one._sessions[number])

    async def name_controller(self, number: int) -> None:
        self._one.depose(left_behind=Session(NodeInfo(number, "h", 1, "long gone"), 1.0))

    async def delete_controller(self) -> None:
        self._one.depose()


class EtcdMeeting(Meeting):
    def __init__(self, endpoints) -> None:
        super().__init__()
        self._access = StoreAccess(endpoints)
        self._prefix = uuid.uuid4().hex
        self._key = f"{self._prefix}/cluster/controller".encode()

    def _make(self) -> Coordination:
        return EtcdCoordination(self._access, prefix=self._prefix, timeout_s=SESSION_S)

    async def end_session(self, number: int) -> None:
        for key in (f"alive/{number}", f"cluster/node/{number}"):
            await self._carry_out(delete(f"{self._prefix}/{key}".encode()))

    async def name_controller(self, number: int) -> None:
        await self._carry_out(put(self._key, b"%d long gone" % number))

    async def delete_controller(self) -> None:
        await self._carry_out(delete(self._key))

    async def _carry_out(self, request: pb.RequestOp) -> None:
        client = EtcdClient(self._access)
        await client.txn(pb.TxnRequest(success=[request]))
        await client.close()


class ZooKeeperMeeting(Meeting):
    def __init__(self, endpoints) -> None:
        super().__init__()
        self._access = StoreAccess(endpoints)
        self._prefix = uuid.uuid4().hex
        self._path = f"/{self._prefix}/cluster/controller"
        self._others: list[KazooClient] = []

    def _make(self) -> Coordination:
        return ZooKeeperCoordination(self._access, prefix=self._prefix, timeout_s=SESSION_S)

    async def close(self) -> None:
        await super().close()
        for other in self._others:
            await asyncio.to_thread(other.stop)

    async def name_controller(self, number: int) -> None:
        await self.delete_controller()
        # As of a node that was killed: its session lasts for a while.
        await asyncio.to_thread(self._others[-1].create, self._path, b"%d" % number, ephemeral=True)

    async def end_session(self, number: int) -> None:
        await self._delete(f"/{self._prefix}/cluster/node/{number}")

    async def delete_controller(self) -> None:
        await self._delete(self._path)

    async def _delete(self, path: str) -> None:
        self._others.append(KazooClient(",".join(self._access.endpoints)))
        await asyncio.to_thread(self._others[-1].start)
        with contextlib.suppress(NoNodeError):
            await asyncio.to_thread(self._others[-1].delete, path)


def postgres_store(url: str, cluster: str) -> PostgresStore:
    """A cluster of a database."""
    return PostgresStore(Server(Database.of(url, cluster, StoreAccess(()), SESSION_S)))


class PostgresMeeting(Meeting):
    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self._cluster = f"c{uuid.uuid4().hex}"

    async def open(self) -> None:
        """Make the tables, as the log of a node does."""
        log = await PostgresLog.open(postgres_store(self._url, self._cluster), shards=250)
        await log.close()

    def _make(self) -> Coordination:
        return PostgresCoordination(postgres_store(self._url, self._cluster), timeout_s=SESSION_S)

    async def end_session(self, number: int) -> None:
        await self._carry_out("DELETE FROM node WHERE id = %s", number)

    async def name_controller(self, number: int) -> None:
        await self._carry_out("UPDATE cluster SET controller = %s", f"{number} long gone")

    async def delete_controller(self) -> None:
        await self._carry_out("UPDATE cluster SET controller = NULL")

    async def _carry_out(self, statement: str, *values: object) -> None:
        """Change a row by hand, and tell the nodes."""

        def change() -> None:
            with psycopg.connect(self._url, autocommit=True) as connection:
                connection.execute(f"SET search_path = {self._cluster}")
                connection.execute(statement, values)
                connection.execute("UPDATE cluster SET version = version + 1")
                connection.execute("SELECT pg_notify(%s, '')", (self._cluster,))

        await asyncio.to_thread(change)
