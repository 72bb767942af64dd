"""Membership of one node in its cluster: its session, its leaderships, and its turn as controller.

Each node reads the controller's decisions from the store. Decisions therefore travel in one way,
also while the controller is away, and no node acts on anything that is not in the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from coordinator.cluster.controller import (
    BalanceTick,
    Controller,
    Event,
    InSyncChanged,
    NodesChanged,
    ShutdownCancelled,
    ShutdownRequested,
)
from coordinator.core.values.ids import ShardId
from coordinator.storage.coordination import (
    NOBODY,
    ClusterView,
    Conflict,
    Coordination,
    Deposed,
    NodeIdTaken,
    NodeInfo,
    Session,
    ShardState,
)
from coordinator.storage.log import Ambiguous, LogUnavailable

SELF_FENCE = 0.8
"""Fraction of the session's timeout, counted from its last renewal, after which the node answers
nothing from memory: other nodes may take over soon after."""
RETRY_S = 0.15
LOOK_S = 0.02
LOOKS_A_SESSION = 2
BALANCE_EVERY_S = 300.0
BALANCE_SOON_S = 2.0
"""Pause before balancing after nodes have come or gone, and while moves are under way."""


class NotController(Exception):
    """This node is not the controller."""


@dataclass(frozen=True, slots=True)
class LeadershipCallbacks:
    """Callbacks by which a node learns of its leaderships; each is called on its loop.

    Args:
        take: lead a shard in a leader epoch; called again for a later epoch.
        release: lead a shard no longer.
        follow: follow a shard, given its leader (None: it has none) and the leader epoch.
        unfollow: follow a shard no longer.
        report: a problem, in words.
        end: the process has to end, and why, in words; it leads nothing any more.
        expect: the live replicas that may follow a shard led here; called when the shard is
            taken, and when they change.
    """

    take: Callable[[ShardId, int], None]
    release: Callable[[ShardId], None]
    follow: Callable[[ShardId, NodeInfo | None, int], None]
    unfollow: Callable[[ShardId], None]
    report: Callable[[str], None]
    expect: Callable[[ShardId, tuple[int, ...]], None] = lambda shard, followers: None
    end: Callable[[str], None] = lambda why: None


class ClusterRunner:
    """Runs the cluster membership of a node, on its loop.

    Args:
        shards: all shards of the cluster.
        replicas: number of replicas of a shard, its leader included, as far as there are nodes.
    """

    def __init__(
        self,
        coordination: Coordination,
        node: NodeInfo,
        shards: Iterable[ShardId],
        callbacks: LeadershipCallbacks,
        *,
        replicas: int = 2,
    ) -> None:
        self.node = node
        self.view = ClusterView()
        self._coordination = coordination
        self._all = tuple(shards)
        self._callbacks = callbacks
        self._replicas = replicas
        self._session: Session | None = None
        self._mine: dict[ShardId, int] = {}
        self._followed: set[ShardId] = set()
        self._followers: dict[ShardId, tuple[int, ...]] = {}
        self._announced = node
        self._requests: deque[tuple[tuple[Event, ...], asyncio.Future[None]]] = deque()
        self._controller: Controller | None = None
        self._controller_epoch = 0
        self._balance_at = 0.0
        # The clock of the loop, as for `Session.renewed_at`; threads that serve pages use it too.
        self._now_s = asyncio.get_running_loop().time
        self._decided_at = self._now_s()
        self._warned_of: set[str] = set()
        self._wake = asyncio.Event()
        self._asked = asyncio.Event()
        self._deciding = asyncio.Lock()  # One decision after the other, its writes included.
        self._tasks: list[asyncio.Task[None]] = []

    def may_answer(self) -> bool:
        """True while no other node can have been given this node's shards."""
        session = self._session
        if session is None or session.lost.is_set():
            return False
        return self._now_s() - session.renewed_at < SELF_FENCE * session.timeout_s

    @property
    def is_controller(self) -> bool:
        """True if this node is the controller, as far as it knows."""
        return self._controller is not None

    @property
    def is_deciding(self) -> bool:
        """True if this node is the controller, and has decided within the last session timeout."""
        return self.is_controller and self.undecided_s <= self.session_timeout_s

    @property
    def session_timeout_s(self) -> float:
        """Session timeout that the store has granted, in seconds; 0: there is no session."""
        return 0.0 if self._session is None else self._session.timeout_s

    @property
    def undecided_s(self) -> float:
        """Seconds since this node last decided as controller, or saw another living controller.

        May be called from any thread.
        """
        return self._now_s() - self._decided_at

    async def decide(self, *events: Event) -> None:
        """Carry out an operator's requests; returns when their decisions are written.

        Raises:
            NotController: this node is not the controller.
        """
        if self._controller is None:
            raise NotController
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._requests.append((events, done))
        self._asked.set()
        await done

    def drain(self, *, undo: bool = False) -> None:
        """Ask the controller to lead this node's shards elsewhere; `undo`: lead again."""
        self.node = replace(self.node, stopping=not undo)
        self._wake.set()

    def keep_up(self, shard: ShardId, in_sync: Iterable[int]) -> None:
        """Tell the controller which nodes are in sync with this one on a shard that it leads."""
        if shard in self._mine:
            others = {s: (s, leader_epoch, nodes) for s, leader_epoch, nodes in self.node.in_sync}
            others[shard] = (shard, self._mine[shard], tuple(sorted(in_sync)))
            self.node = replace(self.node, in_sync=tuple(others.values()))
            self._wake.set()

    def replicas_of(self, shard: ShardId) -> tuple[int, ...]:
        """Replicas of a shard, its leader included, as of the last look."""
        state = self.view.shards.get(shard)
        return () if state is None else state.replicas

    async def start(self) -> None:
        """Join, and begin to carry out what the controller decides.

        Raises:
            Unavailable, Ambiguous: the store does not answer.
            NodeIdTaken: another process has a living session under the same id.
        """
        await self.join()
        work = (self._listen, self._follow, self._answer)
        self._tasks = [asyncio.create_task(part()) for part in work]

    async def join(self) -> None:
        """Begin a session, and no more; `start` calls it.

        Raises:
            Unavailable, Ambiguous: the store does not answer.
        """
        self._session = await self._coordination.join(self.node)
        self._announced = self.node

    async def stop(self, patience_s: float) -> None:
        """Hand the shards over, if there are other nodes; then leave.

        Args:
            patience_s: longest wait for the hand-over.
        """
        session = self._session
        if session is not None and not session.lost.is_set():
            self.drain()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience_s):
                    await self._hand_over()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._let_go_of_all()
        self._refuse_requests()
        if session is not None:
            with contextlib.suppress(LogUnavailable, Ambiguous):
                await self._coordination.leave(session)
        await self._coordination.close()

    async def read_and_act(self) -> None:
        """Read the cluster's state and act on it, once; after `start` it is called automatically.

        Raises:
            Unavailable, Ambiguous: the store does not answer.
        """
        assert self._session is not None
        if self._session.lost.is_set():
            self._report("this node's session has ended; it joins again")
            self.begin_anew()
            await self.join()
        elif self._announced != self.node:
            node = self.node
            await self._coordination.announce(self._session, node)
            self._announced = node
        view = await self._coordination.read()
        if view.lineage != self.view.lineage:
            # Entries that this node has in memory may be lost in the store, or be others there.
            self._let_go_of_all()
            self.begin_anew()
        self.view = view
        if self.node.node_id not in view.nodes:
            # Other nodes ended the session; this is how the node learns of it.
            self._session.lost.set()
            self.begin_anew()
            self._wake.set()
            return
        self._obey(view)
        async with self._deciding:
            await self._control(view)
        if self._controller is not None or self.view.controller not in (NOBODY, self.node.node_id):
            self._decided_at = self._now_s()

    def begin_anew(self) -> None:
        """Drop the controller's state: its last decision may have been written or not."""
        self._controller = None

    # --- Inside ---

    def _report(self, reason: str) -> None:
        """Report a problem, once until a look succeeds."""
        if reason not in self._warned_of:
            self._warned_of.add(reason)
            self._callbacks.report(reason)

    async def _hand_over(self) -> None:
        """Wait until this node leads nothing, or there is no other node to lead instead."""
        while True:
            others = [node for node in self.view.nodes.values() if not node.stopping]
            if not self._mine or not others:
                return
            await asyncio.sleep(LOOK_S)

    async def _listen(self) -> None:
        async with contextlib.aclosing(self._coordination.changes()) as changes:  # type: ignore[type-var]  # Every one of them is a generator.
            async for _ in changes:
                self._wake.set()

    async def _follow(self) -> None:
        """Look whenever something may have changed, and at intervals."""
        while True:
            try:
                await self.read_and_act()
                self._warned_of.clear()
                assert self._session is not None
                # A controller that has not decided for a session must differ from one that waits.
                pause_s = min(BALANCE_SOON_S, self._session.timeout_s / LOOKS_A_SESSION)
            except NodeIdTaken as error:
                self._let_go_of_all()
                self._callbacks.end(str(error))
                return
            except (LogUnavailable, Ambiguous) as error:
                self.begin_anew()
                self._report(f"the cluster's store does not answer: {error}")
                pause_s = RETRY_S
            except Exception as error:  # noqa: BLE001  # A bug must not leave a cluster unled.
                self.begin_anew()
                self._report(f"looking at the cluster failed: {error!r}")
                pause_s = RETRY_S
            if not self.may_answer():
                for shard in tuple(self._mine):
                    self._give_up(shard)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._wake.wait()
            self._wake.clear()

    def _obey(self, view: ClusterView) -> None:
        """Take, release and follow shards as the view says."""
        here = view.nodes.get(self.node.node_id)
        if here is None or here.incarnation != self.node.incarnation:
            return  # The session has ended; `read_and_act` finds out.
        wanted = {
            s.shard: s.leader_epoch for s in view.shards.values() if s.leader == self.node.node_id
        }
        for shard in tuple(self._mine):
            if self._mine[shard] != wanted.get(shard):
                self._give_up(shard)
        standing_by = {
            s.shard
            for s in view.shards.values()
            if self.node.node_id in s.replicas and s.shard not in wanted
        }
        for shard, leader_epoch in wanted.items():
            if shard not in self._mine and self.may_answer():
                self._mine[shard] = leader_epoch
                self._followed.discard(shard)  # `take` uses what the standby has gathered.
                self._callbacks.take(shard, leader_epoch)
        self._expect_followers(view)
        self._follow_only(standing_by)

    def _expect_followers(self, view: ClusterView) -> None:
        """Tell the shards led here which live replicas may follow them."""
        for shard in self._mine:
            replicas = view.shards[shard].replicas
            live = tuple(n for n in replicas if n in view.nodes and n != self.node.node_id)
            if self._followers.get(shard) != live:
                self._followers[shard] = live
                self._callbacks.expect(shard, live)

    def _follow_only(self, shards: set[ShardId]) -> None:
        for shard in self._followed - shards:
            self._callbacks.unfollow(shard)
        self._followed = shards
        for shard in sorted(shards):
            state = self.view.shards[shard]
            self._callbacks.follow(shard, self.view.nodes.get(state.leader), state.leader_epoch)

    def _let_go_of_all(self) -> None:
        """Lead and follow nothing any more."""
        for shard in tuple(self._mine):
            self._give_up(shard)
        self._follow_only(set())

    def _give_up(self, shard: ShardId) -> None:
        del self._mine[shard]
        self._followers.pop(shard, None)
        kept = tuple(reported for reported in self.node.in_sync if reported[0] != shard)
        self.node = replace(self.node, in_sync=kept)
        self._callbacks.release(shard)

    async def _control(self, view: ClusterView) -> None:
        """Become the controller if there is none; decide if this node is it."""
        if (view.controller, view.controller_epoch) != (self.node.node_id, self._controller_epoch):
            self._controller = None
        # Named and not deciding: the answer to a campaign was lost, or a decision's was.
        if self._controller is None and view.controller in (NOBODY, self.node.node_id):
            await self._campaign()
        if self._controller is not None:
            await self._decide(self._controller, self._announced_by_nodes(self._controller))
        self._refuse_requests()

    async def _answer(self) -> None:
        """Decide on requests as they come, between the looks or during one.

        Each write compares what it was decided from, so nothing has to be read before.
        """
        while True:
            await self._asked.wait()
            self._asked.clear()
            async with self._deciding:
                if self._controller is not None:
                    try:
                        await self._decide(self._controller, ())
                    except Exception as error:  # noqa: BLE001  # The next look decides, or says why not.
                        self.begin_anew()
                        self._report(f"an operator's request was not decided at once: {error!r}")
            self._wake.set()

    async def _campaign(self) -> None:
        assert self._session is not None
        controller_epoch = await self._coordination.campaign(self._session)
        if controller_epoch is None:
            return  # A change of the reason wakes the next look.
        self._wake.set()
        self._controller_epoch = controller_epoch
        # A new controller knows only what is written.
        self.view = view = await self._coordination.read()
        states = [view.shards.get(shard, ShardState(shard)) for shard in self._all]
        self._controller = Controller(states, factor=self._replicas, standbys=self._replicas > 1)
        self._balance_at = self._now_s() + BALANCE_SOON_S

    async def _decide(self, controller: Controller, arrived: Iterable[Event]) -> None:
        """Decide on what nodes tell of themselves, and on the requests of operators."""
        requests = tuple(self._requests)
        try:
            asked = itertools.chain.from_iterable(events for events, _ in requests)
            await self._step(controller, itertools.chain(arrived, asked))
            for _, done in requests:
                self._requests.popleft()
                if not done.done():
                    done.set_result(None)
            if self._now_s() >= self._balance_at:
                moved = await self._step(controller, [BalanceTick()])
                # Replicas that are not in sync yet may be soon.
                pause_s = BALANCE_SOON_S if moved or controller.is_astray else BALANCE_EVERY_S
                self._balance_at = self._now_s() + pause_s
        except (Deposed, Conflict):
            # Another node is the controller, or was: begin again with what is written.
            self._controller = None
            if self._session is not None:
                await self._coordination.resign(self._session)

    def _announced_by_nodes(self, controller: Controller) -> Iterator[Event]:
        """Events of what nodes announce; each is stepped before the next one is made."""
        view = self.view
        live = frozenset(view.nodes)
        if live != controller.live:
            self._balance_at = self._now_s() + BALANCE_SOON_S
        yield NodesChanged(live)
        for number, info in sorted(view.nodes.items()):
            if info.stopping and controller.led_by(number):
                yield ShutdownRequested(number)
            elif number in controller.stopping and not info.stopping:
                yield ShutdownCancelled(number)
                self._balance_at = self._now_s()
            for shard, leader_epoch, nodes in info.in_sync:
                if controller.shards[ShardId(shard)].leader == number:
                    yield InSyncChanged(ShardId(shard), leader_epoch, frozenset(nodes))

    def _refuse_requests(self) -> None:
        if self._controller is None:
            while self._requests:
                _, done = self._requests.popleft()
                if not done.done():
                    done.set_exception(NotController())

    async def _step(self, controller: Controller, events: Iterable[Event]) -> bool:
        """Write the decisions on some events, all at once; True if there were any."""
        changed = {state.shard: state for event in events for state in controller.step(event)}
        if changed:
            for state in await self._coordination.write(self._controller_epoch, *changed.values()):
                controller.written(state)
            self._wake.set()
        return bool(changed)
