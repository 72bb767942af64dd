"""Coordination within one process, for tests and simulations, which may end sessions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

from coordinator.core.values.ids import ShardId
from coordinator.storage.coordination import (
    NOBODY,
    ClusterView,
    Conflict,
    Deposed,
    NodeInfo,
    Session,
    ShardState,
    signals,
)

TIMEOUT_S = 3.0


class MemoryCoordination:
    """`Coordination` in memory. All nodes of a test share one."""

    def __init__(self) -> None:
        self._sessions: dict[int, Session] = {}
        self._controller: Session | None = None  # It may have ended: see `_holder`.
        self._controller_epoch = 0
        self._shards: dict[ShardId, ShardState] = {}
        self._versions = 0
        self._lineage = 0
        self._listeners: dict[asyncio.Event, None] = {}  # An ordered set.

    async def join(self, node: NodeInfo) -> Session:
        earlier = self._sessions.get(node.node_id)
        if earlier is not None:
            self.expire(earlier)
        session = Session(node, TIMEOUT_S)
        self._sessions[node.node_id] = session
        self._tell()
        return session

    async def announce(self, session: Session, node: NodeInfo) -> None:
        if self._is_living(session):
            session.node = node
            self._tell()
        else:
            session.lost.set()

    async def campaign(self, session: Session) -> int | None:
        if not self._is_living(session):
            session.lost.set()
            return None
        holder = self._holder()
        if holder is not None:
            return self._controller_epoch if holder is session else None
        self._controller = session
        self._controller_epoch += 1
        self._tell()
        return self._controller_epoch

    async def resign(self, session: Session) -> None:
        if self._controller is session:
            self._controller = None
            self._tell()

    async def read(self) -> ClusterView:
        holder = self._holder()
        return ClusterView(
            {number: session.node for number, session in self._sessions.items()},
            NOBODY if holder is None else holder.node.node_id,
            self._controller_epoch,
            dict(self._shards),
            self._lineage,
        )

    async def write(self, controller_epoch: int, *states: ShardState) -> list[ShardState]:
        if controller_epoch != self._controller_epoch:
            raise Deposed(
                f"controller epoch {controller_epoch} has been followed by {self._controller_epoch}"
            )
        for state in states:
            stored = self._shards.get(state.shard)
            if state.version != (0 if stored is None else stored.version):
                raise Conflict(f"shard {state.shard} was written meanwhile")
        self._versions += 1
        written = [replace(state, version=self._versions) for state in states]
        self._shards.update((state.shard, state) for state in written)
        self._tell()
        return written

    def changes(self) -> AsyncIterator[None]:
        changed = asyncio.Event()
        self._listeners[changed] = None
        return signals(changed, lambda: self._listeners.pop(changed))

    async def leave(self, session: Session) -> None:
        self.expire(session)

    async def close(self) -> None:
        pass

    def expire(self, session: Session) -> None:
        """End a session, as if its node had fallen silent."""
        session.lost.set()
        self.take_out(session)

    def take_out(self, session: Session) -> None:
        """End a session without its node being told.

        The controller's key stays, as it may in a shared store: see `_holder`.
        """
        if self._sessions.get(session.node.node_id) is session:
            del self._sessions[session.node.node_id]
        self._tell()

    def depose(self, *, left_behind: Session | None = None) -> None:
        """Delete the controller's key, or make it name another session."""
        self._controller = left_behind
        self._tell()

    def go_back(self, raised: int) -> None:
        """Begin a new lineage, as a store does that has lost commits.

        Args:
            raised: what epochs and versions are raised by.
        """
        self._lineage += 1
        self._sessions.clear()
        self._controller = None
        self._controller_epoch += raised
        self._versions += raised
        for shard, state in self._shards.items():
            self._shards[shard] = replace(
                state,
                leader=NOBODY,
                leader_epoch=state.leader_epoch + raised,
                version=state.version + raised,
            )
        self._tell()

    def _is_living(self, session: Session) -> bool:
        return self._sessions.get(session.node.node_id) is session

    def _holder(self) -> Session | None:
        """The living session that is the controller."""
        holder = self._controller
        return holder if holder is not None and self._is_living(holder) else None

    def _tell(self) -> None:
        for changed in self._listeners:
            changed.set()
