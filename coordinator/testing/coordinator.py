"""The coordinator of a virtual group: a real node and its services, in a simulated process."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from coordinator.assignors import TopicPartition
from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.events import Event
from coordinator.core.values.ids import CallId
from coordinator.core.values.replies import DescribedMember, DescribeReply, FetchReply, Reply
from coordinator.core.values.requests import DescribeGroup, FetchOffsets, Request
from coordinator.runtime.node import Node
from coordinator.runtime.watchers import Watchers
from coordinator.service.grpc.server import GrpcServer
from coordinator.settings import Settings
from coordinator.storage.memory import MemoryLog
from coordinator.testing.engine.channels import Addresses, SimulatedServer
from coordinator.testing.engine.process import NumberedIds, Process, ProcessClock
from coordinator.testing.loop import VirtualLoop

HOST = "coordinator"
PORT = 7400
ADDRESS = f"{HOST}:{PORT}"
STARTS = "the coordinator starts: `await group.advance(0)` first"


class CoordinatorIsDown(RuntimeError):
    """It was killed, or is loading: nobody can say who owns what."""


class GroupCoordinator:
    """A node on virtual time. Its log outlives it, as a disk does.

    Args:
        settings: as those of `coordinator serve`.
    """

    def __init__(self, loop: VirtualLoop, addresses: Addresses, settings: Settings) -> None:
        self._loop = loop
        self._addresses = addresses
        self._settings = settings
        self._log = MemoryLog()
        self._lives = itertools.count(1)
        self._process: Process | None = None
        self._node: Node | None = None

    @property
    def is_up(self) -> bool:
        """True unless it was killed."""
        return self._process is not None

    def start(self) -> None:
        """Start it, unless it runs; it loads what was committed before."""
        if self._process is not None:
            return
        life = f"{HOST}-{next(self._lives)}"
        process = self._process = self._loop.process(life)
        process.run(self._live(process, life))

    async def _live(self, process: Process, life: str) -> None:
        node = self._node = Node(
            self._settings,
            watchers=Watchers(events=self._publish, failure=self._failed, recovery=self._say),
            log=self._log,
            clock=ProcessClock(process),
            ids=NumberedIds(life),
            incarnation=life,
        )
        node.probe.memory = lambda: 0  # Real memory is that of the test.
        server = SimulatedServer(process, lambda method, request, response: None)
        plain: Any = server  # Any: it is a server by its methods.
        GrpcServer(node, on_malformed=self._malformed).add_services(plain)
        self._addresses.listen(ADDRESS, HOST, server)
        await node.start(HOST, PORT)

    def kill(self) -> None:
        """Kill it, as SIGKILL does: calls under way fail, nothing that was answered is lost."""
        if self._process is not None:
            self._addresses.story.tell(HOST, "*** killed")
            if self._addresses.server_at(ADDRESS) is not None:
                self._addresses.hang_up(ADDRESS)
            self._process.kill()
            self._process = self._node = None

    def pause(self) -> None:
        """Stop it, as SIGSTOP does, until `resume`."""
        if self._process is not None:
            self._addresses.story.tell(HOST, "*** paused")
            self._process.pause()

    def resume(self) -> None:
        """Let it go on."""
        if self._process is not None:
            self._addresses.story.tell(HOST, "resumed")
            self._process.resume()

    # --- What it knows ---

    def group_ids(self) -> list[str]:
        """The groups that there are."""
        return sorted(stats.group_id for stats in self._running.group_stats(lambda _: True))

    def members(self, group_id: str) -> tuple[DescribedMember, ...]:
        """The members of a group."""
        reply = self._request(DescribeGroup(call_id=self._call_id(), group_id=group_id))
        assert isinstance(reply, DescribeReply)
        return reply.members

    def committed(self, group_id: str) -> dict[TopicPartition, int]:
        """The committed offset of each partition of a group that has one."""
        reply = self._request(FetchOffsets(call_id=self._call_id(), group_id=group_id))
        assert isinstance(reply, FetchReply)
        offsets = {TopicPartition(one.topic, one.partition): one.offset for one in reply.offsets}
        return dict(sorted(offsets.items()))

    # --- Inside ---

    @property
    def _running(self) -> Node:
        if self._process is None:
            raise CoordinatorIsDown("the coordinator was killed: call `coordinator.start()` first")
        if self._node is None:
            raise CoordinatorIsDown(STARTS)
        return self._node

    def _call_id(self) -> CallId:
        return self._running.new_call_id()

    def _request(self, request: Request) -> Reply:
        """Answer a request that is never parked, without a turn of the loop."""
        asking = self._running.ask([request])
        try:
            asking.send(None)
        except StopIteration as answered:
            reply: Reply = answered.value[0]
        else:
            asking.close()
            raise CoordinatorIsDown(STARTS)
        if isinstance(reply, DescribeReply | FetchReply) and reply.error is not ErrorCode.NONE:
            raise CoordinatorIsDown(f"{reply.error.name}: {reply.message}")
        return reply

    def _publish(self, events: Sequence[Event], now_ms: int) -> None:
        for event in events:
            self._addresses.story.tell(HOST, f"  {event}")

    def _failed(self, reason: str, error: BaseException | None) -> None:
        self._say(f"{reason}: {error!r}" if error else reason)

    def _say(self, text: str) -> None:
        self._addresses.story.tell(HOST, f"says: {text}")

    def _malformed(self, method: str, peer: str, reason: str) -> None:
        self._say(f"{method} of {peer} is malformed: {reason}")
