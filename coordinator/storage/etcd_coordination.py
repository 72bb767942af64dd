"""Coordination in etcd: a key a node that is written again and again, and a watch for changes.

PREFIX/alive/ID              the node's incarnation; its session lasts while it keeps writing this
PREFIX/cluster/node/ID       the node
PREFIX/cluster/controller    number and incarnation of the node that is the controller
PREFIX/cluster/epoch         the number of the newest term
PREFIX/cluster/shard/N       the shard's state; its version is the key's revision

Leases last whole seconds and end some more later; sessions here are as short as asked for.
Every node looks at the others. One that has not been seen to write its key for a whole
session is taken out, by a transaction that fails if it has written after all. Whoever takes
out has to have been in touch with the store all that time itself: when the store hangs,
nobody is to blame.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import grpc

from coordinator.core.ids import ShardId
from coordinator.storage.access import StoreAccess
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
from coordinator.storage.etcd_client import CALL_TIMEOUT_S, EtcdClient
from coordinator.storage.etcd_txn import delete, equal, get, put, unchanged, within
from coordinator.storage.log import Ambiguous, Unavailable

RENEWALS = 4
"""In the time of one session, so that one may be lost."""
LOOKS = 16
"""In the time of one session, whether others have been silent for one."""
REWATCH_S = 0.2


class EtcdCoordination:
    """`Coordination` in an etcd cluster.

    Args:
        timeout_s: of sessions.
    """

    def __init__(self, access: StoreAccess, *, prefix: str, timeout_s: float = 2.0) -> None:
        # Several endpoints can be asked in the time of a session.
        self._client = EtcdClient(access, call_timeout_s=min(CALL_TIMEOUT_S, timeout_s / 3))
        self._prefix = f"{prefix}/cluster"
        self._alive = f"{prefix}/alive"
        self._timeout_s = timeout_s
        self._work: dict[Session, list[asyncio.Task[None]]] = {}

    async def join(self, node: NodeInfo) -> Session:
        sent_at = time.monotonic()
        # Put over keys of an earlier start: that one finds out.
        await self._client.repeatable(
            pb.TxnRequest(
                success=[
                    put(self._alive_key(node), node.incarnation.encode()),
                    put(self._node_key(node), node.to_bytes()),
                ]
            )
        )
        session = Session(node, self._timeout_s, sent_at)
        work = (self._renew(session), self._judge_others(session))
        self._work[session] = [asyncio.create_task(part) for part in work]
        return session

    async def announce(self, session: Session, node: NodeInfo) -> None:
        request = put(self._node_key(node), node.to_bytes())
        response = await self._client.txn(
            pb.TxnRequest(compare=[self._holds(session)], success=[request])
        )
        if response.succeeded:
            session.node = node
        else:
            session.lost.set()

    async def campaign(self, session: Session) -> int | None:
        epochs = (await self._client.range(pb.RangeRequest(key=self._key("epoch")))).kvs
        epoch = int(epochs[0].value) + 1 if epochs else 1
        response = await self._client.txn(
            pb.TxnRequest(
                compare=[
                    self._holds(session),
                    unchanged(self._key("controller"), 0),
                    unchanged(self._key("epoch"), epochs[0].mod_revision if epochs else 0),
                ],
                success=[
                    put(
                        self._key("controller"),
                        _signature(session.node.node_id, session.node.incarnation.encode()),
                    ),
                    put(self._key("epoch"), b"%d" % epoch),
                ],
            )
        )
        return epoch if response.succeeded else None

    async def resign(self, session: Session) -> None:
        held = equal(
            self._key("controller"),
            _signature(session.node.node_id, session.node.incarnation.encode()),
        )
        gone = delete(self._key("controller"))
        await self._client.txn(pb.TxnRequest(compare=[held], success=[gone]))

    async def read(self) -> ClusterView:
        found = await self._client.range(_all_below(self._prefix))
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
                single[kind] = int(kv.value.partition(b" ")[0])
        return ClusterView(nodes, single.get("controller", NOBODY), single.get("epoch", 0), shards)

    async def write(self, term: int, state: ShardState) -> ShardState:
        key = self._key("shard", state.shard)
        newest = equal(self._key("epoch"), b"%d" % term)
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
        for task in self._work.pop(session, ()):
            task.cancel()
        session.lost.set()
        with contextlib.suppress(Unavailable, Ambiguous):  # Then it ends by itself.
            node = session.node
            await self._take_out(node.node_id, node.incarnation.encode(), self._holds(session))

    async def close(self) -> None:
        for tasks in self._work.values():
            for task in tasks:
                task.cancel()
        await self._client.close()

    # --- Inside ---

    def _key(self, kind: str, number: int | None = None) -> bytes:
        return f"{self._prefix}/{kind}{'' if number is None else f'/{number}'}".encode()

    def _node_key(self, node: NodeInfo) -> bytes:
        return self._key("node", node.node_id)

    def _alive_key(self, node: NodeInfo) -> bytes:
        return f"{self._alive}/{node.node_id}".encode()

    def _holds(self, session: Session) -> pb.Compare:
        """The session has not ended."""
        return equal(self._alive_key(session.node), session.node.incarnation.encode())

    async def _renew(self, session: Session) -> None:
        """Until the place was taken, or nobody has answered in time."""
        renewal = pb.TxnRequest(
            compare=[self._holds(session)],
            success=[put(self._alive_key(session.node), session.node.incarnation.encode())],
        )
        while not session.lost.is_set():
            await asyncio.sleep(session.timeout_s / RENEWALS)
            sent_at = time.monotonic()
            with contextlib.suppress(Unavailable, Ambiguous):
                if (await self._client.txn(renewal)).succeeded:
                    session.renewed_at = sent_at
                else:
                    session.lost.set()
            if time.monotonic() - session.renewed_at >= session.timeout_s:
                session.lost.set()

    async def _judge_others(self, session: Session) -> None:
        """Take out who has not been seen to write for a whole session."""
        seen: dict[bytes, tuple[int, float]] = {}  # The revision, and when it was first seen.
        while not session.lost.is_set():
            await asyncio.sleep(session.timeout_s / LOOKS)
            with contextlib.suppress(Unavailable, Ambiguous):
                found = await self._client.range(_all_below(self._alive))
                now = time.monotonic()
                if now - session.renewed_at > session.timeout_s / 2:
                    seen.clear()  # We were not there, so who are we to tell?
                for kv in found.kvs:
                    revision, since = seen.get(kv.key, (0, now))
                    if revision != kv.mod_revision:
                        seen[kv.key] = (kv.mod_revision, now)
                    elif now - since >= session.timeout_s:
                        number = int(kv.key.rpartition(b"/")[2])
                        await self._take_out(number, kv.value, unchanged(kv.key, kv.mod_revision))

    async def _take_out(self, number: int, incarnation: bytes, condition: pb.Compare) -> None:
        """End a node's session on a condition, and its term if it is the controller."""
        controller = self._key("controller")
        resign = pb.TxnRequest(
            compare=[equal(controller, _signature(number, incarnation))],
            success=[delete(controller)],
        )
        gone = [
            delete(f"{self._alive}/{number}".encode()),
            delete(self._key("node", number)),
            within(resign),
        ]
        await self._client.txn(pb.TxnRequest(compare=[condition], success=gone))

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


def _signature(number: int, incarnation: bytes) -> bytes:
    """Of one start of a node: the next one has another."""
    return b"%d %b" % (number, incarnation)


def _all_below(folder: str) -> pb.RangeRequest:
    return pb.RangeRequest(key=f"{folder}/".encode(), range_end=f"{folder}0".encode())
