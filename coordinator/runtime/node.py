"""A node: everything that one process runs, built from its settings.

Groups belong to shards, shards to nodes, and a group never crosses a process. Here
every shard is this node's; the log is the one it was given.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import replace

from coordinator.core.commands import Heartbeat, ListGroups, Request
from coordinator.core.errors import ErrorCode
from coordinator.core.ids import CallId, IdSource, ShardId
from coordinator.core.replies import Reply
from coordinator.runtime.clock import AnchoredClock, RandomIds
from coordinator.runtime.shard_runner import ShardRunner
from coordinator.runtime.watchers import Watchers
from coordinator.settings import Settings
from coordinator.shard.placement import shard_of
from coordinator.shard.shard import ShardStats
from coordinator.storage.log import GroupLog
from coordinator.storage.memory import MemoryLog
from timer.clock import Clock

LAG_PROBE_S = 0.5
"""How often the event loop's lag is measured."""


class Node:
    """All shards of one process.

    Args:
        log: where groups are durable; in memory by default. It is closed at the end.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        watchers: Watchers,
        log: GroupLog | None = None,
        clock: Clock | None = None,
        ids: IdSource | None = None,
    ) -> None:
        self.settings = settings
        self.loop_lag_s = 0.0
        self._log = log or MemoryLog()
        self._call_ids = itertools.count(1)
        self._runners = [
            ShardRunner(
                ShardId(number),
                config=settings,
                ids=ids or RandomIds(),
                log=self._log,
                clock=clock or AnchoredClock(),
                watchers=watchers,
            )
            for number in range(settings.shards)
        ]
        self._lag_probe: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Load every shard and serve; those that are loaded do so while others load.

        Raises:
            Damaged: what the log holds is not what was written.
        """
        turn = asyncio.Semaphore(1)  # Two at once would not be faster, and hold twice the bytes.
        await asyncio.gather(*(runner.start(turn) for runner in self._runners))
        self._lag_probe = asyncio.create_task(self._measure_lag())

    async def stop(self) -> None:
        """Answer every parked call so that its client looks for another node; then close."""
        if self._lag_probe is not None:
            self._lag_probe.cancel()
        stopping = [runner.stop(ErrorCode.COORDINATOR_NOT_AVAILABLE) for runner in self._runners]
        await asyncio.gather(*stopping)
        await self._log.close()

    def new_call_id(self) -> CallId:
        """A number no other call of this process has."""
        return CallId(next(self._call_ids))

    def beat(self, heartbeat: Heartbeat) -> Reply:
        """The answer to a heartbeat, in the same turn of the loop."""
        return self._runner_of(heartbeat.group_id).submit_now(heartbeat)

    async def ask(self, requests: Sequence[Request]) -> list[Reply]:
        """The answers to requests, in their order. A ListGroups is answered by every shard.

        Given up while it waits, it tells the groups that their client has gone.
        """
        calls: list[tuple[ShardRunner, CallId, Reply | asyncio.Future[Reply]]] = []
        for request in requests:
            if isinstance(request, ListGroups):
                for runner in self._runners:
                    part = replace(request, call_id=self.new_call_id())
                    calls.append((runner, part.call_id, runner.submit(part)))
            else:
                runner = self._runner_of(request.group_id)
                calls.append((runner, request.call_id, runner.submit(request)))
        replies: list[Reply] = []
        try:
            for _, _, answer in calls:
                replies.append(await answer if isinstance(answer, asyncio.Future) else answer)
        except asyncio.CancelledError:
            for runner, call_id, _ in calls:
                runner.cancel(call_id)
            raise
        return replies

    def is_loaded(self, group_id: str) -> bool:
        """True if the shard of a group is loaded and serves."""
        return self._runner_of(group_id).is_loaded

    def stats(self) -> list[ShardStats]:
        """What each shard holds now."""
        return [runner.stats() for runner in self._runners]

    def _runner_of(self, group_id: str) -> ShardRunner:
        return self._runners[shard_of(group_id, len(self._runners))]

    async def _measure_lag(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LAG_PROBE_S
            await asyncio.sleep(LAG_PROBE_S)
            self.loop_lag_s = max(0.0, loop.time() - due)
