"""One shard among the coroutines: its calls, its appends, its alarm clock.

A step takes microseconds and waits for nothing, so a request is stepped in the very
turn of the loop in which it arrives: no task, no queue, and for an answer that is
ready no future. Steps cannot overlap, since nothing in them awaits.

A bug anywhere in a step, in an append or in a load stops the shard: everybody who waits is
answered, and it is loaded again from the log. It serves when loading has ended, and not before.
A bug that comes back is told in one line each time, after a back-off that grows.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
import traceback
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from typing import Any

from coordinator.core import admission
from coordinator.core.commands import CallCancelled, Request
from coordinator.core.errors import ErrorCode, Refused
from coordinator.core.events import Event
from coordinator.core.ids import CallId, ShardId
from coordinator.core.pauses import Pause
from coordinator.core.records import Record
from coordinator.core.replies import Reply
from coordinator.runtime import codec
from coordinator.runtime.failures import append_failed
from coordinator.runtime.slices import Work, in_slices
from coordinator.runtime.snapshots import Encoded, SnapshotPolicy
from coordinator.runtime.standby import Warm
from coordinator.runtime.watchers import Watchers
from coordinator.shard.outbox import (
    Append,
    Appended,
    Input,
    Outbox,
    Revive,
    Tick,
    Unload,
)
from coordinator.shard.replicas import FetchedEntries, FetchEntries, FollowersChanged
from coordinator.shard.shard import Shard
from coordinator.shard.stats import GroupStats, ShardStats
from coordinator.storage.log import (
    Ambiguous,
    Damaged,
    Entry,
    Fence,
    Fenced,
    GroupLog,
    Loaded,
    LogError,
    Snapshot,
    Unavailable,
)
from timer.aio import AsyncTimerDriver
from timer.clock import Clock

RELEASE_SLICE = 200
"""Parked calls answered in one turn of the loop. Each costs some 50 us of it, so that the
release of ten thousand leaves gaps of 10 ms for other groups' heartbeats."""

PART = 50
"""Records that are encoded between two chances to let others in."""
AMBIGUOUS_BACKOFF_S = 0.05
RELOAD_BACKOFF_S = 1.0
RELOAD_BACKOFF_S_MAX = 60.0
"""A shard that has served for so long since its last bug is as good as new."""
SETTLE_AFTER_S = 1.0
"""Other shards are taken over first, and whoever asks for a group is served."""


class ShardRunner:
    """Runs one shard on the current loop.

    Args:
        new_shard: an empty one.
        on_in_sync: told which nodes are in sync when that changes.
        pauses: times in which the node did not hear its members, as of epoch milliseconds.
    """

    def __init__(
        self,
        shard_id: ShardId,
        *,
        new_shard: Callable[[], Shard],
        log: GroupLog,
        clock: Clock,
        watchers: Watchers,
        on_in_sync: Callable[[frozenset[int]], None] = lambda _: None,
        pauses: Callable[[int], tuple[Pause, ...]] = lambda _: (),
    ) -> None:
        self.shard_id = shard_id
        self._new_shard = new_shard
        self._log = log
        self._on_in_sync = on_in_sync
        self._pauses = pauses
        self._clock = clock
        self._watchers = watchers
        self._shard: Shard | None = None
        self._fence: Fence | None = None
        # What is done for all is not done on behalf of the call that happened to begin it.
        self._context = contextvars.copy_context()
        self._calls: dict[CallId, tuple[asyncio.Future[Reply], Request]] = {}
        self._fetches: dict[CallId, asyncio.Future[FetchedEntries]] = {}
        self._releasing: deque[tuple[CallId, Reply]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._alarm: AsyncTimerDriver | None = None
        self._snapshots = SnapshotPolicy(0, 0, 0)
        self._snapshot_task: asyncio.Task[None] | None = None
        self._reload_task: asyncio.Task[None] | None = None
        self._trouble = ""  # What is wrong with the log, in its own words.
        self._has_told_amiss = False
        self._bugs = 0  # In a row, with no long time of service in between.
        self._told_bugs: set[tuple[object, ...]] = set()  # By where they were: once each.
        self._serves_since_ms = 0
        self._followers: tuple[int, ...] | None = None
        self.term = 0
        """In which the shard was granted."""
        self._started = False
        self._stopped = False

    async def start(
        self,
        turn: AbstractAsyncContextManager[object] | None = None,
        *,
        term: int = 0,
        warm: Warm | None = None,
    ) -> None:
        """Take the shard over and load it. Until then requests hear that it is loading.

        A log that cannot be read now is asked again until it can. After a bug of ours it is loaded
        again later, and goes on saying that it is loading.

        Args:
            turn: entered to load; shards that share one load one after the other.
            term: in which the shard was granted; without a controller there is only term 0.
            warm: what a standby has gathered; only what is missing is read.
        Raises:
            Damaged: what the log holds is not what was written.
        """
        self._started = True
        self.term = term
        if self._alarm is None:
            self._alarm = AsyncTimerDriver(self._clock, self._tick)
        try:
            # What is warm is there at once, and does not wait for what is not.
            async with turn if turn is not None and warm is None else nullcontext():
                await self._load(warm)
        except Damaged:
            raise
        except Exception as error:  # noqa: BLE001  # Our bug, whatever it is: loaded again.
            self._fail(error)
        shard = self._shard
        if shard is not None and not shard.is_settled:
            await asyncio.sleep(SETTLE_AFTER_S)
        while shard is not None and self._shard is shard and not shard.is_settled:
            async with turn or nullcontext():
                began = time.monotonic()
                self._step(Revive())
                # As much time again for everything else.
                await asyncio.sleep(time.monotonic() - began)

    async def _load(self, warm: Warm | None) -> None:
        loaded = None
        while loaded is None and not self._stopped:
            try:
                self._fence = await self._log.fence(self.shard_id, self.term)
            except Fenced as error:
                # Whoever granted it has granted it to somebody else meanwhile.
                self._report(f"shard {self.shard_id} is led elsewhere: {error}")
                self._stopped = True
                return
            except LogError as error:
                self._report(f"the log cannot be written: {error}")
                await asyncio.sleep(RELOAD_BACKOFF_S)
                continue
            try:
                loaded = await self._log.load(self._fence, 0 if warm is None else warm.sequence)
            except Fenced:
                continue  # An earlier attempt of this node was slower than this one, or see above.
            except LogError as error:
                self._report(f"the log cannot be read: {error}")
                await asyncio.sleep(RELOAD_BACKOFF_S)
        if loaded is None:
            return
        if warm is None or loaded.snapshot is not None:
            # In a thread: a hundred thousand groups take seconds, and other shards serve.
            warm = await asyncio.to_thread(self._build, loaded)
        else:
            for entry in loaded.entries:
                warm.add(entry.sequence, entry.base_offset, entry.records, self._clock.now_ms())
        if self._stopped:
            return
        outbox = warm.shard.restore(
            self._clock.now_ms(), sequence=warm.sequence, next_offset=warm.next_offset
        )
        self._recovered()
        self._shard, self._snapshots = warm.shard, warm.policy
        self._serves_since_ms = self._clock.now_ms()
        self._take(outbox)
        if self._followers is not None:
            self._step(FollowersChanged(self._followers))

    def submit(self, request: Request) -> Reply | asyncio.Future[Reply]:
        """The answer, or a future of it. Whoever gives the future up calls `cancel`."""
        if self._shard is None:
            return self._answer_without_shard(request)
        call_id = request.call_id
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._calls[call_id] = (future, request)
        self._step(request)
        if future.done():
            return future.result()
        return future

    def beat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> bool:
        """True if that was all there is to a heartbeat; see `Shard.beat`."""
        shard = self._shard
        if shard is None:
            return False
        try:
            return shard.beat(group_id, member_id, instance_id, generation, self._clock.now_ms())
        except Exception as error:  # noqa: BLE001  # Our bug, whatever it is: the shard is reloaded.
            self._fail(error)
            return False

    def submit_now(self, request: Request) -> Reply:
        """The answer to a request that is never parked: the hot path, with no future.

        Heartbeats, and whatever else the core answers in the same step.
        """
        shard = self._shard
        if shard is None:
            return self._answer_without_shard(request)
        try:
            outbox = shard.step(request, self._clock.now_ms())
            ((_, reply),) = outbox.replies
            outbox.replies = []
            self._take(outbox)
        except Exception as error:  # noqa: BLE001  # Our bug, whatever it is: the shard is reloaded.
            self._fail(error)
            return request.refusal(Refused(ErrorCode.UNKNOWN_SERVER_ERROR))
        return reply

    async def fetch(self, fetch: FetchEntries) -> FetchedEntries:
        """What a follower lacks, as soon as there is something."""
        if self._shard is None:
            return fetch.refusal(Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        future: asyncio.Future[FetchedEntries] = asyncio.get_running_loop().create_future()
        self._fetches[fetch.call_id] = future
        try:
            self._step(fetch)
            return await future
        finally:
            del self._fetches[fetch.call_id]

    def expect_followers(self, nodes: tuple[int, ...]) -> None:
        """Tell the shard which nodes may follow it from now on."""
        self._followers = nodes
        self._step(FollowersChanged(nodes))

    def cancel(self, call_id: CallId) -> None:
        """The client of a parked call has gone away."""
        if self._calls.pop(call_id, None) is not None and self._shard is not None:
            self._step(CallCancelled(call_id))

    async def stop(self, error: ErrorCode) -> None:
        """Answer every parked call with `error`, and let the last append end."""
        self._stopped = True
        if self._shard is not None:
            self._step(Unload(error))
        if self._alarm is not None:
            self._alarm.close()
        for task in (self._snapshot_task, self._reload_task):
            if task is not None:
                task.cancel()
        self._shard = None
        self._abandon(error)
        while self._releasing or self._tasks:
            await asyncio.sleep(0)
            if self._tasks:
                await asyncio.wait(self._tasks)

    @property
    def is_loaded(self) -> bool:
        """True if it serves; else requests hear that it is loading."""
        return self._shard is not None

    def stats(self) -> ShardStats:
        """What the shard holds now."""
        return ShardStats() if self._shard is None else self._shard.stats()

    @property
    def group_count(self) -> int:
        """How many groups there are."""
        return 0 if self._shard is None else self._shard.group_count

    def members_of(self, client_host: str) -> int:
        """How many members come from a host."""
        return 0 if self._shard is None else self._shard.members_of(client_host)

    def has_seat(self, group_id: str, instance_id: str | None) -> bool | None:
        """True if the group has that static member; None if there is no such group."""
        return None if self._shard is None else self._shard.has_seat(group_id, instance_id)

    def group_stats(self, is_wanted: Callable[[str], bool]) -> list[GroupStats]:
        """Numbers of some groups."""
        return [] if self._shard is None else self._shard.group_stats(is_wanted)

    # --- Inside ---

    def _answer_without_shard(self, request: Request) -> Reply:
        if self._stopped:
            return request.refusal(Refused(ErrorCode.NOT_COORDINATOR))
        if not self._started:
            return request.refusal(Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return admission.answer_while_loading(request)

    def _build(self, loaded: Loaded) -> Warm:
        try:
            return Warm.of(self._new_shard(), loaded, self._clock.now_ms())
        except Damaged as error:
            raise Damaged(f"shard {self.shard_id}: {error}") from error

    def _tick(self, now_ms: int) -> None:
        self._step(Tick(self._pauses(now_ms)))

    def _step(self, event: Input) -> None:
        if self._shard is None:
            return
        try:
            self._take(self._shard.step(event, self._clock.now_ms()))
        except Exception as error:  # noqa: BLE001  # Our bug, whatever it is: the shard is reloaded.
            self._fail(error)

    def _take(self, outbox: Outbox) -> None:
        if outbox.append is not None:
            self._start(self._append(outbox.append))
        if len(outbox.replies) <= RELEASE_SLICE and not self._releasing:
            for call_id, reply in outbox.replies:
                self._resolve(call_id, reply)
        else:
            if not self._releasing:
                asyncio.get_running_loop().call_soon(self._release)
            self._releasing.extend(outbox.replies)
        for call_id, found in outbox.fetched:
            waiting = self._fetches.get(call_id)
            if waiting is not None and not waiting.done():
                waiting.set_result(found)
        if outbox.in_sync is not None:
            self._on_in_sync(outbox.in_sync)
        if outbox.events:
            self._tell(outbox.events)
        if outbox.unloaded and not self._stopped:
            self._shard = None
            self._watchers.failure("the log has refused this node", None)
            self._abandon(ErrorCode.NOT_COORDINATOR)
            self._reload_later()
        elif self._alarm is not None:
            self._alarm.wake_at(outbox.next_deadline_ms)

    def _tell(self, events: Sequence[Event]) -> None:
        try:
            self._watchers.events(events, self._clock.now_ms())
        except Exception as error:  # noqa: BLE001  # Whoever watches stops no group. Told once.
            if not self._has_told_amiss:
                self._has_told_amiss = True
                self._watchers.failure("those who watch did not hear of all events", error)

    def _release(self) -> None:
        for _ in range(min(RELEASE_SLICE, len(self._releasing))):
            self._resolve(*self._releasing.popleft())
        if self._releasing:
            # The loop serves what has arrived meanwhile before it comes back here.
            asyncio.get_running_loop().call_later(0, self._release)

    def _resolve(self, call_id: CallId, reply: Reply) -> None:
        call = self._calls.pop(call_id, None)
        if call is not None and not call[0].done():
            call[0].set_result(reply)

    async def _append(self, append: Append) -> None:
        shard = self._shard
        assert shard is not None
        try:
            await self._append_to_log(shard, append)
        except Exception as error:  # noqa: BLE001  # A bug here or below: the shard is reloaded.
            if self._shard is shard:
                self._fail(error)

    async def _append_to_log(self, shard: Shard, append: Append) -> None:
        assert self._fence is not None
        if append.attempt > 1:
            await asyncio.sleep(AMBIGUOUS_BACKOFF_S * append.attempt)
        records = await in_slices(_encoded(append.records))
        if self._shard is not shard:
            return  # It was given up meanwhile, and those who waited have been told.
        entry = Entry(append.sequence, self._fence.epoch, append.base_offset, records)
        began = time.monotonic()
        try:
            await self._log.append(self._fence, entry)
        except LogError as error:
            if self._shard is shard:
                self._append_failed(shard, append, error)
            return
        if self._shard is shard:
            self._watchers.append(time.monotonic() - began, len(records))
            self._recovered()
            self._step(Appended(append.sequence, records))
            self._snapshots.appended(sum(map(len, records)))
            if self._snapshots.is_due() and self._shard is shard:
                self._take_snapshot(shard, append.sequence, append.base_offset + len(records))

    def _append_failed(self, shard: Shard, append: Append, error: LogError) -> None:
        if isinstance(error, Unavailable | Ambiguous):
            self._report(f"the log cannot be written: {error}")
        outbox = shard.step(append_failed(append.sequence, error), self._clock.now_ms())
        if str(error):
            outbox.replies = [
                (call_id, replace(reply, message=f"{reply.message} ({error})"))
                for call_id, reply in outbox.replies
            ]
        self._take(outbox)

    def _take_snapshot(self, shard: Shard, sequence: int, next_offset: int) -> None:
        """Note what is durable now, which is cheap; encode and write it beside the service."""
        assert self._fence is not None
        encoded = Encoded(shard.records(), codec.encode)
        self._snapshots.begin()
        write = self._write_snapshot(self._fence, Snapshot(sequence, next_offset, encoded), encoded)
        self._snapshot_task = self._start(write)

    async def _write_snapshot(self, fence: Fence, snapshot: Snapshot, encoded: Encoded) -> None:
        policy = self._snapshots
        try:
            await self._log.write_snapshot(fence, snapshot)
        except LogError as error:
            policy.end(0)
            self._watchers.failure(f"no snapshot was taken: {error}", None)
        except Exception as error:  # noqa: BLE001  # Our bug: the entries are all there.
            policy.end(0)
            self._watchers.failure("no snapshot was taken", error)
        else:
            policy.end(encoded.size_bytes)

    def _report(self, trouble: str) -> None:
        """Once, however often it happens."""
        if trouble != self._trouble:
            self._trouble = trouble
            self._watchers.failure(trouble, None)

    def _recovered(self) -> None:
        if self._trouble:
            self._watchers.recovery(f"no longer: {self._trouble}")
            self._trouble = ""

    def _fail(self, error: Exception) -> None:
        """A broken shard answers nobody from its broken state: it starts again from the log."""
        if self._shard is not None:
            served_ms = self._clock.now_ms() - self._serves_since_ms
            if served_ms >= RELOAD_BACKOFF_S_MAX * 1000:
                self._bugs = 0
                self._told_bugs.clear()
        self._shard = None
        self._bugs += 1
        self._tell_of_bug(error)
        self._abandon(
            ErrorCode.NOT_COORDINATOR if self._stopped else ErrorCode.UNKNOWN_SERVER_ERROR
        )
        self._reload_later()

    def _tell_of_bug(self, error: Exception) -> None:
        """Its traceback once, however often it comes back."""
        bug = (type(error), *(line for _, line in traceback.walk_tb(error.__traceback__)))
        if bug not in self._told_bugs:
            self._told_bugs.add(bug)
            self._watchers.failure("the shard is inconsistent and is loaded again", error)
        else:
            words = f"{type(error).__name__}: {error}"
            self._watchers.failure(
                f"the shard is inconsistent for the {self._bugs}th time in a row and is loaded "
                f"again in {self._reload_backoff_s():g} s: {words}",
                None,
            )

    def _abandon(self, error: ErrorCode) -> None:
        """Answer every call that nobody will answer any more."""
        refused = Refused(error)
        decided = {call_id for call_id, _ in self._releasing}
        for call_id in [call_id for call_id in self._calls if call_id not in decided]:
            future, request = self._calls.pop(call_id)
            if not future.done():
                future.set_result(request.refusal(refused))
        for waiting in self._fetches.values():
            if not waiting.done():
                waiting.set_result(FetchedEntries(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))

    def _reload_backoff_s(self) -> float:
        return min(RELOAD_BACKOFF_S * 2.0 ** max(0, self._bugs - 1), RELOAD_BACKOFF_S_MAX)

    def _reload_later(self) -> None:
        if self._stopped or (self._reload_task is not None and not self._reload_task.done()):
            return  # A load that is under way sees that there is no shard, and begins anew.
        self._reload_task = self._start(self._reload())

    async def _reload(self) -> None:
        while self._shard is None and not self._stopped:
            await asyncio.sleep(self._reload_backoff_s())
            try:
                await self.start(term=self.term)
            except Damaged as error:
                self._report(str(error))

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, context=self._context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _encoded(records: Iterable[Record]) -> Work[tuple[bytes, ...]]:
    encoded = []
    for number, record in enumerate(records, 1):
        encoded.append(codec.encode(record))
        if number % PART == 0:
            yield
    return tuple(encoded)
