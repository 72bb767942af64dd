"""Stores in memory behind a network: what a node sees of them, and how they fail.

One `SharedStore` stands for etcd or ZooKeeper: a fenced log and what nodes agree on, both of them
the product's own in-memory ones. Every call of a node is a request and an answer on the network,
so it is late, lost before it was carried out, or lost after. Beside that the store refuses: it has
lost its majority, it is full, its code is broken.

Sessions end as in etcd: not renewed for their whole time-out, by the store's clock. The key of the
controller then stays behind and names nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from coordinator.core.values.ids import ShardId
from coordinator.storage.coordination import ClusterView, NodeInfo, Session, ShardState, signals
from coordinator.storage.log import (
    Ambiguous,
    Entry,
    Fence,
    Loaded,
    LogError,
    LogUnavailable,
    ShardSnapshot,
)
from coordinator.storage.memory import MemoryLog
from coordinator.testing.engine.network import Network
from coordinator.testing.engine.process import Process
from coordinator.testing.engine.story import Story
from tests.unit.storage.memory_coordination import MemoryCoordination

T = TypeVar("T")
HOST = "store"
CALL_TIMEOUT_S = 0.5
RENEWALS = 4
"""A session."""
RETELL_S = 0.1
"""Until a node that could not be told of a change is told again."""


class InjectedBug(Exception):
    """A fault that stands for a bug of our own: the shard has to stop and to load again."""


@dataclass
class SharedStore:
    """The store that all nodes of a world share.

    Attributes:
        process: where it runs; it never dies.
        session_timeout_s: granted to every node.
        has_majority: False: every call is refused, and no session ends.
        is_full: writes to the log are refused, until there is room again.
    """

    process: Process
    network: Network
    dice: random.Random
    story: Story
    session_timeout_s: float
    log: MemoryLog = field(default_factory=MemoryLog)
    coordination: MemoryCoordination = field(default_factory=MemoryCoordination)
    has_majority: bool = True
    is_full: bool = False
    slow_append_s: float = 0.0
    _ends_at: dict[Session, float] = field(default_factory=dict)

    def granted(self, session: Session) -> None:
        """Count a session's time from now."""
        now = self.network.now()
        is_new = session not in self._ends_at
        self._ends_at[session] = now + self.session_timeout_s
        if is_new:
            self.process.call_later(self.session_timeout_s, self._judge, session)

    def is_living(self, session: Session) -> bool:
        """True until it was judged, or another of the same node took its place."""
        return session in self._ends_at and not session.lost.is_set()

    def has_session(self, node_id: int) -> bool:
        """True if a session of a node lasts, whatever the node knows."""
        return any(s.node.node_id == node_id and self.is_living(s) for s in self._ends_at)

    def forget(self, session: Session) -> None:
        """It has ended otherwise."""
        self._ends_at.pop(session, None)

    def lose_majority(self) -> None:
        """Refuse everything from now on."""
        self.has_majority = False

    def regain_majority(self) -> None:
        """Serve again. Nobody could renew meanwhile: every session begins anew."""
        self.has_majority = True
        for session in self._ends_at:
            self._ends_at[session] = self.network.now() + self.session_timeout_s

    def _judge(self, session: Session) -> None:
        ends_at = self._ends_at.get(session)
        if ends_at is None:
            return
        left_s = ends_at - self.network.now()
        if left_s > 0 or not self.has_majority:
            self.process.call_later(max(left_s, 0.05), self._judge, session)
            return
        del self._ends_at[session]
        if session.lost.is_set():
            return  # Its node has joined again, or has left.
        self.story.count("session ended")
        self.story.tell(HOST, f"the session of n{session.node.node_id} ends")
        self.coordination.take_out(session)

    def heal(self) -> None:
        """Serve again, as if nothing had been."""
        self.log.forget_failures()
        self.is_full, self.slow_append_s = False, 0.0
        if not self.has_majority:
            self.regain_majority()

    def check_majority(self) -> None:
        """Refuse a call without a majority.

        Raises:
            LogUnavailable: there is none.
        """
        if not self.has_majority:
            raise LogUnavailable("the store has no majority")


class StoreClient:
    """One process's way to the store."""

    def __init__(self, store: SharedStore, process: Process, host: str) -> None:
        self.store = store
        self.process = process
        self.host = host

    async def call(
        self, operation: Callable[[], Coroutine[Any, Any, T]], *, timed_out: str, slow_s: float = 0
    ) -> T:
        """Have an operation carried out at the store, and receive what came of it.

        Raises:
            Ambiguous: no answer came in time; it was carried out or not, or will be.
            Unavailable, and what the operation raises.
        """
        store, network = self.store, self.store.network
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def receive(result: T | None, error: Exception | None) -> None:
            if answer.done():
                return
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(result)  # type: ignore[arg-type]  # One of the two is there.

        async def carry_out() -> None:
            result: T | None = None
            failure: Exception | None = None
            if slow_s:
                await asyncio.sleep(slow_s)
            try:
                store.check_majority()
                result = await operation()
            except Exception as error:  # noqa: BLE001  # It is the answer, whatever it is.
                failure = error
            network.send(HOST, self.process, self.host, receive, result, failure)

        def arrive() -> None:
            store.process.run(carry_out())

        network.send(self.host, store.process, HOST, arrive)
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                return await answer
        except TimeoutError:
            store.story.count(timed_out)
            raise Ambiguous("the store has not answered in time") from None


class SimulatedLog:
    """`GroupLog` of one node.

    Args:
        broken: asked before an append or a load; True: the driver of the store has a bug now.
    """

    def __init__(
        self, store: SharedStore, process: Process, host: str, broken: Callable[[str], bool]
    ) -> None:
        self._store = store
        self._client = StoreClient(store, process, host)
        self._broken = broken

    async def fence(self, shard: ShardId, leader_epoch: int = 0) -> Fence:
        return await self._call(lambda: self._store.log.fence(shard, leader_epoch))

    async def append(self, fence: Fence, entry: Entry) -> None:
        if self._broken("append"):
            raise InjectedBug("the append is broken")
        if self._store.is_full:
            raise LogUnavailable("the store is full", is_lasting=True)
        store = self._store
        slow_s = store.slow_append_s * store.dice.random()
        await self._call(lambda: store.log.append(fence, entry), slow_s=slow_s)

    async def load(self, fence: Fence, after: int = 0) -> Loaded:
        if self._broken("load"):
            raise InjectedBug("the load is broken")
        found = await self._call(lambda: self._store.log.load(fence, after))
        self._store.story.count("promotion of a warm standby" if after else "cold load")
        if found.snapshot is not None:
            self._store.story.count("load of a snapshot")
        return found

    async def read(self, shard: ShardId, after: int = 0) -> Loaded:
        return await self._call(lambda: self._store.log.read(shard, after))

    async def write_snapshot(self, fence: Fence, snapshot: ShardSnapshot) -> None:
        await self._call(lambda: self._store.log.write_snapshot(fence, snapshot))
        self._store.story.count("snapshot")

    async def close(self) -> None:
        pass

    async def _call(
        self, operation: Callable[[], Coroutine[Any, Any, T]], *, slow_s: float = 0.0
    ) -> T:
        return await self._client.call(operation, timed_out="log time-out", slow_s=slow_s)


class SimulatedCoordination:
    """`Coordination` of one node."""

    def __init__(self, store: SharedStore, process: Process, host: str) -> None:
        self._store = store
        self._client = StoreClient(store, process, host)
        self._process = process
        self._host = host
        self._known: dict[Session, Session] = {}
        """The store's session by the node's own."""
        self._tasks: list[asyncio.Task[None]] = []

    async def join(self, node: NodeInfo) -> Session:
        store, loop = self._store, asyncio.get_running_loop()
        sent_at = loop.time()

        async def join() -> Session:
            granted = await store.coordination.join(node)
            store.granted(granted)
            return granted

        granted = await self._call(join)
        session = Session(node, store.session_timeout_s, sent_at)
        self._known[session] = granted
        self._tasks.append(self._process.run(self._renew(session)))
        return session

    async def announce(self, session: Session, node: NodeInfo) -> None:
        await self._of(session, lambda known: self._store.coordination.announce(known, node))

    async def campaign(self, session: Session) -> int | None:
        store = self._store

        async def campaign(known: Session) -> int | None:
            before = (await store.coordination.read()).controller_epoch
            controller_epoch = await store.coordination.campaign(known)
            if controller_epoch is not None and controller_epoch != before:
                store.story.count("controller elected")
                store.story.tell(self._host, f"is the controller, epoch {controller_epoch}")
            return controller_epoch

        return await self._of(session, campaign)

    async def resign(self, session: Session) -> None:
        await self._of(session, self._store.coordination.resign)

    async def read(self) -> ClusterView:
        return await self._call(self._store.coordination.read)

    async def write(self, controller_epoch: int, *states: ShardState) -> list[ShardState]:
        agreed = self._store.coordination
        written = await self._call(lambda: agreed.write(controller_epoch, *states))
        for state in written:
            self._store.story.tell(
                self._host,
                f"decides: shard {state.shard} is led by n{state.leader}, "
                f"epoch {state.leader_epoch}, in sync {list(state.in_sync)}",
            )
        return written

    def changes(self) -> AsyncIterator[None]:
        changed = asyncio.Event()
        return signals(changed, self._store.process.run(self._watch(changed)).cancel)

    async def leave(self, session: Session) -> None:
        store = self._store

        async def leave(known: Session) -> None:
            store.forget(known)
            await store.coordination.leave(known)

        await self._of(session, leave)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    # --- Inside ---

    async def _call(self, operation: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return await self._client.call(operation, timed_out="coordination time-out")

    async def _of(
        self, session: Session, operation: Callable[[Session], Coroutine[Any, Any, T]]
    ) -> T:
        """Carry out something on behalf of a session; note if the store does not know it."""
        known = self._known[session]

        async def work() -> tuple[T, bool]:
            return await operation(known), known.lost.is_set()

        result, is_lost = await self._call(work)
        if is_lost:
            session.lost.set()
        return result

    async def _renew(self, session: Session) -> None:
        store, loop, known = self._store, asyncio.get_running_loop(), self._known[session]

        async def renew() -> bool:
            if store.is_living(known):
                store.granted(known)
                return True
            return False

        while not session.lost.is_set():
            await asyncio.sleep(session.timeout_s / RENEWALS)
            sent_at = loop.time()
            with contextlib.suppress(LogError):
                if await self._call(renew):
                    session.renewed_at = sent_at
                else:
                    session.lost.set()
            if loop.time() - session.renewed_at >= session.timeout_s:
                session.lost.set()

    async def _watch(self, changed: asyncio.Event) -> None:
        """Runs at the store: tell the node of changes, again until one message arrives."""
        store, process = self._store, self._process
        async for _ in store.coordination.changes():
            is_told = False
            while not is_told:
                is_told = store.network.send(HOST, process, self._host, changed.set)
                await asyncio.sleep(0 if is_told else RETELL_S)
