"""Coordination in etcd: leases for sessions, a watch for changes, one transaction a write.

PREFIX/cluster/node/ID       the node, on its session's lease
PREFIX/cluster/controller    the node that is the controller, on the same lease
PREFIX/cluster/epoch         the number of the newest term
PREFIX/cluster/shard/N       the shard's state; its version is the key's revision
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import grpc

from coordinator.core.ids import ShardId
from coordinator.storage.coordination import (
    NOBODY,
    ClusterView,
    Conflict,
    Deposed,
    NodeInfo,
    Session,
    ShardState,
)
from coordinator.storage.etcd_api import rpc_pb2 as pb
from coordinator.storage.etcd_client import EtcdAccess, EtcdClient
from coordinator.storage.etcd_txn import delete, get, put, unchanged
from coordinator.storage.log import Ambiguous, Unavailable

RENEWALS = 4
"""In the time of one session, so that one may be lost."""
REWATCH_S = 0.2


class EtcdCoordination:
    """`Coordination` in an etcd cluster.

    Args:
        timeout_s: of sessions; whole seconds, at least 1.
    """

    def __init__(self, access: EtcdAccess, *, prefix: str, timeout_s: int = 2) -> None:
        self._client = EtcdClient(access)
        self._prefix = f"{prefix}/cluster"
        self._timeout_s = timeout_s
        self._leases: dict[Session, int] = {}
        self._renewing: dict[Session, asyncio.Task[None]] = {}

    async def join(self, node: NodeInfo) -> Session:
        sent_at = time.monotonic()
        lease = await self._client.grant(self._timeout_s)
        session = Session(node, self._timeout_s, sent_at)
        # Put over a key of an earlier start, it moves to our lease: the earlier one finds out.
        request = put(self._node_key(node.node_id), node.to_bytes(), lease)
        await self._client.txn(pb.TxnRequest(success=[request]))
        self._leases[session] = lease
        self._renewing[session] = asyncio.create_task(self._renew(session, lease))
        return session

    async def announce(self, session: Session, node: NodeInfo) -> None:
        request = put(self._node_key(node.node_id), node.to_bytes(), self._leases[session])
        await self._client.txn(pb.TxnRequest(success=[request]))
        session.node = node

    async def campaign(self, session: Session) -> int | None:
        epochs = (await self._client.range(pb.RangeRequest(key=self._key("epoch")))).kvs
        epoch = int(epochs[0].value) + 1 if epochs else 1
        node = b"%d" % session.node.node_id
        response = await self._client.txn(
            pb.TxnRequest(
                compare=[
                    unchanged(self._key("controller"), 0),
                    unchanged(self._key("epoch"), epochs[0].mod_revision if epochs else 0),
                ],
                success=[
                    put(self._key("controller"), node, self._leases[session]),
                    put(self._key("epoch"), b"%d" % epoch),
                ],
            )
        )
        return epoch if response.succeeded else None

    async def resign(self, session: Session) -> None:
        held = pb.Compare(
            result=pb.Compare.CompareResult.EQUAL,
            target=pb.Compare.CompareTarget.LEASE,
            key=self._key("controller"),
            lease=self._leases[session],
        )
        gone = delete(self._key("controller"))
        await self._client.txn(pb.TxnRequest(compare=[held], success=[gone]))

    async def read(self) -> ClusterView:
        found = await self._client.range(
            pb.RangeRequest(key=f"{self._prefix}/".encode(), range_end=f"{self._prefix}0".encode())
        )
        nodes: dict[int, NodeInfo] = {}
        shards: dict[ShardId, ShardState] = {}
        single: dict[str, int] = {}
        for kv in found.kvs:
            kind, _, number = kv.key.decode().removeprefix(f"{self._prefix}/").partition("/")
            if kind == "node":
                nodes[int(number)] = NodeInfo.from_bytes(kv.value)
            elif kind == "shard":
                shards[ShardId(int(number))] = ShardState.from_bytes(kv.value, kv.mod_revision)
            else:
                single[kind] = int(kv.value)
        return ClusterView(nodes, single.get("controller", NOBODY), single.get("epoch", 0), shards)

    async def write(self, term: int, state: ShardState) -> ShardState:
        key = self._key("shard", state.shard)
        newest = pb.Compare(
            result=pb.Compare.CompareResult.EQUAL,
            target=pb.Compare.CompareTarget.VALUE,
            key=self._key("epoch"),
            value=b"%d" % term,
        )
        response = await self._client.txn(
            pb.TxnRequest(
                compare=[newest, unchanged(key, state.version)],
                success=[put(key, state.to_bytes())],
                failure=[get(self._key("epoch"))],
            )
        )
        if response.succeeded:
            return replace(state, version=response.header.revision)
        epochs = response.responses[0].response_range.kvs
        if not epochs or int(epochs[0].value) != term:
            raise Deposed(f"term {term} has been followed by another")
        raise Conflict(f"shard {state.shard} was written meanwhile")

    async def changes(self) -> AsyncIterator[None]:
        changed = asyncio.Event()
        watching = asyncio.create_task(self._watch(changed))
        changed.set()
        try:
            while True:
                await changed.wait()
                changed.clear()
                yield
        finally:
            watching.cancel()

    async def leave(self, session: Session) -> None:
        lease = self._leases.pop(session, None)
        if lease is not None:
            self._renewing.pop(session).cancel()
            with contextlib.suppress(Unavailable):  # Then it ends by itself.
                await self._client.revoke(lease)
        session.lost.set()

    async def close(self) -> None:
        for task in self._renewing.values():
            task.cancel()
        await self._client.close()

    # --- Inside ---

    def _key(self, kind: str, number: int | None = None) -> bytes:
        return f"{self._prefix}/{kind}{'' if number is None else f'/{number}'}".encode()

    def _node_key(self, node_id: int) -> bytes:
        return self._key("node", node_id)

    async def _renew(self, session: Session, lease: int) -> None:
        """Until the lease is gone, or the place was taken, or nobody has answered in time."""
        while not session.lost.is_set():
            await asyncio.sleep(session.timeout_s / RENEWALS)
            sent_at = time.monotonic()
            try:
                alive = await self._client.keep_alive(lease)
                found = (
                    await self._client.range(
                        pb.RangeRequest(key=self._node_key(session.node.node_id))
                    )
                ).kvs
                if alive and found and found[0].lease == lease:
                    session.renewed_at = sent_at
                    continue
                session.lost.set()
            except (Unavailable, Ambiguous):
                if time.monotonic() - session.renewed_at >= session.timeout_s:
                    session.lost.set()

    async def _watch(self, changed: asyncio.Event) -> None:
        """Keep a watch up. Whenever it has to be made anew, something may have been missed."""
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError, Unavailable):
                async for _ in self._client.watch(
                    f"{self._prefix}/".encode(), f"{self._prefix}0".encode()
                ):
                    changed.set()
            await asyncio.sleep(REWATCH_S)
            changed.set()
