"""One shard among the coroutines: its calls, its appends, its alarm clock.

A step takes microseconds and waits for nothing, so a request is stepped in the very
turn of the loop in which it arrives: no task, no queue, and for an answer that is
ready no future. Steps cannot overlap, since nothing in them awaits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from coordinator.core import admission
from coordinator.core.commands import CallCancelled, Request
from coordinator.core.config import GroupConfig
from coordinator.core.errors import ErrorCode, Refused
from coordinator.core.events import Event
from coordinator.core.ids import CallId, IdSource, ShardId
from coordinator.core.replies import Reply
from coordinator.runtime.failures import failure_of
from coordinator.runtime.topics import read_topics
from coordinator.shard.outbox import Append, Appended, AppendFailed, Input, Outbox, Tick, Unload
from coordinator.shard.shard import Shard, ShardStats
from coordinator.storage.log import Entry, Fence, GroupLog, LogError
from timer.aio import AsyncTimerDriver
from timer.clock import Clock

RELEASE_SLICE = 200
"""Parked calls answered in one turn of the loop. Each costs some 50 us of it, so that the
release of ten thousand leaves gaps of 10 ms for other groups' heartbeats."""

AMBIGUOUS_BACKOFF_S = 0.05
RELOAD_BACKOFF_S = 1.0

EventSink = Callable[[Sequence[Event], int], None]
FailureSink = Callable[[str, BaseException | None], None]


class ShardRunner:
    """Runs one shard on the current loop.

    Args:
        on_events: told what happened, and when (epoch milliseconds).
        on_failure: told of a shard that stopped, and why.
    """

    def __init__(
        self,
        shard_id: ShardId,
        *,
        config: GroupConfig,
        ids: IdSource,
        log: GroupLog,
        clock: Clock,
        on_events: EventSink,
        on_failure: FailureSink,
    ) -> None:
        self.shard_id = shard_id
        self._config = config
        self._ids = ids
        self._log = log
        self._clock = clock
        self._on_events = on_events
        self._on_failure = on_failure
        self._shard: Shard | None = None
        self._fence: Fence | None = None
        self._calls: dict[CallId, tuple[asyncio.Future[Reply], Request]] = {}
        self._releasing: deque[tuple[CallId, Reply]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._alarm: AsyncTimerDriver | None = None
        self._stopped = False

    async def start(self) -> None:
        """Take the shard over and load it. Until then requests hear that it is loading.

        Raises:
            LogError: the log cannot be read.
        """
        if self._alarm is None:
            self._alarm = AsyncTimerDriver(self._clock, lambda _: self._step(Tick()))
        self._fence = await self._log.fence(self.shard_id)
        entries = await self._log.load(self._fence)
        now_ms = self._clock.now_ms()
        shard = Shard(self._config, self._ids, read_topics, now_ms=now_ms)
        records = [record for entry in entries for record in entry.records]
        sequence = entries[-1].sequence if entries else 0
        outbox = shard.restore(records, now_ms, sequence=sequence)
        self._shard = shard
        self._take(outbox)

    def submit(self, request: Request) -> Reply | asyncio.Future[Reply]:
        """The answer, or a future of it. Whoever gives the future up calls `cancel`."""
        if self._shard is None:
            if self._stopped:
                return request.refusal(Refused(ErrorCode.NOT_COORDINATOR))
            return admission.answer_while_loading(request)
        call_id = request.call_id
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._calls[call_id] = (future, request)
        self._step(request)
        if future.done():
            return future.result()
        return future

    def submit_now(self, request: Request) -> Reply:
        """The answer to a request that is never parked: the hot path, with no future.

        Heartbeats, and whatever else the core answers in the same step.
        """
        shard = self._shard
        if shard is None:
            if self._stopped:
                return request.refusal(Refused(ErrorCode.NOT_COORDINATOR))
            return admission.answer_while_loading(request)
        try:
            outbox = shard.step(request, self._clock.now_ms())
        except Exception as error:  # noqa: BLE001  # Our bug, whatever it is: the shard is reloaded.
            self._fail(error)
            return request.refusal(Refused(ErrorCode.UNKNOWN_SERVER_ERROR))
        ((_, reply),) = outbox.replies
        outbox.replies = []
        self._take(outbox)
        return reply

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
        self._shard = None
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

    # --- Inside ---

    def _step(self, event: Input) -> None:
        if self._shard is None:
            return
        try:
            outbox = self._shard.step(event, self._clock.now_ms())
        except Exception as error:  # noqa: BLE001  # Our bug, whatever it is: the shard is reloaded.
            self._fail(error)
            return
        self._take(outbox)

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
        if outbox.events:
            self._on_events(outbox.events, self._clock.now_ms())
        if outbox.unloaded and not self._stopped:
            self._shard = None
            self._on_failure("the log has refused this node", None)
            self._start(self._reload())
        elif self._alarm is not None:
            self._alarm.wake_at(outbox.next_deadline_ms)

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
        assert self._fence is not None
        shard = self._shard
        if append.attempt > 1:
            await asyncio.sleep(AMBIGUOUS_BACKOFF_S * append.attempt)
        entry = Entry(append.sequence, self._fence.epoch, append.base_offset, append.records)
        try:
            await self._log.append(self._fence, entry)
        except LogError as error:
            result: Input = AppendFailed(append.sequence, failure_of(error))
        else:
            result = Appended(append.sequence)
        if self._shard is shard:
            self._step(result)

    def _fail(self, error: Exception) -> None:
        """A broken shard answers nobody from its broken state: it starts again from the log."""
        self._shard = None
        self._on_failure("the shard is inconsistent and is loaded again", error)
        refused = Refused(ErrorCode.UNKNOWN_SERVER_ERROR)
        for future, request in self._calls.values():
            if not future.done():
                future.set_result(request.refusal(refused))
        self._calls.clear()
        self._start(self._reload())

    async def _reload(self) -> None:
        while not self._stopped:
            await asyncio.sleep(RELOAD_BACKOFF_S)
            try:
                await self.start()
            except LogError as error:
                self._on_failure("the log cannot be read", error)
            else:
                return

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
