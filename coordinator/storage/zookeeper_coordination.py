"""Coordination in ZooKeeper: ephemeral nodes for sessions, watches for changes.

/PREFIX/cluster/node/ID       the node, ephemeral
/PREFIX/cluster/controller    the node that is the controller, ephemeral
/PREFIX/cluster/epoch         its version is the number of the newest term
/PREFIX/cluster/shard/N       the shard's state; its version is the node's, plus one
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from kazoo.exceptions import BadVersionError, KazooException, NodeExistsError, NoNodeError

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
from coordinator.storage.log import Ambiguous, Unavailable
from coordinator.storage.zookeeper_client import ZooKeeperClient

RENEWALS = 4
"""In the time of one session, so that one may be lost."""


class ZooKeeperCoordination:
    """`Coordination` in a ZooKeeper ensemble. One session at a time: it is the connection's.

    Args:
        timeout_s: of the session.
    """

    def __init__(self, access: StoreAccess, *, prefix: str, timeout_s: float = 2.0) -> None:
        self._client = ZooKeeperClient(access, timeout_s)
        self._root = "/" + prefix.strip("/") + "/cluster"
        self._timeout_s = timeout_s
        self._starting: asyncio.Task[None] | None = None
        self._listeners: set[asyncio.Event] = set()
        self._renewing: dict[Session, asyncio.Task[None]] = {}

    async def join(self, node: NodeInfo) -> Session:
        await self._start()
        path = f"{self._root}/node/{node.node_id}"
        while True:
            sent_at = time.monotonic()
            try:
                await self._client.ask("create", path, node.to_bytes(), ephemeral=True)
            except NodeExistsError:
                # Of an earlier start, whose session has not ended yet: its place is ours.
                with contextlib.suppress(NoNodeError):
                    await self._client.ask("delete", path)
            else:
                break
        session = Session(node, self._timeout_s, sent_at)
        self._renewing[session] = asyncio.create_task(self._renew(session, path))
        return session

    async def announce(self, session: Session, node: NodeInfo) -> None:
        await self._client.ask("set", f"{self._root}/node/{node.node_id}", node.to_bytes())
        session.node = node

    async def campaign(self, session: Session) -> int | None:
        await self._start()
        _, stat = await self._client.read(f"{self._root}/epoch")
        transaction = self._client.kazoo.transaction()
        transaction.create(f"{self._root}/controller", b"%d" % session.node.node_id, ephemeral=True)
        transaction.set_data(f"{self._root}/epoch", b"", version=stat.version)
        results = await self._client.commit(transaction)
        won = not any(isinstance(result, KazooException) for result in results)
        return int(stat.version) + 1 if won else None

    async def resign(self, session: Session) -> None:
        path = f"{self._root}/controller"
        with contextlib.suppress(NoNodeError):
            _, stat = await self._client.read(path)
            # The node belongs to the session that made it, which is the connection's.
            if stat.ephemeralOwner == self._client.kazoo.client_id[0]:
                await self._client.ask("delete", path, version=stat.version)

    async def read(self) -> ClusterView:
        await self._start()
        nodes = await self._read_folder(f"{self._root}/node")
        shards = await self._read_folder(f"{self._root}/shard")
        controller = NOBODY
        watch = self._tell
        if await self._client.ask("exists", f"{self._root}/controller", watch=watch) is not None:
            with contextlib.suppress(NoNodeError):
                controller = int((await self._client.ask("get", f"{self._root}/controller"))[0])
        epoch = (await self._client.ask("get", f"{self._root}/epoch"))[1].version
        return ClusterView(
            {int(name): NodeInfo.from_bytes(data) for name, data, _ in nodes},
            controller,
            epoch,
            {
                ShardId(int(name)): ShardState.from_bytes(data, version + 1)
                for name, data, version in shards
            },
        )

    async def write(self, term: int, state: ShardState) -> ShardState:
        await self._start()
        path = f"{self._root}/shard/{state.shard}"
        transaction = self._client.kazoo.transaction()
        transaction.check(f"{self._root}/epoch", term)
        if state.version == 0:
            transaction.create(path, state.to_bytes())
        else:
            transaction.set_data(path, state.to_bytes(), version=state.version - 1)
        newest, written = await self._client.commit(transaction)
        if isinstance(newest, BadVersionError):
            raise Deposed(f"term {term} has been followed by another")
        if isinstance(written, KazooException):
            raise Conflict(f"shard {state.shard} was written meanwhile")
        return replace(state, version=state.version + 1)

    async def changes(self) -> AsyncIterator[None]:
        changed = asyncio.Event()
        changed.set()
        self._listeners.add(changed)
        try:
            while True:
                await changed.wait()
                changed.clear()
                yield
        finally:
            self._listeners.discard(changed)

    async def leave(self, session: Session) -> None:
        renewing = self._renewing.pop(session, None)
        if renewing is not None:
            renewing.cancel()
            await self.resign(session)
            with contextlib.suppress(NoNodeError, Unavailable):
                path = f"{self._root}/node/{session.node.node_id}"
                data, _ = await self._client.read(path)
                if data == session.node.to_bytes():
                    await self._client.ask("delete", path)
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

            def state_changed(state: str) -> None:
                # Watches are set again by the next read, so it has to come.
                loop.call_soon_threadsafe(self._tell_all)

            def prepare(kazoo: Any) -> None:
                for kind in ("node", "shard", "epoch"):
                    kazoo.ensure_path(f"{self._root}/{kind}")
                kazoo.add_listener(state_changed)

            self._loop = loop
            self._starting = asyncio.create_task(self._client.start(prepare))
        await asyncio.shield(self._starting)

    async def _read_folder(self, folder: str) -> list[tuple[str, bytes, int]]:
        """Name, data and version of each child; every change from now on is told."""
        await self._client.ask("sync", folder)
        found = []
        for name in await self._client.ask("get_children", folder, watch=self._tell):
            with contextlib.suppress(NoNodeError):  # It has gone meanwhile, which is told.
                data, stat = await self._client.ask("get", f"{folder}/{name}", watch=self._tell)
                found.append((name, data, stat.version))
        return found

    def _tell(self, _: Any) -> None:
        """A watch has fired, in kazoo's thread."""
        with contextlib.suppress(RuntimeError):  # The loop has been closed.
            self._loop.call_soon_threadsafe(self._tell_all)

    def _tell_all(self) -> None:
        for changed in self._listeners:
            changed.set()

    async def _renew(self, session: Session, path: str) -> None:
        """Until the place was taken, or the session ended, or nobody has answered in time."""
        while not session.lost.is_set():
            await asyncio.sleep(session.timeout_s / RENEWALS)
            sent_at = time.monotonic()
            try:
                data, _ = await self._client.read(path)
                if NodeInfo.from_bytes(data).incarnation == session.node.incarnation:
                    session.renewed_at = sent_at
                    continue
                session.lost.set()
            except NoNodeError:
                session.lost.set()
            except (Unavailable, Ambiguous):
                if time.monotonic() - session.renewed_at >= session.timeout_s:
                    session.lost.set()
