"""The shards that a node leads or follows: made, loaded, and handed over."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from coordinator.core.pauses import Pause
from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.ids import IdSource, ShardId
from coordinator.runtime.garbage import collect_and_freeze, gc_paused
from coordinator.runtime.payloads import PAYLOADS
from coordinator.runtime.recording import RecordingShard
from coordinator.runtime.shard_runner import Planner, ShardRunner
from coordinator.runtime.standby import Fetch, SilentLeaders, Standby
from coordinator.runtime.watchers import Watchers
from coordinator.settings import Settings
from coordinator.shard.effects import StandbyShard
from coordinator.shard.followers import TAIL_BYTES, AckPolicy
from coordinator.shard.shard import Shard
from coordinator.storage.coordination import NodeInfo
from coordinator.storage.log import Damaged, GroupLog
from timer.clock import Clock

MANY_GROUPS = 1_000
"""Groups in a shard that is released or taken over from which on a full collection is worth it."""
FORGET_S = 30.0
"""Delay of that collection; by then clients have found the groups' new leaders."""


@dataclass(eq=False, kw_only=True)
class ShardTable:
    """A runner for each shard that is led, a standby for each that is followed.

    Args:
        fetch: fetches the end of a shard's log from its leader; None: shards are not followed.
        pauses: returns the pauses of this node, given epoch milliseconds.
        on_in_sync: called with a shard's in-sync nodes when they change.
        planner: makes the plans of large session groups.
    """

    settings: Settings
    log: GroupLog
    clock: Clock
    watchers: Watchers
    fetch: Fetch | None
    ids: IdSource
    shard_type: Callable[..., Shard]
    pauses: Callable[[int], tuple[Pause, ...]]
    on_in_sync: Callable[[ShardId, frozenset[int]], None]
    planner: Planner
    runners: dict[ShardId, ShardRunner] = field(default_factory=dict, init=False)
    standbys: dict[ShardId, Standby] = field(default_factory=dict, init=False)
    _recordings: Iterator[int] = field(default_factory=lambda: itertools.count(1), init=False)
    _work: set[asyncio.Task[None]] = field(default_factory=set, init=False)
    _forgetting: asyncio.TimerHandle | None = field(default=None, init=False)
    _has_ended_recording: bool = field(default=False, init=False)
    # Two loads at once would not be faster, and need twice the memory.
    _load_slot: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1), init=False)
    _silent: SilentLeaders = field(init=False)

    def __post_init__(self) -> None:
        self._silent = SilentLeaders(lambda reason: self.watchers.failure(reason, None), self.clock)

    @property
    def has_followers(self) -> bool:
        """True if other nodes may follow the shards of this one."""
        return self.fetch is not None and self.settings.cluster.replicas > 1

    def add(self, shard: ShardId) -> ShardRunner:
        """Make a runner for a shard; until it is loaded it answers COORDINATOR_LOAD_IN_PROGRESS."""
        runner = self.runners[shard] = ShardRunner(
            shard,
            new_shard=partial(self._new_shard, shard),
            log=self.log,
            clock=self.clock,
            watchers=self.watchers,
            on_in_sync=partial(self.on_in_sync, shard),
            pauses=self.pauses,
            compute=self.planner,
        )
        return runner

    async def load_all(self) -> None:
        """Load every shard that has a runner.

        Raises:
            Damaged: the log is not what was written.
        """
        loading = (runner.start(self._load_slot) for runner in self.runners.values())
        with gc_paused():
            await asyncio.gather(*loading)

    async def stop(self) -> None:
        """Stop all runners; parked calls are answered with COORDINATOR_NOT_AVAILABLE."""
        if self._forgetting is not None:
            self._forgetting.cancel()
        runners = list(self.runners.values())
        self.runners.clear()
        stopping = [runner.stop(ErrorCode.COORDINATOR_NOT_AVAILABLE) for runner in runners]
        await asyncio.gather(*stopping, *self._work)

    # --- Callbacks of the cluster: see `LeadershipCallbacks` ---

    def take(self, shard: ShardId, leader_epoch: int) -> None:
        """Lead a shard."""
        standby = self.standbys.pop(shard, None)
        gathered = None if standby is None else standby.stop()
        self._begin(self._load(self.add(shard), leader_epoch, gathered))

    def release(self, shard: ShardId) -> None:
        """Lead a shard no longer."""
        self._begin(self._let_go(self.runners.pop(shard)))

    def expect(self, shard: ShardId, followers: tuple[int, ...]) -> None:
        """Let these nodes follow a shard that is led here."""
        self.runners[shard].expect_followers(followers)

    def follow(self, shard: ShardId, leader: NodeInfo | None, leader_epoch: int) -> None:
        """Be ready to lead a shard."""
        standby = self.standbys.get(shard)
        if standby is None:
            assert self.fetch is not None, "without it there are no replicas"
            standby = self.standbys[shard] = Standby(
                shard,
                log=self.log,
                clock=self.clock,
                new_shard=partial(self._new_shard, shard),
                fetch=self.fetch,
                report=self._silent.report,
                silent=self._silent,
                load_slot=self._load_slot,
            )
        standby.follow(leader, leader_epoch)

    def unfollow(self, shard: ShardId) -> None:
        """Follow a shard no longer."""
        self.standbys.pop(shard).stop()

    # --- Inside ---

    def _new_shard(self, shard: ShardId) -> Shard:
        settings = self.settings
        now_ms = self.clock.now_ms()
        acks = AckPolicy(
            node=settings.cluster.node_id,
            all_in_sync=settings.cluster.acks == "all",
            min_in_sync=settings.cluster.min_insync_replicas,
            lag_time_max_ms=settings.cluster.replica_lag_time_max_ms,
        )
        new = self.shard_type
        if settings.observe.record_dir and not self._has_ended_recording:
            name = f"shard-{shard:05}-{now_ms}-{next(self._recordings)}.jsonl"
            path = Path(settings.observe.record_dir, name)
            new = partial(RecordingShard, path, shard, on_end=self._end_recording)
        tail_bytes = TAIL_BYTES if self.has_followers else 0
        return new(
            settings.groups, self.ids, PAYLOADS, now_ms=now_ms, acks=acks, tail_bytes=tail_bytes
        )

    def _end_recording(self, error: OSError) -> None:
        """Tell once, and begin no further recordings: a full disk ends those of all shards."""
        if not self._has_ended_recording:
            self._has_ended_recording = True
            self.watchers.failure(
                f"recordings in {self.settings.observe.record_dir} have ended and begin again when "
                f"the node is started again (record_dir); all else goes on: {error}",
                None,
            )

    async def _load(
        self, runner: ShardRunner, leader_epoch: int, gathered: StandbyShard | None
    ) -> None:
        try:
            with gc_paused():
                await runner.start(self._load_slot, leader_epoch=leader_epoch, standby=gathered)
            # Collection was disabled, and calls to other shards have left garbage.
            self._forget_later(runner)
        except Damaged as error:
            self.watchers.failure(str(error), None)

    async def _let_go(self, runner: ShardRunner) -> None:
        self._forget_later(runner)
        await runner.stop(ErrorCode.NOT_COORDINATOR)

    def _forget_later(self, runner: ShardRunner) -> None:
        groups = 0 if runner.shard is None else runner.shard.group_count
        if groups >= MANY_GROUPS and self._forgetting is None:
            # One collection for all shards that come or go at about the same time.
            self._forgetting = asyncio.get_running_loop().call_later(FORGET_S, self._forget)

    def _forget(self) -> None:
        self._forgetting = None
        collect_and_freeze()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
