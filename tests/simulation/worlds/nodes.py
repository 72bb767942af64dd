"""Nodes of a world: the product's own `Node` and services, in processes that die and come back."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from coordinator.core.values.events import Event
from coordinator.runtime.node import Node
from coordinator.runtime.watchers import Watchers
from coordinator.service.grpc.replica_service import Peers
from coordinator.service.grpc.server import GrpcServer
from coordinator.settings import Settings
from coordinator.storage.log import LogError
from coordinator.testing.engine.channels import Addresses, SimulatedCredentials, SimulatedServer
from coordinator.testing.engine.clock import MachineClock
from coordinator.testing.engine.loop import SimulatedLoop
from coordinator.testing.engine.process import NumberedIds, Process, ProcessClock
from coordinator.testing.engine.story import Story
from coordinator.v1 import group_pb2 as pb
from tests.simulation.worlds.checkers.history import Line
from tests.simulation.worlds.shards import Watch, WatchedShard
from tests.simulation.worlds.stores import (
    InjectedBug,
    SharedStore,
    SimulatedCoordination,
    SimulatedLog,
)

PORT = 9000
OUR_BUG = re.compile(r"failed: (?!InjectedBug)|begins anew: (?!InjectedBug)\w+\(|follows entry")
"""Failure messages of unexpected exceptions, and of logs whose entries do not follow."""
RESTART_S = 0.2
"""Pause of a supervisor after a start that failed."""


class SimulatedNode:
    """One node, over all its lives.

    Args:
        settings: its `node_id` gives it its name and address.
        tell: takes a line of the history.
        fail: told of what must not happen in any world, in words.
    """

    def __init__(
        self,
        loop: SimulatedLoop,
        settings: Settings,
        clock: MachineClock,
        *,
        store: SharedStore,
        addresses: Addresses,
        story: Story,
        is_cluster: bool,
        tell: Callable[[Line], None],
        fail: Callable[[str, str], None],
    ) -> None:
        self.settings = settings
        self.name = f"n{settings.cluster.node_id}"
        self.address = f"{self.name}:{PORT}"
        self.clock = clock
        self.node: Node | None = None
        self.process: Process | None = None
        self._loop = loop
        self._store = store
        self._addresses = addresses
        self._story = story
        self._is_cluster = is_cluster
        self._tell = tell
        self._fail = fail
        self.watch = Watch(story, tell, self.name)
        self._lives = itertools.count(1)

    @property
    def is_up(self) -> bool:
        """True unless it was killed or stopped."""
        return self.process is not None

    @property
    def is_paused(self) -> bool:
        """True while it stands still."""
        return self.process is not None and self.process.is_held

    def start(self) -> None:
        """A new process begins, unless one is there."""
        if self.process is not None:
            return
        life = f"{self.name}.{next(self._lives)}"
        self.process = process = self._loop.process(life, self.clock)
        self._story.tell(self.name, "starts")
        process.run(self._live(process, life))

    def kill(self, *, silently: bool = False) -> None:
        """Kill the process, as SIGKILL does; silently: together with its machine."""
        if self.process is not None:
            self._hang_up(silently=silently)
            self.process.kill()
            self.watch.count_waits()
            self.process = self.node = None

    def stop(self) -> None:
        """Gracefully, as by SIGTERM."""
        if self.process is not None and self.node is not None:
            self.process.run(self._stop(self.process, self.node))

    @property
    def is_deciding(self) -> bool:
        """True if it is the controller, as far as it knows."""
        cluster = None if self.node is None else self.node.cluster
        return cluster is not None and cluster.is_controller

    # --- In the process ---

    async def _live(self, process: Process, life: str) -> None:
        for attempt in itertools.count(1):
            node, peers = self._build(process, f"{life}.{attempt}")
            self._listen(process, node)
            self.node = node
            try:
                await node.start(self.name, PORT)
                return
            except LogError as error:
                self._story.tell(self.name, f"cannot start: {error!r}")
                self._hang_up()
                node.probe.stop()
                await peers.close()
                await asyncio.sleep(RESTART_S)

    async def _stop(self, process: Process, node: Node) -> None:
        self._story.tell(self.name, "is told to stop")
        await node.stop()
        if self.process is process:
            self._story.tell(self.name, "has stopped")
            self._hang_up()
            self.process = self.node = None
            self.watch.count_waits()
            process.kill()

    def _build(self, process: Process, name: str) -> tuple[Node, Peers]:
        credentials = SimulatedCredentials.of(
            self._addresses,
            process,
            self.name,
            f"ipv4:10.0.0.{self.settings.cluster.node_id}:{PORT}",
        )
        peers = Peers(self.settings.cluster.node_id, credentials)
        node = Node(
            self.settings,
            watchers=Watchers(events=self._note, failure=self._failed, recovery=self._recovered),
            log=SimulatedLog(self._store, process, self.name, self.watch.is_broken),
            coordination=(
                SimulatedCoordination(self._store, process, self.name) if self._is_cluster else None
            ),
            fetch=peers.fetch,
            clock=ProcessClock(process),
            ids=NumberedIds(name),
            shard_type=partial(WatchedShard, self.watch),
            incarnation=name,
        )
        node.probe.memory = lambda: 0  # Real memory is the simulator's, and slow to read.
        return node, peers

    def _listen(self, process: Process, node: Node) -> None:
        server = SimulatedServer(process, self._answered)
        plain: Any = server  # Any: it is a server by its methods.
        GrpcServer(node, on_malformed=self._malformed).add_services(plain)
        self._addresses.listen(self.address, self.name, server)

    def _hang_up(self, *, silently: bool = False) -> None:
        if self._addresses.server_at(self.address) is not None:
            self._addresses.hang_up(self.address, silently=silently)

    # --- What is seen ---

    def _note(self, events: Sequence[Event], now_ms: int) -> None:
        for event in events:
            name = type(event).__name__
            self._story.counts[name] += 1
            if self._story.is_told:
                self._story.tell(self.name, f"  {event}")

    def _failed(self, what: str, error: BaseException | None) -> None:
        self._story.tell(self.name, f"says: {what}" + (f": {error!r}" if error else ""))
        if error is not None and not isinstance(error, InjectedBug):
            self._fail(self.name, f"{what}: {error!r}")
        elif OUR_BUG.search(what):
            self._fail(self.name, what)

    def _recovered(self, what: str) -> None:
        self._story.tell(self.name, f"says: {what}")

    def _malformed(self, method: str, peer: str, what: str) -> None:
        self._fail(self.name, f"{method} of {peer} is malformed: {what}")

    def _answered(self, method: str, request: Any, response: Any) -> None:
        """Called in the turn in which the answer is made: later, the node may know better."""
        if method == "Fetch":
            if response.entries:
                self._story.count("follower fetch")
            return
        for group in served_groups(request, response):
            if self.node is None or not self.node.is_loaded(group):
                continue  # Heartbeats are answered while a shard loads, and promise nothing.
            leader_epoch = self.node.leader_epoch_of(group)
            if leader_epoch is not None:
                self._tell(
                    {"op": "served", "at": self._store.network.now(), "node": self.name,
                     "group": group, "epoch": leader_epoch, "method": method,
                     "in_session": self._store.has_session(self.settings.cluster.node_id)}
                )  # fmt: skip


def served_groups(request: Any, response: Any) -> list[str]:
    """The groups whose call was answered without an error."""
    match request:
        case pb.HeartbeatBatchRequest():
            pairs = zip(request.heartbeats, response.heartbeats, strict=True)
            return [beat.group_id for beat, answer in pairs if not answer.error_code]
        case pb.OffsetCommitRequest():
            partitions = [p for topic in response.topics for p in topic.partitions]
            is_served = not any(p.error_code for p in partitions)
        case pb.FindCoordinatorRequest():
            is_served = False  # Any node answers it.
        case _:
            is_served = not response.error_code
    return [request.group_id] if is_served else []
