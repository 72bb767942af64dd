"""Host of one shard on asyncio: carries out the effects that its driver asks for.

A step takes microseconds and waits for nothing, so a request is stepped in the turn of the loop in
which it arrives: no task, no queue, and for an answer that is ready no future. Steps cannot
overlap, since nothing in them awaits.

The driver decides what follows from a step (`shard/driver.py`). An effect that cannot be carried
out is reported to it, and it loads the shard again.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import fields
from typing import Any, Protocol

from coordinator.core.pauses import Pause
from coordinator.core.sessions.plan.allocator import plan
from coordinator.core.values.commands import CallCancelled
from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.events import Event
from coordinator.core.values.ids import CallId, ShardId
from coordinator.core.values.plans import Plan, PlanInput
from coordinator.core.values.records import Record
from coordinator.core.values.replies import Reply
from coordinator.core.values.requests import Request
from coordinator.core.values.session_messages import SessionInput, StreamEnd, StreamEnded, ToMember
from coordinator.runtime import codec
from coordinator.runtime.jobs import add_entry, build, job_failed
from coordinator.runtime.slices import PART, REST_S, Work, in_slices, let_others_be_answered
from coordinator.runtime.watchers import Watchers
from coordinator.shard.driver import ShardDriver
from coordinator.shard.effects import (
    Broken,
    Build,
    Compute,
    Done,
    DriverInput,
    HostEffects,
    Job,
    Load,
    Problem,
    Recovery,
    StandbyShard,
    Start,
    Stop,
    TakeOver,
    WriteEntry,
    WriteSnapshot,
)
from coordinator.shard.followers import FetchedEntries, FetchEntries, FollowersChanged
from coordinator.shard.inputs import Activate, Tick
from coordinator.shard.shard import Shard
from coordinator.shard.snapshots import Encoded
from coordinator.storage.log import Damaged, Entry, GroupLog, ShardSnapshot
from timer.aio import AsyncTimerDriver
from timer.clock import Clock

RELEASE_SLICE = 200
"""Greatest number of parked calls answered in one turn of the loop. Each takes some 50 us, so the
release of ten thousand blocks other groups' heartbeats for 10 ms at a time."""

LONG_STEP_S = 0.010
"""Steps of a shard that last longer are followed by a rest, since a call takes some turns of the
loop: an Attach with 10,000 topics is twenty such steps, and others are answered between them."""

BROKEN_AGAIN_S = 1.0
SETTLE_AFTER_S = 1.0
"""Delay before dormant groups are activated, so that other shards are taken over first. A group
that gets a request is activated at once."""


Planner = Callable[[PlanInput], Awaitable[Plan]]
"""Makes a plan, away from the loop or on it."""


async def plan_in_place(state: PlanInput) -> Plan:
    """A `Planner` for hosts on virtual time: it holds the loop up for as long as it takes."""
    return plan(state)


class StreamListener(Protocol):
    """Writer of the stream of a session member."""

    def wake(self) -> None:
        """There is something to be told: `ShardRunner.take`."""
        ...

    def end(self, last: StreamEnd) -> None:
        """The stream ends, with this as its last message."""
        ...


class ShardRunner:
    """Runs one shard on the current loop.

    Args:
        new_shard: makes an empty shard.
        on_in_sync: called with the in-sync nodes when they change.
        pauses: returns the pauses of the node, given epoch milliseconds.
        compute: makes the plans of large session groups; in place, unless it is told otherwise.
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
        compute: Planner = plan_in_place,
    ) -> None:
        self.shard_id = shard_id
        self._new_shard = new_shard
        self._log = log
        self._on_in_sync = on_in_sync
        self._pauses = pauses
        self._compute = compute
        self._clock = clock
        self._watchers = watchers
        self.driver = ShardDriver(shard_id)
        """The driver of the shard. `Node.beat` reads it directly, which saves a frame."""
        # Background tasks use this context, so they do not inherit a caller's contextvars.
        self._context = contextvars.copy_context()
        self._calls: dict[CallId, asyncio.Future[Reply]] = {}
        self._fetches: dict[CallId, asyncio.Future[FetchedEntries]] = {}
        self._streams: dict[CallId, StreamListener] = {}
        self._releasing: deque[tuple[CallId, Reply]] = deque()
        self._tasks: dict[asyncio.Task[None], Job | None] = {}
        self._alarm: AsyncTimerDriver | None = None
        self._rests_until = 0.0
        self._start_ended = asyncio.Event()
        self._may_load = asyncio.Event()
        self._load_slot: AbstractAsyncContextManager[object] = nullcontext()
        self._activating: asyncio.Task[None] | None = None
        self._has_logged_failure = False

    async def start(
        self,
        load_slot: AbstractAsyncContextManager[object] | None = None,
        *,
        leader_epoch: int = 0,
        standby: StandbyShard | None = None,
    ) -> None:
        """Take the shard over and load it. Until then requests get COORDINATOR_LOAD_IN_PROGRESS.

        A log that is unavailable is retried without end. After a bug of ours the shard is loaded
        again later.

        Args:
            load_slot: entered to load; shards that share one load one after the other.
            leader_epoch: epoch in which the shard was granted; always 0 without a controller.
            standby: state of a standby; only the entries that it lacks are read.
        Raises:
            Damaged: the log is not what was written.
        """
        if self._alarm is None:
            self._alarm = AsyncTimerDriver(self._clock, self._wake)
        self._load_slot = nullcontext() if load_slot is None else load_slot
        self._start_ended.clear()
        self._drive(Start(leader_epoch, standby))
        # A standby skips the load slot.
        async with self._load_slot if standby is None else nullcontext():
            self._may_load.set()
            await self._start_ended.wait()
        if self.driver.damage is not None:
            raise self.driver.damage
        if self._activating is not None:
            await asyncio.wait([self._activating])

    def submit(self, request: Request) -> Reply | asyncio.Future[Reply]:
        """Return the answer or its future; a caller that gives the future up calls `cancel`."""
        effects = self.driver.handle(request, self._clock.now_ms())
        replies = effects.replies
        if len(replies) == 1 and replies[0][0] == request.call_id:
            effects.replies = []
            self._execute(effects)
            return replies[0][1]
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._calls[request.call_id] = future
        self._execute(effects)
        return future.result() if future.done() and future.exception() is None else future

    def listen(self, stream_id: CallId, listener: StreamListener) -> None:
        """Tell a listener when there is something to be told on a session member's stream."""
        self._streams[stream_id] = listener

    def receive(self, message: SessionInput) -> None:
        """Hand in what a session member has said."""
        if isinstance(message, StreamEnded):
            self._streams.pop(message.stream_id, None)
        if self.driver.shard is not None:
            self._drive(message)

    def take(self, stream_id: CallId) -> ToMember | None:
        """Take what there is to be told on a stream; None: nothing."""
        shard = self.driver.shard
        if shard is None:
            return None
        try:
            return shard.take(stream_id, self._clock.now_ms())
        except Exception as error:  # noqa: BLE001  # Our bug, whatever it is: the shard is reloaded.
            self.fail(error)
            return None

    def fail(self, error: Exception) -> None:
        """Load the shard again after a bug outside of a step."""
        self._drive(Broken(error))

    async def fetch(self, fetch: FetchEntries) -> FetchedEntries:
        """Entries that a follower lacks, as soon as there are any."""
        future: asyncio.Future[FetchedEntries] = asyncio.get_running_loop().create_future()
        self._fetches[fetch.call_id] = future
        try:
            self._drive(fetch)
            return await future
        finally:
            del self._fetches[fetch.call_id]

    def expect_followers(self, nodes: tuple[int, ...]) -> None:
        """Tell the shard which nodes may follow it from now on."""
        self._drive(FollowersChanged(nodes))

    def cancel(self, call_id: CallId) -> None:
        """Cancel a parked call: its client has gone."""
        if self._calls.pop(call_id, None) is not None:
            self._drive(CallCancelled(call_id))

    async def stop(self, error: ErrorCode) -> None:
        """Answer every parked call with `error`, and let the last append end."""
        self._drive(Stop(error))
        if self._alarm is not None:
            self._alarm.close()
        for task, job in self._tasks.items():
            if not isinstance(job, WriteEntry):
                task.cancel()
        while self._releasing or self._tasks:
            await asyncio.sleep(0)
            if self._tasks:
                await asyncio.wait(self._tasks)

    @property
    def leader_epoch(self) -> int:
        """Leader epoch in which the shard was granted."""
        return self.driver.leader_epoch

    @property
    def fence_epoch(self) -> int:
        """Epoch in which the shard's log was fenced: the coordinator epoch of session members."""
        return self.driver.fence_epoch

    @property
    def shard(self) -> Shard | None:
        """The shard that serves; None: it is loading."""
        return self.driver.shard

    # --- Effects ---

    def _drive(self, event: DriverInput) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._execute(self.driver.handle(event, self._clock.now_ms()))
        if not self.driver.is_starting:
            self._start_ended.set()
        ended = loop.time()
        if ended - began > LONG_STEP_S:
            self._rests_until = ended + REST_S

    def _wake(self, now_ms: int) -> None:
        if self._alarm is not None and asyncio.get_running_loop().time() < self._rests_until:
            self._alarm.wake_at(now_ms + round(REST_S * 1_000))
        else:
            self._drive(Tick(self._pauses(now_ms)))

    async def _rest(self) -> None:
        """Let others have some turns of the loop, if the last step was a long one."""
        while asyncio.get_running_loop().time() < self._rests_until:
            await let_others_be_answered()

    def _execute(self, effects: HostEffects) -> None:
        try:
            self._carry_out(effects)
        except Exception as error:  # noqa: BLE001  # Our bug, whatever it is: the shard is reloaded.
            self._carry_out_the_rest(effects)
            self._carry_out_the_rest(self.driver.handle(Broken(error), self._clock.now_ms()))
            self._fail_forgotten(error)

    def _carry_out(self, effects: HostEffects) -> None:
        """Remove each effect before it begins, so that a bug leaves the rest to be carried out."""
        if effects.jobs:
            jobs, effects.jobs = effects.jobs, []
            for job in jobs:
                self._begin(self._do(job), job)
        if effects.replies:
            replies, effects.replies = effects.replies, []
            self._answer(replies)
        if effects.fetched:
            fetched, effects.fetched = effects.fetched, []
            self._hand_out(fetched)
        if effects.wakes:
            wakes, effects.wakes = effects.wakes, []
            self._wake_streams(wakes)
        if effects.ended:
            ended, effects.ended = effects.ended, []
            self._end_streams(ended)
        if effects.in_sync is not None:
            in_sync, effects.in_sync = effects.in_sync, None
            self._on_in_sync(in_sync)
        if effects.events:
            events, effects.events = effects.events, []
            self._publish(events)
        if effects.notices:
            notices, effects.notices = effects.notices, []
            self._report(notices)
        if effects.has_dormant_groups:
            effects.has_dormant_groups = False
            self._activating = self._begin(self._activate())
        if self._alarm is not None:
            self._alarm.wake_at(effects.wake_at_ms)

    def _carry_out_the_rest(self, effects: HostEffects) -> None:
        loop, failure = asyncio.get_running_loop(), None
        for _ in fields(effects):  # Each attempt removes one effect, but for the alarm.
            try:
                self._carry_out(effects)
            except Exception as error:  # noqa: BLE001  # `_execute` reports the first one.
                failure = error
            else:
                return
        loop.call_exception_handler({"message": "no alarm can be set", "exception": failure})
        loop.call_later(BROKEN_AGAIN_S, self._drive, Tick())

    def _hand_out(self, fetched: Sequence[tuple[CallId, FetchedEntries]]) -> None:
        for call_id, entries in fetched:
            waiting = self._fetches.get(call_id)
            if waiting is not None and not waiting.done():
                waiting.set_result(entries)

    def _wake_streams(self, wakes: Sequence[CallId]) -> None:
        for stream_id in wakes:
            listener = self._streams.get(stream_id)
            if listener is not None:
                listener.wake()

    def _end_streams(self, ended: Sequence[tuple[CallId, StreamEnd]]) -> None:
        for stream_id, last in ended:
            listener = self._streams.pop(stream_id, None)
            if listener is not None:
                listener.end(last)

    def _report(self, notices: Sequence[Problem | Recovery]) -> None:
        for event in notices:
            if isinstance(event, Recovery):
                self._watchers.recovery(event.reason)
            else:
                self._watchers.failure(event.reason, event.error)

    def _answer(self, replies: Sequence[tuple[CallId, Reply]]) -> None:
        if len(replies) <= RELEASE_SLICE and not self._releasing:
            for call_id, reply in replies:
                self._resolve(call_id, reply)
        else:
            if not self._releasing:
                asyncio.get_running_loop().call_soon(self._release)
            self._releasing.extend(replies)

    def _release(self) -> None:
        for _ in range(min(RELEASE_SLICE, len(self._releasing))):
            self._resolve(*self._releasing.popleft())
        if self._releasing:
            # The loop serves requests that have arrived meanwhile before it comes back here.
            asyncio.get_running_loop().call_later(0, self._release)

    def _resolve(self, call_id: CallId, reply: Reply) -> None:
        future = self._calls.pop(call_id, None)
        if future is not None and not future.done():
            future.set_result(reply)

    def _fail_forgotten(self, error: Exception) -> None:
        """Fail the calls that are left: the driver has answered them, and the answers were lost."""
        on_the_way = {call_id for call_id, _ in self._releasing}
        for call_id in [call_id for call_id in self._calls if call_id not in on_the_way]:
            future = self._calls.pop(call_id)
            if not future.done():
                future.set_exception(error)

    def _publish(self, events: Sequence[Event]) -> None:
        try:
            self._watchers.events(events, self._clock.now_ms())
        except Exception as error:  # noqa: BLE001  # An observer stops no group. Told once.
            if not self._has_logged_failure:
                self._has_logged_failure = True
                self._watchers.failure("those who watch did not hear of all events", error)

    async def _activate(self) -> None:
        """Activate the dormant groups of a loaded shard, in slices between other work."""
        shard, loop = self.driver.shard, asyncio.get_running_loop()
        await asyncio.sleep(SETTLE_AFTER_S)
        while shard is not None and self.driver.shard is shard and not shard.is_active:
            async with self._load_slot:
                began = loop.time()
                self._drive(Activate())
                # Leave as much time for other tasks.
                await asyncio.sleep(loop.time() - began)

    # --- Jobs ---

    async def _do(self, job: Job) -> None:
        event: DriverInput
        try:
            event = Done(job, await self._result_of(job))
        except Exception as error:  # noqa: BLE001  # Told to the driver, whatever it is.
            event = job_failed(job, error)
        await self._rest()
        self._drive(event)

    async def _result_of(self, job: Job) -> object:
        match job:
            case TakeOver():
                await self._may_load.wait()
                return await self._log.fence(job.shard_id, job.leader_epoch)
            case Load():
                return await self._log.load(job.fence, job.after)
            case Build():
                return await self._build(job)
            case WriteEntry():
                return await self._write(job)
            case Compute():
                return await self._compute(job.ask.state)
            case WriteSnapshot():
                encoded = Encoded(job.records, codec.encode)
                snapshot = ShardSnapshot(job.sequence, job.next_offset, encoded)
                await self._log.write_snapshot(job.fence, snapshot)
                return encoded.size_bytes

    async def _build(self, job: Build) -> StandbyShard:
        now_ms = self._clock.now_ms()
        try:
            if job.standby is None:
                # In a thread: a hundred thousand groups take seconds, and other shards serve.
                return await asyncio.to_thread(build, self._new_shard(), job.loaded, now_ms)
            for entry in job.loaded.entries:
                add_entry(job.standby, entry, now_ms)
        except Damaged as error:
            raise Damaged(f"shard {self.shard_id}: {error}") from error
        return job.standby

    async def _write(self, job: WriteEntry) -> tuple[bytes, ...]:
        append, loop = job.append, asyncio.get_running_loop()
        records = await in_slices(_encoded(append.records))
        if self.driver.is_wanted(job):
            began = loop.time()
            entry = Entry(append.sequence, job.fence.fence_epoch, append.base_offset, records)
            await self._log.append(job.fence, entry)
            self._watchers.append(loop.time() - began, len(records))
        return records

    def _begin(self, work: Coroutine[Any, Any, None], job: Job | None = None) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, context=self._context)
        self._tasks[task] = job
        task.add_done_callback(self._tasks.pop)
        return task


def _encoded(records: Iterable[Record]) -> Work[tuple[bytes, ...]]:
    encoded = []
    for number, record in enumerate(records, 1):
        encoded.append(codec.encode(record))
        if number % PART == 0:
            yield
    return tuple(encoded)
