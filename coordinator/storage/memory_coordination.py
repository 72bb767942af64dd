"""Coordination within one process: for one machine, and for tests, which may end a session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

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

TIMEOUT_S = 3.0


class MemoryCoordination:
    """`Coordination` in a few dicts. All nodes of a test share one."""

    def __init__(self) -> None:
        self._sessions: dict[int, Session] = {}
        self._controller: Session | None = None
        self._epoch = 0
        self._shards: dict[ShardId, ShardState] = {}
        self._versions = 0
        self._listeners: set[asyncio.Event] = set()

    async def join(self, node: NodeInfo) -> Session:
        earlier = self._sessions.get(node.node_id)
        if earlier is not None:
            self.expire(earlier)
        session = Session(node, TIMEOUT_S)
        self._sessions[node.node_id] = session
        self._tell()
        return session

    async def announce(self, session: Session, node: NodeInfo) -> None:
        session.node = node
        self._tell()

    async def campaign(self, session: Session) -> int | None:
        if self._controller is not None or session.lost.is_set():
            return None
        self._controller = session
        self._epoch += 1
        self._tell()
        return self._epoch

    async def resign(self, session: Session) -> None:
        if self._controller is session:
            self._controller = None
            self._tell()

    async def read(self) -> ClusterView:
        return ClusterView(
            {number: session.node for number, session in self._sessions.items()},
            NOBODY if self._controller is None else self._controller.node.node_id,
            self._epoch,
            dict(self._shards),
        )

    async def write(self, term: int, state: ShardState) -> ShardState:
        if term != self._epoch:
            raise Deposed(f"term {term} has been followed by {self._epoch}")
        stored = self._shards.get(state.shard)
        if state.version != (0 if stored is None else stored.version):
            raise Conflict(f"shard {state.shard} was written meanwhile")
        self._versions += 1
        written = replace(state, version=self._versions)
        self._shards[state.shard] = written
        self._tell()
        return written

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
        self.expire(session)

    async def close(self) -> None:
        pass

    def expire(self, session: Session) -> None:
        """The session ends, as if its node had fallen silent."""
        session.lost.set()
        if self._sessions.get(session.node.node_id) is session:
            del self._sessions[session.node.node_id]
        if self._controller is session:
            self._controller = None
        self._tell()

    def _tell(self) -> None:
        for changed in self._listeners:
            changed.set()
