"""Coordination in ZooKeeper: ephemeral nodes for sessions, watches for changes.

/PREFIX/cluster/node/ID       the node, ephemeral
/PREFIX/cluster/controller    the node that is the controller, ephemeral
/PREFIX/cluster/epoch         its version is the newest controller epoch
/PREFIX/cluster/shard/N       the shard's state; its version is the node's, plus one

Ephemeral nodes belong to the session of a connection, which outlives a join: a node may join
again on the session that it had. So a join removes, in one transaction, what the session of this
connection still owns. The znode of another session under the same node id is left alone: it goes
when its process is gone, within the session timeout, and if it stays, the node does not join. The
controller is the session that owns both its node and /controller; a /controller with another owner
is left over, and the next campaign replaces it.

Servers grant no session shorter than two of their ticks (4 s by default) and none longer than
twenty. The granted timeout counts.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
)

from coordinator.core.values.ids import ShardId
from coordinator.storage.access import StoreAccess
from coordinator.storage.coordination import (
    NOBODY,
    ClusterView,
    Conflict,
    Deposed,
    NodeIdTaken,
    NodeInfo,
    Session,
    ShardState,
    loop_time_s,
    signals,
)
from coordinator.storage.log import Ambiguous, LogUnavailable
from coordinator.storage.zookeeper_client import ZooKeeperClient
from coordinator.storage.zookeeper_watched import WatchedReads

RENEWALS = 4
"""Renewals in the time of one session, so that some may be lost."""

EXPIRES_WITHIN = 2
"""Session timeouts within which the servers end the session of a process that is gone: they count
in ticks, and a session has two at least."""

_RACED = (NodeExistsError, NoNodeError, BadVersionError)
"""Errors of a transaction that lost a race."""
_CARRIED_ALONG = (RolledBackError, RuntimeInconsistency)
"""Errors of parts that were rolled back because another part failed."""

_Answer = tuple[bytes, Any]
"""Data and stat of a znode."""
_Folder = dict[int, _Answer]
"""The children of a znode, by their numbers."""


@dataclass(frozen=True, slots=True)
class _Named:
    """The node that /controller names, and its stat."""

    number: int
    stat: Any


class ZooKeeperCoordination:
    """`Coordination` in a ZooKeeper ensemble. One session at a time: it is the connection's.

    Args:
        timeout_s: session timeout to ask for; the servers may grant another.
    """

    def __init__(self, access: StoreAccess, *, prefix: str, timeout_s: float = 2.0) -> None:
        self._client = ZooKeeperClient(access, timeout_s)
        self._root = "/" + prefix.strip("/") + "/cluster"
        self._controller = f"{self._root}/controller"
        self._controller_epoch = f"{self._root}/epoch"
        self._watched = WatchedReads(self._client, self._notify)
        self._starting: asyncio.Task[None] | None = None
        self._listeners: set[asyncio.Event] = set()
        self._renewing: dict[Session, asyncio.Task[None]] = {}

    async def join(self, node: NodeInfo) -> Session:
        await self._start()
        path = self._path_of(node.node_id)
        while True:
            await self._outlive(node.node_id)
            sent_at = loop_time_s()
            transaction = self._client.kazoo.transaction()
            # While this session lives, nobody else can have made what it owns.
            if self._is_ours(await self._stat(path)):
                transaction.delete(path)
            named = await self._named()
            if named is not None and self._is_ours(named.stat):
                transaction.delete(self._controller)
            transaction.create(path, node.to_bytes(), ephemeral=True)
            if _succeeded(await self._client.commit(transaction)):
                break
        session = Session(node, self._client.granted_s, sent_at)
        self._renewing[session] = asyncio.create_task(self._renew(session, path))
        return session

    async def announce(self, session: Session, node: NodeInfo) -> None:
        path = self._path_of(node.node_id)
        stat = await self._client.request_after_sync("exists", path)
        if not self._is_ours(stat):
            session.lost.set()
            return
        try:
            await self._client.request("set", path, node.to_bytes(), version=stat.version)
        except (NoNodeError, BadVersionError):
            session.lost.set()
        else:
            session.node = node

    async def campaign(self, session: Session) -> int | None:
        await self._start()
        # Read first: a concurrent campaign changes it, and the transaction fails.
        _, controller_epoch = await self._client.read(self._controller_epoch)
        named = await self._named()
        if not await self._is_seen(session):
            session.lost.set()
            return None
        transaction = self._client.kazoo.transaction()
        if named is not None:
            # A campaign writes both at once. Any other pair was not made by one.
            if self._is_ours(named.stat) and named.stat.czxid == controller_epoch.mzxid:
                return int(controller_epoch.version)
            if not self._is_ours(named.stat) and await self._is_living(named):
                return None
            transaction.delete(self._controller)
        transaction.create(self._controller, b"%d" % session.node.node_id, ephemeral=True)
        transaction.set_data(self._controller_epoch, b"", version=controller_epoch.version)
        won = _succeeded(await self._client.commit(transaction))
        return int(controller_epoch.version) + 1 if won else None

    async def resign(self, session: Session) -> None:
        if session.lost.is_set():
            return  # The connection's nodes may belong to a later session.
        with contextlib.suppress(NoNodeError):
            _, stat = await self._client.read(self._controller)
            if self._is_ours(stat):
                await self._client.request("delete", self._controller, version=stat.version)

    async def read(self) -> ClusterView:
        await self._start()
        # Reads what is known to have changed at once, and then what the sync has brought.
        await asyncio.gather(self._client.request("sync", self._root), self._read_all())
        nodes, shards, named, epoch = await self._read_all()
        controller = NOBODY
        if named is not None and (number := _number(named[0])) in nodes:
            controller = number if _same_session(nodes[number][1], named[1]) else NOBODY
        return ClusterView(
            {number: NodeInfo.from_bytes(data) for number, (data, _) in nodes.items()},
            controller,
            epoch[1].version,
            {
                ShardId(number): ShardState.from_bytes(data, stat.version + 1)
                for number, (data, stat) in shards.items()
            },
        )

    async def write(self, controller_epoch: int, *states: ShardState) -> list[ShardState]:
        await self._start()
        transaction = self._client.kazoo.transaction()
        transaction.check(self._controller_epoch, controller_epoch)
        for state in states:
            path = f"{self._root}/shard/{state.shard}"
            if state.version == 0:
                transaction.create(path, state.to_bytes())
            else:
                transaction.set_data(path, state.to_bytes(), version=state.version - 1)
        results = await self._client.commit(transaction)
        if isinstance(results[0], BadVersionError):
            raise Deposed(f"controller epoch {controller_epoch} has been followed by another")
        if not _succeeded(results):
            raise Conflict(f"one of shards {[s.shard for s in states]} was written meanwhile")
        return [replace(state, version=state.version + 1) for state in states]

    def changes(self) -> AsyncIterator[None]:
        changed = asyncio.Event()
        self._listeners.add(changed)
        return signals(changed, lambda: self._listeners.discard(changed))

    async def leave(self, session: Session) -> None:
        renewing = self._renewing.pop(session, None)
        if renewing is not None:
            renewing.cancel()
            await self.resign(session)
            with contextlib.suppress(NoNodeError, LogUnavailable):
                path = self._path_of(session.node.node_id)
                data, _ = await self._client.read(path)
                if data == session.node.to_bytes():
                    await self._client.request("delete", path)
        session.lost.set()

    async def close(self) -> None:
        for task in self._renewing.values():
            task.cancel()
        await self._client.close()

    # --- Inside ---

    async def _start(self) -> None:
        """Connect at the first use."""
        if self._starting is None:
            loop = asyncio.get_running_loop()

            def prepare(kazoo: Any) -> None:
                for kind in ("node", "shard", "epoch"):
                    kazoo.ensure_path(f"{self._root}/{kind}")
                # Watches are set again by the next read, so it has to come.
                kazoo.add_listener(lambda state: self._notify())

            self._loop = loop
            self._starting = asyncio.create_task(self._client.start(prepare))
        await asyncio.shield(self._starting)

    def _path_of(self, number: int) -> str:
        return f"{self._root}/node/{number}"

    async def _outlive(self, number: int) -> None:
        """Wait until the servers have ended another session of this node id.

        Raises:
            NodeIdTaken: they have not, so its process is there.
        """
        path = self._path_of(number)
        until = loop_time_s() + EXPIRES_WITHIN * self._client.granted_s
        while True:
            stat = await self._client.request_after_sync("exists", path)
            if stat is None or self._is_ours(stat):
                return
            if loop_time_s() >= until:
                raise NodeIdTaken(number, f" (session {stat.ephemeralOwner:#x})")
            await asyncio.sleep(self._client.granted_s / RENEWALS)

    async def _stat(self, path: str) -> Any:
        """Stat of a node as of the last `sync`; None: it does not exist."""
        return await self._client.request("exists", path)

    def _is_ours(self, stat: Any) -> bool:
        """True if the node exists, and belongs to the session of this connection."""
        return stat is not None and stat.ephemeralOwner == self._client.kazoo.client_id[0]

    async def _is_seen(self, session: Session) -> bool:
        """True if the session has not ended, and no other has taken its place."""
        stat = await self._stat(self._path_of(session.node.node_id))
        return not session.lost.is_set() and self._is_ours(stat)

    async def _named(self) -> _Named | None:
        """Read /controller; None: it does not exist."""
        try:
            data, stat = await self._client.request("get", self._controller)
        except NoNodeError:
            return None
        return _Named(_number(data), stat)

    async def _is_living(self, named: _Named) -> bool:
        stat = await self._stat(self._path_of(named.number))
        return stat is not None and _same_session(stat, named.stat)

    async def _read_all(self) -> tuple[_Folder, _Folder, _Answer | None, _Answer]:
        """Nodes, shards, /controller and /epoch."""
        node, shard = f"{self._root}/node", f"{self._root}/shard"
        node_names, shard_names, named, epoch = await self._watched.read(
            ("get_children", node),
            ("get_children", shard),
            ("get", self._controller),
            ("get", self._controller_epoch),
        )
        nodes = await self._watched.read(*(("get", f"{node}/{name}") for name in node_names))
        shards = await self._watched.read(*(("get", f"{shard}/{name}") for name in shard_names))
        return _folder(node_names, nodes), _folder(shard_names, shards), named, epoch

    def _notify(self) -> None:
        """Called in kazoo's thread when a watch has fired, or the connection has changed."""
        with contextlib.suppress(RuntimeError):  # The loop has been closed.
            self._loop.call_soon_threadsafe(self._notify_all)

    def _notify_all(self) -> None:
        for changed in self._listeners:
            changed.set()

    async def _renew(self, session: Session, path: str) -> None:
        """Renew until another session takes the place, this one ends, or no answer is in time."""
        while not session.lost.is_set():
            await asyncio.sleep(session.timeout_s / RENEWALS)
            sent_at = loop_time_s()
            try:
                data, _ = await self._client.read(path)
                session.timeout_s = self._client.granted_s  # Another server may grant another.
                if NodeInfo.from_bytes(data).incarnation == session.node.incarnation:
                    session.renewed_at = sent_at
                    continue
                session.lost.set()
            except NoNodeError:
                session.lost.set()
            except (LogUnavailable, Ambiguous):
                if loop_time_s() - session.renewed_at >= session.timeout_s:
                    session.lost.set()


def _folder(names: list[str], answers: list[_Answer | None]) -> _Folder:
    """The children that have not been deleted since their names were read."""
    pairs = zip(names, answers, strict=True)
    return {int(name): answer for name, answer in pairs if answer is not None}


def _number(data: bytes) -> int:
    """The node that /controller names; `NOBODY`: it was written by hand."""
    return int(data) if data.isdigit() else NOBODY


def _same_session(one: Any, other: Any) -> bool:
    """True if the same session made two ephemeral nodes, given their stats."""
    return bool(one.ephemeralOwner == other.ephemeralOwner)


def _succeeded(results: list[Any]) -> bool:
    """True if a transaction was carried out; False if it lost a race, and wrote nothing."""
    failures = [result for result in results if isinstance(result, KazooException)]
    for failure in failures:
        if not isinstance(failure, _RACED + _CARRIED_ALONG):
            raise failure
    return not failures
