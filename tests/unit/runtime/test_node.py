"""Two nodes on virtual time: killed, paused, and started again."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.requests import FetchOffsets
from coordinator.runtime.clock import AnchoredClock
from coordinator.runtime.node import Node
from coordinator.settings import Settings
from coordinator.shard.shard import Shard
from coordinator.storage.memory import MemoryLog
from coordinator.testing.engine.process import Process
from coordinator.testing.virtual import CountingIds
from tests.kit import commands
from tests.kit.nodes import ObservedNode
from tests.unit.storage.memory_coordination import TIMEOUT_S, MemoryCoordination

pytestmark = pytest.mark.virtual_time
SHARDS = 4
GROUPS = [f"g{number}" for number in range(12)]


class Cluster:
    """Nodes, each in a process of its own, on a shared log and coordination in memory."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.log = MemoryLog()
        self.coordination = MemoryCoordination()
        self.processes: dict[int, Process] = {}
        self.nodes: dict[int, Node] = {}
        self.loop.world.run(self._keep_sessions())

    async def start(self, number: int) -> None:
        self.processes[number] = process = self.loop.process(f"node {number}")
        settings = Settings.of(node_id=number, shards=SHARDS, replicas=1)
        observed = ObservedNode(
            settings, log=self.log, coordination=self.coordination,
            clock=AnchoredClock(process.wall_ns, process.monotonic_ns), ids=CountingIds(),
        )  # fmt: skip
        self.nodes[number] = observed.node
        await process.run(self.nodes[number].start("h", number))

    async def _keep_sessions(self) -> None:
        """Renew sessions of live nodes, and end silent ones, as a store does."""
        while True:
            await asyncio.sleep(TIMEOUT_S / 8)
            for number, session in list(self.coordination._sessions.items()):
                process = self.processes[number]
                now_s = process.monotonic_ns() / 1e9
                if not process.is_held:
                    session.renewed_at = now_s
                elif now_s - session.renewed_at >= TIMEOUT_S:
                    self.coordination.take_out(session)

    def ask(self, number: int, request) -> asyncio.Future:
        return self.processes[number].run(self.nodes[number].ask([request]))

    def leader_of(self, group_id: str) -> int:
        living = next(n for n, process in self.processes.items() if not process.is_held)
        return self.nodes[living].coordinator_of(group_id).node_id

    async def commit(self, number: int, group_id: str, offset: int) -> ErrorCode:
        request = commands.commit(self.nodes[number].new_call_id(), offset, group_id)
        (reply,) = await self.ask(number, request)
        return reply.results[0].error

    async def offset(self, number: int, group_id: str) -> int | None:
        call_id = self.nodes[number].new_call_id()
        request = FetchOffsets(call_id=call_id, group_id=group_id, partitions=None)
        (reply,) = await self.ask(number, request)
        return next((offset.offset for offset in reply.offsets), None)


@pytest.fixture
async def cluster():
    cluster = Cluster()
    await cluster.start(1)
    await cluster.start(2)
    await asyncio.sleep(30)
    yield cluster
    for process in cluster.processes.values():
        process.kill()


async def commit_everywhere(cluster: Cluster, offset: int) -> None:
    for group_id in GROUPS:
        leader = cluster.leader_of(group_id)
        assert await cluster.commit(leader, group_id, offset) is ErrorCode.NONE


async def test_a_killed_node_is_succeeded_by_one_that_has_what_it_acknowledged(cluster):
    assert {cluster.leader_of(group_id) for group_id in GROUPS} == {1, 2}
    await commit_everywhere(cluster, 7)
    cluster.processes[1].kill()
    await asyncio.sleep(10)
    assert {cluster.leader_of(group_id) for group_id in GROUPS} == {2}
    assert [await cluster.offset(2, group_id) for group_id in GROUPS] == [7] * len(GROUPS)

    await cluster.start(1)
    await asyncio.sleep(30)
    assert {cluster.leader_of(group_id) for group_id in GROUPS} == {1, 2}
    await commit_everywhere(cluster, 8)


async def test_a_node_that_stood_still_answers_nothing_of_what_it_remembers(cluster):
    """Its first turn after the pause comes before it could hear that others lead."""
    await commit_everywhere(cluster, 7)
    group_id = next(group_id for group_id in GROUPS if cluster.leader_of(group_id) == 1)
    cluster.processes[1].pause(asyncio.get_running_loop().time() + 20)
    asked = cluster.ask(
        1, FetchOffsets(call_id=cluster.nodes[1].new_call_id(), group_id=group_id, partitions=None)
    )
    await asyncio.sleep(10)
    assert await cluster.commit(2, group_id, 8) is ErrorCode.NONE
    (late,) = await asked
    assert late.error is ErrorCode.NOT_COORDINATOR
    await asyncio.sleep(30)
    assert await cluster.offset(cluster.leader_of(group_id), group_id) == 8


async def test_a_bug_in_the_short_way_of_a_heartbeat_loads_the_shard_again(monkeypatch):
    observed = ObservedNode(Settings.of(shards=1))
    node = observed.node
    await node.start("h", 1)
    bug = RuntimeError("a bug of ours")

    def raising(*_: object) -> bool:
        raise bug

    with monkeypatch.context() as patch:
        patch.setattr(Shard, "beat", raising)
        assert not node.beat("g", "m", None, 1)
    assert not node.is_loaded("g")
    assert not node.beat("g", "m", None, 1)
    assert [error for _, error in observed.failures] == [bug]
    while not node.is_loaded("g"):  # noqa: ASYNC110  # Virtual time.
        await asyncio.sleep(0.1)
    await node.stop()
