"""Coordination in etcd: a key for each node, renewed at intervals, and a watch for changes.

PREFIX/alive/ID              the session's token; it lasts while its node keeps writing this
PREFIX/cluster/node/ID       the node
PREFIX/cluster/controller    number of the node that is the controller, and its session's token
PREFIX/cluster/epoch         the newest controller epoch
PREFIX/cluster/shard/N       the shard's state; its version is the key's revision

etcd's leases last whole seconds and end late; these sessions are as short as asked for. Every node
watches the others. A node that has not renewed its key for a whole session timeout is removed, by
a transaction that fails if it has renewed after all. The node that removes another must itself have
been in touch with the store all that time: when the store hangs, nobody is removed.

No two sessions have the same token, not even those of one node. So the controller's key belongs to
a living session only if the node that it names has the token that it names; any other key is left
over from a session that has ended (its node was killed and started again, or joined again after
the store had hung), and the next campaign replaces it. A process that finds its node id in use
waits as the others do before they remove a node, and does not join if the key is renewed meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import grpc

from coordinator.core.values.ids import ShardId
from coordinator.storage.access import StoreAccess
from coordinator.storage.coordination import (
    NOBODY,
    ClusterView,
    Conflict,
    Deposed,
    NodeInfo,
    Session,
    ShardState,
    loop_time_s,
    signals,
)
from coordinator.storage.etcd_api import rpc_pb2 as pb
from coordinator.storage.etcd_client import CALL_TIMEOUT_S, EtcdClient
from coordinator.storage.etcd_txn import delete, differs, equal, get, put, unchanged, within
from coordinator.storage.log import Ambiguous, LogUnavailable
from coordinator.storage.node_heartbeats import judge_others, outlive, renew

REWATCH_S = 0.2
WRITES_AT_ONCE = 100
"""Shards in one transaction; etcd takes 128 operations, if it is not told otherwise."""


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
        self._joins = itertools.count(1)

    async def join(self, node: NodeInfo) -> Session:
        key = self._alive_key(node.node_id)
        while True:
            sent_at = loop_time_s()
            token = f"{node.incarnation}.{next(self._joins)}".encode()
            session = _Session(node, self._timeout_s, sent_at, token=token)
            kvs = (await self._client.range(pb.RangeRequest(key=key))).kvs
            if kvs and _incarnation(kvs[0].value) != node.incarnation:
                beat = kvs[0].mod_revision
                await outlive(node.node_id, beat, self._timeout_s, partial(self._heartbeat_of, key))
            # This overwrites the keys of an earlier session, which notices and is lost.
            response = await self._client.resolvable(
                pb.TxnRequest(
                    compare=[unchanged(key, kvs[0].mod_revision if kvs else 0)],
                    success=[put(key, session.token), put(self._node_key(node), node.to_bytes())],
                    failure=[get(key)],
                )
            )
            if response.succeeded:
                break
            # Either an earlier attempt of this transaction succeeded, or another session came.
            if [kv.value for kv in response.responses[0].response_range.kvs] == [session.token]:
                break
        renewal = pb.TxnRequest(compare=[self._holds(session)], success=[put(key, session.token)])
        work = (
            renew(session, partial(self._send_heartbeat, renewal)),
            judge_others(session, self._heartbeats, self._take_out_silent),
        )
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
        known = await self._read_keys()
        if known.alive.get(session.node.node_id) != _token(session):
            session.lost.set()
            return None
        if known.is_held_by(session):
            return known.controller_epoch
        if known.controller != NOBODY:
            return None
        replaced = [unchanged(self._key("controller"), known.named_revision)]
        if known.named is not None:
            replaced.append(self._has_ended(known))
        response = await self._client.txn(
            pb.TxnRequest(
                compare=[
                    self._holds(session),
                    unchanged(self._key("epoch"), known.controller_epoch_revision),
                    *replaced,
                ],
                success=[
                    put(self._key("controller"), _signature(session)),
                    put(self._key("epoch"), b"%d" % (known.controller_epoch + 1)),
                ],
            )
        )
        return known.controller_epoch + 1 if response.succeeded else None

    async def resign(self, session: Session) -> None:
        held = equal(self._key("controller"), _signature(session))
        gone = delete(self._key("controller"))
        await self._client.txn(pb.TxnRequest(compare=[held], success=[gone]))

    async def read(self) -> ClusterView:
        known = await self._read_keys()
        return ClusterView(known.nodes, known.controller, known.controller_epoch, known.shards)

    async def write(self, controller_epoch: int, *states: ShardState) -> list[ShardState]:
        written: list[ShardState] = []
        for start in range(0, len(states), WRITES_AT_ONCE):
            written += await self._write(controller_epoch, states[start : start + WRITES_AT_ONCE])
        return written

    def changes(self) -> AsyncIterator[None]:
        changed = asyncio.Event()
        return signals(changed, asyncio.create_task(self._watch(changed)).cancel)

    async def leave(self, session: Session) -> None:
        for task in self._work.pop(session, ()):
            task.cancel()
        session.lost.set()
        with contextlib.suppress(LogUnavailable, Ambiguous):  # Then it ends by itself.
            await self._take_out(session.node.node_id, _token(session), self._holds(session))

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

    def _alive_key(self, number: int) -> bytes:
        return f"{self._alive}/{number}".encode()

    def _holds(self, session: Session) -> pb.Compare:
        """Condition: the session has not ended."""
        return equal(self._alive_key(session.node.node_id), _token(session))

    def _has_ended(self, known: _Keys) -> pb.Compare:
        """Condition: the session in the controller's key has ended; tokens are not reused."""
        assert known.named is not None
        number, token = known.named
        key = self._alive_key(number)
        return differs(key, token) if number in known.alive else unchanged(key, 0)

    async def _write(self, epoch: int, states: Sequence[ShardState]) -> list[ShardState]:
        """`write` in one transaction."""
        keys = [(self._key("shard", state.shard), state) for state in states]
        response = await self._client.txn(
            pb.TxnRequest(
                compare=[
                    equal(self._key("epoch"), b"%d" % epoch),
                    *(unchanged(key, state.version) for key, state in keys),
                ],
                success=[put(key, state.to_bytes()) for key, state in keys],
                failure=[get(self._key("epoch"))],
            )
        )
        if response.succeeded:
            return [replace(state, version=response.header.revision) for state in states]
        epochs = response.responses[0].response_range.kvs
        if not epochs or int(epochs[0].value) != epoch:
            raise Deposed(f"controller epoch {epoch} has been followed by another")
        raise Conflict(f"one of shards {[s.shard for s in states]} was written meanwhile")

    async def _read_keys(self) -> _Keys:
        """Read all keys as of one revision."""
        folders = [_all_below(self._prefix), _all_below(self._alive)]
        kvs = await self._client.repeatable(
            pb.TxnRequest(success=[pb.RequestOp(request_range=folder) for folder in folders])
        )
        cluster, alive = (part.response_range.kvs for part in kvs.responses)
        known = _Keys({_number(kv.key): kv.value for kv in alive})
        for kv in cluster:
            kind, _, number = kv.key.decode().removeprefix(f"{self._prefix}/").partition("/")
            match kind:
                case "node":
                    known.nodes[int(number)] = NodeInfo.from_bytes(kv.value)
                case "shard":
                    state = ShardState.from_bytes(kv.value, kv.mod_revision)
                    known.shards[ShardId(int(number))] = state
                case "controller":
                    known.named, known.named_revision = _named(kv.value), kv.mod_revision
                case "epoch":
                    known.controller_epoch, known.controller_epoch_revision = (
                        int(kv.value),
                        kv.mod_revision,
                    )
        return known

    async def _send_heartbeat(self, renewal: pb.TxnRequest) -> bool:
        return (await self._client.resolvable(renewal)).succeeded

    async def _heartbeat_of(self, key: bytes) -> tuple[int | None, str]:
        """Revision of a node's key, and the incarnation in it."""
        kvs = (await self._client.range(pb.RangeRequest(key=key))).kvs
        return (kvs[0].mod_revision, _incarnation(kvs[0].value)) if kvs else (None, "")

    async def _heartbeats(self) -> dict[int, tuple[int, bytes]]:
        """Revision and token of all nodes' keys."""
        response = await self._client.range(_all_below(self._alive))
        return {_number(kv.key): (kv.mod_revision, kv.value) for kv in response.kvs}

    async def _take_out_silent(self, number: int, beat: tuple[int, bytes]) -> None:
        revision, token = beat
        await self._take_out(number, token, unchanged(self._alive_key(number), revision))

    async def _take_out(self, number: int, token: bytes, condition: pb.Compare) -> None:
        """End a node's session on a condition, and its controller epoch with it."""
        controller = self._key("controller")
        resign = pb.TxnRequest(
            compare=[equal(controller, b"%d %b" % (number, token))],
            success=[delete(controller)],
        )
        gone = [
            delete(self._alive_key(number)),
            delete(self._key("node", number)),
            within(resign),
        ]
        await self._client.txn(pb.TxnRequest(compare=[condition], success=gone))

    async def _watch(self, changed: asyncio.Event) -> None:
        """Keep a watch open; reopening it counts as a change, since some may have been missed."""
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError, LogUnavailable):
                async for _ in self._client.watch(
                    f"{self._prefix}/".encode(), f"{self._prefix}0".encode()
                ):
                    changed.set()
            await asyncio.sleep(REWATCH_S)
            changed.set()


@dataclass(eq=False, kw_only=True)
class _Session(Session):
    """A session with a token that no other session has."""

    token: bytes


@dataclass(slots=True)
class _Keys:
    """Contents of the keys; a revision of 0: the key does not exist."""

    alive: dict[int, bytes]
    nodes: dict[int, NodeInfo] = field(default_factory=dict)
    shards: dict[ShardId, ShardState] = field(default_factory=dict)
    named: tuple[int, bytes] | None = None
    """The node and the session that the controller's key names."""
    named_revision: int = 0
    controller_epoch: int = 0
    controller_epoch_revision: int = 0

    @property
    def controller(self) -> int:
        """The node whose living session has the newest controller epoch."""
        if self.named is None:
            return NOBODY
        number, token = self.named
        # A campaign writes both keys at once. Any other pair was not made by one.
        made_together = self.named_revision == self.controller_epoch_revision
        return number if made_together and self.alive.get(number) == token else NOBODY

    def is_held_by(self, session: Session) -> bool:
        """True if this session is the controller."""
        number = session.node.node_id
        return self.controller == number and self.named == (number, _token(session))


def _number(key: bytes) -> int:
    """The number at the end of a key."""
    return int(key.rpartition(b"/")[2])


def _incarnation(token: bytes) -> str:
    """The incarnation of the process that has a session."""
    return token.decode().rpartition(".")[0]


def _token(session: Session) -> bytes:
    assert isinstance(session, _Session), "a session of another store"
    return session.token


def _signature(session: Session) -> bytes:
    return b"%d %b" % (session.node.node_id, _token(session))


def _named(value: bytes) -> tuple[int, bytes]:
    """Parse the result of `_signature`; anything else names `NOBODY`."""
    number, _, token = value.partition(b" ")
    return (int(number), token) if number.isdigit() else (NOBODY, b"")


def _all_below(folder: str) -> pb.RangeRequest:
    return pb.RangeRequest(key=f"{folder}/".encode(), range_end=f"{folder}0".encode())
