"""Roll a new version out: node after node stops and comes back, under members that commit.

    python -m tests.faults.rolling [GROUPS]

A hundred groups of five by default; the tests have a tenth. Exit status: 0 if no member was lost,
no group was rebalanced, and all commits went on.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from dataclasses import dataclass

from coordinator.assignors import TopicPartition
from coordinator.client import Member
from tests.faults.stores import EtcdCluster
from tests.integration.nodes import three_nodes
from tests.integration.waiting import until
from tests.patience import HANG_S

A_GROUP = 5
COMMITS_A_S = 250
"""Commits a second of all members together; each commits at most twice a second."""
MEMBER = {"session_timeout_ms": 30_000, "heartbeat_interval_ms": 1_000}


class Worker:
    """A member that commits all the time, and what happened to it."""

    def __init__(self, addresses: list[str], group: str, every_s: float) -> None:
        self.member = Member(addresses, group, {"t": A_GROUP}, **MEMBER)
        self.events: list[object] = []
        self.commits = 0
        self._every_s = every_s

    async def run(self) -> None:
        async with self.member:
            while True:
                due = time.monotonic() + self._every_s
                self.events += await self.member.poll(timeout=self._every_s)
                if self.member.assignment:
                    offsets = dict.fromkeys(self.member.assignment, self.commits)
                    await self.member.commit(offsets)  # It raises if it fails for good.
                    self.commits += 1
                await asyncio.sleep(max(0.0, due - time.monotonic()))

    @property
    def place(self) -> tuple[str, int, set[TopicPartition]]:
        """Member id, generation and assignment, which a rebalance would change."""
        return self.member.member_id, self.member.generation, set(self.member.assignment)


@dataclass(frozen=True)
class Outcome:
    """Changes that members had noticed in the end."""

    moved: int
    """Members whose place is another one."""
    events: list[object]

    @property
    def is_unnoticed(self) -> bool:
        return not self.moved and not self.events


async def all_commit(workers: list[Worker], times: int = 2) -> None:
    """Every member has stored so many offsets since."""
    goals = [worker.commits + times for worker in workers]
    await until(
        lambda: all(w.commits >= goal for w, goal in zip(workers, goals, strict=True)),
        HANG_S,
    )


async def roll(groups: int) -> Outcome:
    """Restart each of three nodes, as soon as all members have committed beside and after it."""
    every_s = max(0.5, groups * A_GROUP / COMMITS_A_S)
    async with contextlib.AsyncExitStack() as stack:
        store = stack.enter_context(EtcdCluster())
        nodes = await stack.enter_async_context(
            three_nodes(f"etcd://{','.join(store.endpoints)}/test")
        )
        workers = [
            Worker(nodes.addresses, f"group-{n}", every_s)
            for n in range(groups)
            for _ in range(A_GROUP)
        ]
        async with asyncio.TaskGroup() as running:
            tasks = [running.create_task(worker.run()) for worker in workers]
            await until(lambda: all(len(w.member.assignment) == 1 for w in workers), HANG_S)
            await all_commit(workers)
            before = [worker.place for worker in workers]
            for worker in workers:
                worker.events.clear()
            for number in (1, 2, 3):
                await nodes.stop(number)
                await all_commit(workers)
                await nodes.start(number)
                await all_commit(workers, times=5)  # Standbys catch up, shards come back.
            after = [worker.place for worker in workers]
            for task in tasks:
                task.cancel()
    moved = sum(one != other for one, other in zip(before, after, strict=True))
    return Outcome(moved, [event for worker in workers for event in worker.events])


def main() -> int:
    groups = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    outcome = asyncio.run(roll(groups))
    print(f"{groups * A_GROUP} members, {outcome}")
    return 0 if outcome.is_unnoticed else 1


if __name__ == "__main__":
    sys.exit(main())
