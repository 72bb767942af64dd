"""Standby of a shard that another node leads, ready to be led here.

A standby fetches the entries after its own end from the leader, again and again, and applies them
to a shard that is not stepped. The leader hands out only entries that the store has acknowledged,
so nothing ever has to be rolled back. A standby that is made the leader reads the entries that it
lacks from the store: a leader that handed out too little, or reported a wrong end, costs time and
no data.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import KW_ONLY, dataclass, field

from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.ids import ShardId
from coordinator.runtime.garbage import gc_paused
from coordinator.runtime.jobs import add_entry, build
from coordinator.shard.effects import StandbyShard
from coordinator.shard.followers import FetchedEntries
from coordinator.shard.shard import Shard
from coordinator.storage.coordination import NodeInfo
from coordinator.storage.log import Damaged, GroupLog, LogError
from timer.clock import Clock

MIN_BYTES = 1
MAX_WAIT_MS = 500
RETRY_S = 0.2
RETRY_S_MAX = 30.0
"""Greatest pause after failures in a row of reading or applying entries; each is reported."""


class LeaderUnreachable(Exception):
    """The leader did not answer."""


SILENT_MS = 5_000
"""Time without an answer after which it is reported: longer than a fail-over takes."""
SILENT_AGAIN_MS = 60_000


@dataclass(slots=True)
class SilentLeaders:
    """Reports of leaders that the standbys of a node cannot reach: once, and while it lasts."""

    report: Callable[[str], None]
    clock: Clock
    _since: dict[str, tuple[int, int]] = field(default_factory=dict, init=False)
    """Start of the silence and time of the next report, by the leader's incarnation."""

    def answered(self, leader: NodeInfo) -> None:
        """A leader has answered."""
        self._since.pop(leader.incarnation, None)

    def failed(self, leader: NodeInfo, why: str) -> None:
        """A leader has not answered."""
        now_ms = self.clock.now_ms()
        since_ms, due_ms = self._since.setdefault(leader.incarnation, (now_ms, now_ms + SILENT_MS))
        if now_ms >= due_ms:
            self._since[leader.incarnation] = since_ms, now_ms + SILENT_AGAIN_MS
            self.report(
                f"standbys here have not reached node {leader.node_id} at {leader.host}:"
                f"{leader.port} for {(now_ms - since_ms) / 1000:.1f} s, and fall behind: {why}"
            )


Fetch = Callable[[NodeInfo, ShardId, int, int, int, int], Awaitable[FetchedEntries]]
"""(leader, shard, epoch, offset, min_bytes, max_wait_ms) -> entries. Raises Unreachable."""


@dataclass(eq=False)
class Standby:
    """Follows one shard on the current loop, until it is stopped.

    Args:
        report: called with a problem, in words. silent: of leaders that do not answer.
        load_slot: entered to load; shards that share one load one after the other.
    """

    shard_id: ShardId
    _: KW_ONLY
    log: GroupLog
    clock: Clock
    new_shard: Callable[[], Shard]
    fetch: Fetch
    report: Callable[[str], None]
    silent: SilentLeaders
    load_slot: AbstractAsyncContextManager[object] = field(default_factory=nullcontext)
    _followed: tuple[str | None, int] = field(default=(None, 0), init=False)
    _gathered: StandbyShard | None = field(default=None, init=False)
    _task: asyncio.Task[None] | None = field(default=None, init=False)

    def follow(self, leader: NodeInfo | None, leader_epoch: int) -> None:
        """Follow this leader; None: wait for the next one."""
        followed = (None if leader is None else leader.incarnation, leader_epoch)
        if followed == self._followed:
            return
        self._followed = followed
        self._cancel()
        if leader is not None:
            self._task = asyncio.get_running_loop().create_task(self._follow(leader, leader_epoch))

    def stop(self) -> StandbyShard | None:
        """Stop following; the caller gets the state gathered so far, None if there is none."""
        self._cancel()
        gathered, self._gathered = self._gathered, None
        return gathered

    # --- Inside ---

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _follow(self, leader: NodeInfo, leader_epoch: int) -> None:
        failures = 0
        while True:
            try:
                if self._gathered is None:
                    self._gathered = await self._load()
                fetched = await self.fetch(
                    leader,
                    self.shard_id,
                    leader_epoch,
                    self._gathered.next_offset,
                    MIN_BYTES,
                    MAX_WAIT_MS,
                )
                self.silent.answered(leader)
                if fetched.error is not ErrorCode.NONE:
                    await asyncio.sleep(RETRY_S)
                elif fetched.is_gone:
                    await self._catch_up(self._gathered)
                for entry in fetched.entries:
                    add_entry(self._gathered, entry, self.clock.now_ms())
                failures = 0
            except LeaderUnreachable as error:
                self.silent.failed(leader, str(error))
                await asyncio.sleep(RETRY_S)
            except Exception as error:  # noqa: BLE001  # The log's trouble, damage, or our bug.
                reason = str(error) if isinstance(error, Damaged | LogError) else repr(error)
                self.report(f"shard {self.shard_id} cannot be followed, it begins anew: {reason}")
                self._gathered = None
                await asyncio.sleep(min(RETRY_S * 2.0**failures, RETRY_S_MAX))
                failures = min(failures + 1, 10)

    async def _load(self) -> StandbyShard:
        async with self.load_slot:
            with gc_paused():
                return await self._read_all()

    async def _read_all(self) -> StandbyShard:
        loaded = await self.log.read(self.shard_id)
        return await asyncio.to_thread(build, self.new_shard(), loaded, self.clock.now_ms())

    async def _catch_up(self, gathered: StandbyShard) -> None:
        """Read missing entries from the store: the leader does not have them in memory any more."""
        loaded = await self.log.read(self.shard_id, gathered.sequence)
        if loaded.snapshot is not None:
            self._gathered = await self._load()
            return
        for entry in loaded.entries:
            add_entry(gathered, entry, self.clock.now_ms())
