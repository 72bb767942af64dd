"""A new version is rolled out: node after node stops and comes back, and nobody notices."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest

from coordinator.assignors import TopicPartition
from coordinator.client import GroupMember
from tests.faults.stores import EtcdCluster, missing_etcd
from tests.integration.nodes import three_nodes

pytestmark = pytest.mark.timeout(300)
GROUPS, A_GROUP = 100, 5
COMMIT_EVERY_S = 2.0
MEMBER = {"session_timeout_ms": 10_000, "heartbeat_interval_ms": 1_000}


class Worker:
    """A member that commits all the time, and what happened to it."""

    def __init__(self, addresses: list[str], group: str) -> None:
        self.member = GroupMember(addresses, group, {"t": A_GROUP}, **MEMBER)
        self.events: list[object] = []
        self.commits = 0

    async def run(self) -> None:
        async with self.member:
            while True:
                due = time.monotonic() + COMMIT_EVERY_S
                self.events += await self.member.poll(timeout=COMMIT_EVERY_S)
                if self.member.assignment:
                    offsets = dict.fromkeys(self.member.assignment, self.commits)
                    await self.member.commit(offsets)  # It raises if it fails for good.
                    self.commits += 1
                await asyncio.sleep(max(0.0, due - time.monotonic()))


async def at_rest(workers: list[Worker]) -> None:
    """All groups have their members, and each member a partition of its own."""
    async with asyncio.timeout(90):
        while True:
            if all(w.commits > 1 and len(w.member.assignment) == 1 for w in workers):
                return
            await asyncio.sleep(0.2)


async def test_a_rolling_restart_under_five_hundred_members_is_noticed_by_none():
    if reason := missing_etcd():
        pytest.skip(reason)
    with EtcdCluster() as store:
        async with contextlib.AsyncExitStack() as stack:
            nodes = await stack.enter_async_context(
                three_nodes(f"etcd://{','.join(store.endpoints)}/test")
            )
            workers = [
                Worker(nodes.addresses, f"group-{n}") for n in range(GROUPS) for _ in range(A_GROUP)
            ]
            async with asyncio.TaskGroup() as running:
                tasks = [running.create_task(worker.run()) for worker in workers]
                await at_rest(workers)
                before = [(w.member.member_id, w.member.generation) for w in workers]
                for worker in workers:
                    worker.events.clear()
                for number in (1, 2, 3):
                    await nodes.stop(number)
                    await asyncio.sleep(2.0)
                    await nodes.start(number)
                    await asyncio.sleep(6.0)  # Standbys catch up, shards come back.
                commits = [worker.commits for worker in workers]
                await asyncio.sleep(3 * COMMIT_EVERY_S)
                after = [(w.member.member_id, w.member.generation) for w in workers]
                for task in tasks:
                    task.cancel()
    assert after == before, "no member was lost, no group rebalanced"
    assert [worker.events for worker in workers] == [[]] * len(workers)
    assert all(worker.commits > then for worker, then in zip(workers, commits, strict=True))
    assert all(
        set(worker.member.assignment) <= {TopicPartition("t", n) for n in range(A_GROUP)}
        for worker in workers
    )
