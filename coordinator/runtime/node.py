"""A node: everything that one process runs, built from its settings.

Groups belong to shards, shards to nodes, and a group never crosses a process. A single node leads
every shard; one of several leads those that the controller gives it.
"""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace

from coordinator.cluster.runner import ClusterRunner, LeadershipCallbacks
from coordinator.core.values.errors import ErrorCode, Refused, advice
from coordinator.core.values.events import Event
from coordinator.core.values.ids import CallId, IdSource, ShardId
from coordinator.core.values.replies import Reply
from coordinator.core.values.requests import Heartbeat, ListGroups, Request
from coordinator.dial import address_of
from coordinator.runtime.clock import AnchoredClock, RandomIds
from coordinator.runtime.loop_probe import LoopProbe
from coordinator.runtime.shard_runner import Planner, ShardRunner, plan_in_place
from coordinator.runtime.shard_table import ShardTable
from coordinator.runtime.slices import Slices
from coordinator.runtime.standby import Fetch
from coordinator.runtime.watchers import Watchers
from coordinator.settings import Settings
from coordinator.settings.sections import NODE_PORTS
from coordinator.shard.followers import ANYBODY, FetchedEntries, FetchEntries
from coordinator.shard.placement import shard_of
from coordinator.shard.shard import Shard
from coordinator.shard.stats import ClusterStats, GroupStats, ShardStats
from coordinator.storage.coordination import (
    NOBODY,
    ClusterView,
    Coordination,
    NodeInfo,
    ShardState,
)
from coordinator.storage.log import GroupLog
from coordinator.storage.memory import MemoryLog
from timer.clock import Clock

LEASE_PARTS = 20
"""A loop that is later than this part of a lease takes a fifth of the time between heartbeats."""


class Node:
    """The shards of one process.

    Args:
        log: durable log of groups, which `stop` closes; in memory by default.
        coordination: the store shared with other nodes; None: there are no others.
        fetch: fetches the end of a shard's log from its leader; None: shards are not followed.
        shard_type: makes an empty shard; simulated worlds have a type of their own.
        incarnation: differs between this node's starts; empty: chosen at random.
        planner: makes the plans of large session groups; on the loop by default.
        on_end: called if the process has to end, with the reason in words.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        watchers: Watchers,
        log: GroupLog | None = None,
        coordination: Coordination | None = None,
        fetch: Fetch | None = None,
        clock: Clock | None = None,
        ids: IdSource | None = None,
        shard_type: Callable[..., Shard] = Shard,
        incarnation: str = "",
        planner: Planner = plan_in_place,
        on_end: Callable[[str], None] = lambda why: None,
    ) -> None:
        self.settings = settings
        self._on_end = on_end
        self._shard_count = settings.storage.shards
        self._incarnation = incarnation or uuid.uuid4().hex
        self._listeners = [watchers.events]
        self._watchers = replace(watchers, events=self._publish)
        self._log = log or MemoryLog()
        self._coordination = coordination
        self._clock = clock = clock or AnchoredClock()
        self.probe = LoopProbe(clock)
        """Measurements of the event loop, and the pauses found by them."""
        self.probe.each_minute = self._compare_lag
        self._call_ids = itertools.count(1)
        self.cluster: ClusterRunner | None = None
        """Membership in the cluster; None: this node is the only one."""
        self._table = ShardTable(
            settings=settings,
            log=self._log,
            clock=clock,
            watchers=self._watchers,
            fetch=None if coordination is None else fetch,
            ids=ids or RandomIds(),
            shard_type=shard_type,
            pauses=self.probe.pauses,
            on_in_sync=self._keep_up,
            planner=planner,
        )
        self._runners = self._table.runners
        self._fixed_view = ClusterView()
        if coordination is None:
            for shard in self._fixed_share():
                self._table.add(shard)

    async def start(self, host: str, port: int, kafka: str = "") -> None:
        """Load the shards and serve; loaded shards serve while others load.

        Args:
            host, port: address at which clients and other nodes reach this one.
            kafka: HOST:PORT at which Kafka's clients do; empty: they are not served.
        Raises:
            Damaged: the log is not what was written.
            Unavailable, Ambiguous: the shared store does not answer.
            NodeIdTaken: another process runs under this node's id.
        """
        self.probe.start()
        if self._coordination is None:
            self._fixed_view = self._view_of_shares(host, port, kafka)
            await self._table.load_all()
            return
        callbacks = LeadershipCallbacks(
            take=self._table.take,
            release=self._table.release,
            follow=self._table.follow,
            unfollow=self._table.unfollow,
            expect=self._table.expect,
            report=lambda reason: self._watchers.failure(reason, None),
            end=self._on_end,
        )
        self.cluster = ClusterRunner(
            self._coordination,
            NodeInfo(self.settings.cluster.node_id, host, port, self._incarnation, kafka=kafka),
            self._all_shards(),
            callbacks,
            replicas=self.settings.cluster.replicas if self._table.has_followers else 1,
        )
        await self.cluster.start()
        self._compare_session(self.cluster.session_timeout_s)

    async def stop(self) -> None:
        """Hand the shards over, and send the clients of parked calls to other nodes."""
        if self.cluster is not None:
            await self.cluster.stop(self.settings.serving.drain_timeout_ms / 1000)
        self.probe.stop()
        await self._table.stop()
        await self._log.close()

    def listen(self, listener: Callable[[Sequence[Event], int], None]) -> None:
        """Add a listener to the events of groups, called as `Watchers.events` is."""
        self._listeners.append(listener)

    def new_call_id(self) -> CallId:
        """Return an id that no other call of this process has."""
        return CallId(next(self._call_ids))

    def beat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> bool:
        """Extend a member's session without a step; see `Shard.beat`.

        Returns:
            True if the session was extended; False, without any effect, if `answer_beat` has to
            answer.
        """
        runner = self._runners.get(shard_of(group_id, self._shard_count))
        if runner is None or not (self.cluster is None or self.cluster.may_answer()):
            return False
        shard = runner.driver.shard
        if shard is None:
            return False
        try:
            return shard.beat(group_id, member_id, instance_id, generation, self._clock.now_ms())
        except Exception as error:  # noqa: BLE001  # Our bug, whatever it is: the shard is reloaded.
            runner.fail(error)
            return False

    def answer_beat(self, heartbeat: Heartbeat) -> Reply:
        """Answer a heartbeat, in the same turn of the loop."""
        runner = self._runners.get(self._shard_of(heartbeat.group_id))
        if runner is None or not self.may_answer():
            return self._elsewhere(heartbeat)
        answer = runner.submit(heartbeat)
        assert not isinstance(answer, asyncio.Future), "a heartbeat is never parked"
        return answer

    async def ask(
        self, requests: Sequence[Request], on_wait: Callable[[], None] = lambda: None
    ) -> list[Reply]:
        """Answer requests, in their order. A ListGroups is answered by every shard.

        Many requests are stepped in slices, between which other tasks run. On cancellation the
        parked calls are cancelled.

        Args:
            on_wait: called if an answer is not ready at once.
        """
        calls: list[tuple[ShardRunner, CallId]] = []
        answers: list[Reply | asyncio.Future[Reply]] = []
        replies: list[Reply] = []
        slices = Slices()
        try:
            for request in requests:
                if answers:
                    await slices.pause()
                if isinstance(request, ListGroups):
                    for runner in list(self._runners.values()):
                        part = replace(request, call_id=self.new_call_id())
                        answers.append(runner.submit(part))
                        calls.append((runner, part.call_id))
                        await slices.pause()
                    continue
                here = self._runners.get(self._shard_of(request.group_id))
                if here is None:
                    answers.append(self._elsewhere(request))
                else:
                    answers.append(here.submit(request))
                    calls.append((here, request.call_id))
            if any(isinstance(answer, asyncio.Future) for answer in answers):
                on_wait()
            for answer in answers:
                replies.append(await answer if isinstance(answer, asyncio.Future) else answer)
        except asyncio.CancelledError:
            for runner, call_id in calls:
                runner.cancel(call_id)
            raise
        if not self.may_answer():
            # Another node may lead the groups by now.
            return [self._elsewhere(request) for request in requests]
        return replies

    def runner_of(self, group_id: str) -> ShardRunner | None:
        """The runner of a group's shard; None: this node does not lead it, or may not answer."""
        return self._runners.get(self._shard_of(group_id)) if self.may_answer() else None

    def may_answer(self) -> bool:
        """False once another node may lead the shards of this one: it answers nothing then."""
        return self.cluster is None or self.cluster.may_answer()

    def leader_elsewhere(self, group_id: str) -> NodeInfo | None:
        """Leader of a group's shard, if this node does not lead it and knows who does."""
        return None if self._shard_of(group_id) in self._runners else self.coordinator_of(group_id)

    async def fetch(self, shard: ShardId, leader_epoch: int, fetch: FetchEntries) -> FetchedEntries:
        """Fetch the end of a shard's log for a follower.

        Args:
            leader_epoch: this node's leader epoch, as the follower knows it; -1: any.
        """
        runner = self._runners.get(shard)
        if runner is None or leader_epoch not in (-1, runner.leader_epoch):
            return fetch.refusal(Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        if self.cluster is None or fetch.follower not in self.cluster.replicas_of(shard):
            fetch = replace(fetch, follower=ANYBODY)
        return await runner.fetch(fetch)

    def coordinator_of(self, group_id: str) -> NodeInfo | None:
        """Leader of a group's shard, as of this node's view of the cluster: a hint."""
        return self.cluster_view().leader_of(self._shard_of(group_id))

    def cluster_view(self) -> ClusterView:
        """Nodes and leaders of shards, as this node last read them."""
        return self._fixed_view if self.cluster is None else self.cluster.view

    @property
    def memory_bytes(self) -> int:
        """Resident memory at the last probe; 0 where the system does not report it."""
        return self.probe.memory_bytes

    def is_loaded(self, group_id: str) -> bool:
        """True if the shard of a group is loaded and serves here."""
        runner = self._runners.get(self._shard_of(group_id))
        return runner is not None and runner.shard is not None

    def leader_epoch_of(self, group_id: str) -> int | None:
        """The epoch in which this node leads the shard of a group; None: it does not."""
        runner = self._runners.get(self._shard_of(group_id))
        return None if runner is None else runner.leader_epoch

    def group_count(self) -> int:
        """Groups of all shards of this node."""
        return sum(shard.group_count for shard in self._shards())

    def members_of(self, client_host: str) -> int:
        """Members of all groups of this node that come from a host."""
        return sum(shard.members_of(client_host) for shard in self._shards())

    def has_session(self, group_id: str, incarnation: str) -> bool | None:
        """True if that incarnation of a process has a session; None if there is no such group."""
        runner = self._runners.get(self._shard_of(group_id))
        if runner is None or runner.shard is None:
            return None
        return runner.shard.has_session(group_id, incarnation)

    def has_static_member(self, group_id: str, instance_id: str | None) -> bool | None:
        """True if the group has that static member; None if there is no such group here."""
        runner = self._runners.get(self._shard_of(group_id))
        if runner is None or runner.shard is None:
            return None
        return runner.shard.has_static_member(group_id, instance_id)

    def loaded_shards(self) -> dict[ShardId, Shard]:
        """The shards that this node leads and has loaded."""
        shards = ((shard, runner.shard) for shard, runner in list(self._runners.items()))
        return {number: shard for number, shard in shards if shard is not None}

    @property
    def node_id(self) -> int:
        """Id of this node in `cluster_view`."""
        if self._coordination is None:
            return self.settings.storage.fixed_share[0]
        return self.settings.cluster.node_id

    def peers(self) -> list[NodeInfo]:
        """The other nodes, as this node last read them."""
        own = self.node_id
        return [info for number, info in self.cluster_view().nodes.items() if number != own]

    def report(self, reason: str) -> None:
        """Log a problem, in words."""
        self._watchers.failure(reason, None)

    def stats(self) -> list[ShardStats]:
        """Numbers of each shard of this node."""
        shards = [runner.shard for runner in list(self._runners.values())]
        return [ShardStats() if shard is None else shard.stats() for shard in shards]

    def cluster_stats(self) -> ClusterStats:
        """Gauges of the cluster as this node sees it. May be called from any thread."""
        runners = list(self._runners.values())
        loaded = len(self._shards())
        view = self.cluster_view()
        return ClusterStats(
            {
                "leading": loaded,
                "loading": len(runners) - loaded,
                "following": len(self._table.standbys),
            },
            self.settings.storage.shards,
            view.controller_epoch,
            self.cluster is not None and self.cluster.is_deciding,
            0.0 if self.cluster is None else self.cluster.undecided_s,
            0.0 if self.cluster is None else self.cluster.session_timeout_s,
            view.lineage_number,
        )

    def group_stats(self, is_wanted: Callable[[str], bool]) -> list[GroupStats]:
        """Numbers of the groups whose ids are wanted. May be called from any thread."""
        return [stats for shard in self._shards() for stats in shard.group_stats(is_wanted)]

    # --- Inside ---

    def _compare_session(self, granted_s: float) -> None:
        """Report a session timeout granted by the store that differs from the setting."""
        asked_s = self.settings.storage.store_session_timeout_ms / 1000
        if granted_s != asked_s:
            self._watchers.failure(
                f"the store grants sessions of {granted_s:g} s, not the {asked_s:g} s of "
                "store_session_timeout_ms: that is how long a node that dies is waited for "
                "(ZooKeeper: two of its ticks at least, see tickTime and minSessionTimeout)",
                None,
            )

    def _compare_lag(self) -> None:
        """Report a loop that is late for the shortest lease told to a member of its groups."""
        leases_ms = [
            lease_ms for shard in self._shards() if (lease_ms := shard.shortest_lease_ms())
        ]
        lag_ms = 1_000 * self.probe.lag_p99_s
        if leases_ms and lag_ms > min(leases_ms) / LEASE_PARTS:
            self._watchers.failure(
                f"the event loop was {lag_ms:.0f} ms late (99th percentile of the last minute), "
                f"which is more than a twentieth of a lease of {min(leases_ms):,} ms: session "
                "members may be suspended for nothing. Give the node more CPU or fewer groups, or "
                "these groups longer leases",
                None,
            )

    def _shards(self) -> list[Shard]:
        return list(self.loaded_shards().values())

    def _publish(self, events: Sequence[Event], now_ms: int) -> None:
        for listener in self._listeners:
            listener(events, now_ms)

    def _all_shards(self) -> list[ShardId]:
        return [ShardId(number) for number in range(self.settings.storage.shards)]

    def _fixed_share(self) -> list[ShardId]:
        number, shares = self.settings.storage.fixed_share
        return [shard for shard in self._all_shards() if shard % shares == number - 1]

    def _view_of_shares(self, host: str, port: int, kafka: str) -> ClusterView:
        """The fixed view of nodes with shares: all on one machine, `NODE_PORTS` apart."""
        number, shares = self.settings.storage.fixed_share
        kafka_host, _, kafka_port = kafka.rpartition(":")
        nodes = {}
        for n in range(1, shares + 1):
            shift = (n - number) * NODE_PORTS
            kafka_address = f"{kafka_host}:{int(kafka_port) + shift}" if kafka else ""
            nodes[n] = NodeInfo(n, host, port + shift, "", kafka=kafka_address)
        shards = {}
        for shard in self._all_shards():
            leader = shard % shares + 1
            shards[shard] = ShardState(shard, leader, 0, (leader,), (leader,))
        return ClusterView(nodes, NOBODY, 0, shards)

    def _shard_of(self, group_id: str) -> ShardId:
        return shard_of(group_id, self._shard_count)

    def _keep_up(self, shard: ShardId, nodes: frozenset[int]) -> None:
        if self.cluster is not None:
            self.cluster.keep_up(shard, nodes)

    def _elsewhere(self, request: Request) -> Reply:
        group_id = getattr(request, "group_id", "")
        leader = self.leader_elsewhere(group_id)
        reason = advice(ErrorCode.NOT_COORDINATOR)
        if leader is not None:
            reason = f"{reason} ({address_of(leader.host, leader.port)})"
        return request.refusal(Refused(ErrorCode.NOT_COORDINATOR, reason))
