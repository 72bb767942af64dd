"""The timer: wheels to hold the tasks, and a heap of buckets to know when to wake.

Two structures share the work. The wheels answer "where does this deadline go" in
O(1). The heap answers "what is the next moment anything happens", and it holds
buckets, not tasks, so it stays as small as the wheels are, whatever the load.

Life of a bucket: it enters the heap when it receives a task for a tick it is not
queued for, and leaves when it is found empty at the top. Being flushed and having
every task cancelled are therefore the same thing to the heap, there is one door
out, and a bucket that was emptied costs one pop and no wake-up. While queued, a
bucket cannot be wanted for another tick: its slot is free for the next turn only
once the hand has passed, and the hand passes no queued bucket. So there is at
most one heap entry per bucket.

Moving forward: `advance_to` goes from bucket to bucket in order of expiration,
moves the wheels to that moment, and empties the bucket head first. A task whose
deadline lies in a later tick is added again (it came from a coarser level, or its
deadline was moved back meanwhile); every other one runs.

What a running task may do: anything but call `advance_to`. It may cancel or move
its neighbours, for the bucket is emptied by taking its head again and again, not
by walking it. It may add tasks. For them "now" is the moment its own bucket stands
for: one for a later tick takes its turn, within the same `advance_to` if that goes
so far; one that is due already waits for the *next* `advance_to`. Hence a task
that re-arms itself for now cannot hold the loop.

A task that raises: the exception leaves `advance_to` at once. That task has had
its run; all others stay pending, and the next `advance_to` carries on with them.

An advance in parts: `advance_to` may be given a limit. It then stops once it has taken
that many tasks out of their buckets, and the timer `is_behind` until later calls have
finished what it began. Nothing is special about the state in between: the hand stands at
the bucket that is being emptied, what is left is still in it, and whoever adds, moves or
cancels meanwhile might as well be a running task. So the parts together run what one
advance would have run, in its order, and what was added for now waits until after the
last of them. The limit counts tasks and not time: the same calls do the same again.

Order: by tick of the deadline; within a bucket, in the order of arrival in it.
Two tasks for the same tick that were placed at different times may have come
down different levels, and then their order is not promised.

One thread owns a timer, everything in it and everything watched with it. There
are no locks: the service runs one event loop per shard. Another thread hands its
wish to the owner's loop.

Known weakness: a timer that has not been told the time for long places new tasks
as if it were still then, which is correct but costs extra steps down the levels.
Tell it the time (`advance_to`) before adding.
"""

from __future__ import annotations

import sys
from heapq import heappop, heappush

from timer.bucket import NO_EXPIRATION_MS, Bucket
from timer.task import DETACHED, TimerTask
from timer.wheel import TimingWheel


class Timer:
    """A hierarchical timing wheel that is told the time.

    Args:
        now_ms: the time now, in milliseconds of any monotonic clock.
        tick_ms: the finest step. Deadlines within one tick are one moment.
        wheel_size: slots per level. More slots mean fewer levels to come down.
    Raises:
        ValueError: `tick_ms` < 1 or `wheel_size` < 2.
    Source: Varghese & Lauck 1997; Kafka `SystemTimer`.
    """

    __slots__ = (
        "_advancing",
        "_due",
        "_heap",
        "_is_behind",
        "_left",
        "_now_ms",
        "_pending",
        "_ready",
        "_target_ms",
        "wheel",
    )

    def __init__(self, now_ms: int = 0, *, tick_ms: int = 1, wheel_size: int = 20) -> None:
        if tick_ms < 1:
            raise ValueError(f"tick_ms is {tick_ms}; it must be at least 1")
        if wheel_size < 2:
            # One slot is the tick under the hand: such a wheel accepts nothing.
            raise ValueError(f"wheel_size is {wheel_size}; it must be at least 2")
        self._now_ms = now_ms
        self._pending = 0
        self._advancing = False
        # How far the last advance was to go, whether it stopped before that, and how many
        # tasks the one that is running may still take.
        self._target_ms = now_ms
        self._is_behind = False
        self._left = 0
        self.wheel = TimingWheel(self, 0, tick_ms, wheel_size, now_ms)
        # (expiration, rank, bucket): the rank is unique, so no two buckets are compared.
        self._heap: list[tuple[int, int, Bucket]] = []
        # Tasks that were due when they were added wait in _due. An advance first moves them
        # to _ready, so that tasks added meanwhile are left for the next advance.
        self._due = Bucket(self, 0)
        self._ready = Bucket(self, 0)

    def __len__(self) -> int:
        """Number of pending tasks, over all levels; O(1)."""
        return self._pending

    @property
    def now_ms(self) -> int:
        """Time at which the timer was last advanced."""
        return self._now_ms

    @property
    def is_behind(self) -> bool:
        """True if the last advance has stopped at its limit before it was finished."""
        return self._is_behind

    def add(self, task: TimerTask, deadline_ms: int) -> None:
        """Arm `task` for `deadline_ms`; it never runs from inside this call.

        A deadline that is not in the future, that is before current time + tick,
        makes it run at the next `advance_to`. A task that is pending, here or in
        another timer, is moved. O(levels), of which there are as many as it takes
        for the wheel to span the delay.

        Source: Kafka `TimingWheel.add`.
        """
        bucket = task.bucket
        if bucket is not None:
            bucket.timer.cancel(task)
        wheel = self.wheel
        if deadline_ms < wheel.next_tick_ms:
            bucket = self._due
        else:
            while deadline_ms >= wheel.end_ms:
                overflow = wheel.overflow
                wheel = wheel.make_overflow() if overflow is None else overflow
            # slot_of, floor_to_tick, and here and in `cancel` the linking are written
            # out: add and cancel take 246 ns and not 345 (CPython 3.11, size 20, 30 s).
            tick_ms = wheel.tick_ms
            tick = deadline_ms // tick_ms
            bucket = wheel.buckets[tick % wheel.size]
            expiration_ms = tick * tick_ms
            if bucket.expiration_ms != expiration_ms:
                assert bucket.expiration_ms == NO_EXPIRATION_MS
                bucket.expiration_ms = expiration_ms
                heappush(self._heap, (expiration_ms, bucket.rank, bucket))
        root = bucket.root
        last = root.preceding
        last.following = task
        task.preceding = last
        task.following = root
        root.preceding = task
        task.bucket = bucket
        task.deadline_ms = deadline_ms
        self._pending += 1

    def rearm(self, task: TimerTask, deadline_ms: int) -> None:
        """Move the deadline of `task`, or arm it if it is not pending.

        As long as the bucket it sits in comes up no later than the new deadline,
        which is so for every later one, only the number is stored: two loads, one
        comparison, one store. The bucket finds out when it comes up. An earlier
        deadline that the bucket would miss moves the task at once.
        """
        bucket = task.bucket
        if bucket is not None and deadline_ms >= bucket.expiration_ms:
            assert bucket.timer is self, "the task is pending in another timer"
            task.deadline_ms = deadline_ms
        else:
            self.add(task, deadline_ms)

    def cancel(self, task: TimerTask) -> bool:
        """Remove `task` from its bucket, in O(1).

        Returns:
            True if it was pending; False, and nothing happens, otherwise.
        """
        bucket = task.bucket
        if bucket is None:
            return False
        assert bucket.timer is self, "the task is pending in another timer"
        preceding = task.preceding
        following = task.following
        preceding.following = following
        following.preceding = preceding
        task.preceding = DETACHED
        task.following = DETACHED
        task.bucket = None
        self._pending -= 1
        return True

    def advance_to(self, now_ms: int, limit: int | None = None) -> int:
        """Advance the time to `now_ms` and run the tasks that are due, or a part of them.

        Tasks run in the order of their deadlines, tick by tick, and within a
        bucket in the order in which they were added. An exception from a task
        passes through; see the top of the file for what it leaves behind.

        With a `limit`, it stops when that many tasks have run or come down a
        level, and the timer `is_behind` if that was not all. The next call first
        finishes that advance, and goes on to `now_ms` if time has moved on.

        Args:
            limit: at least 1; None for as many as there are.
        Returns:
            The number of tasks that ran.
        Raises:
            ValueError: `now_ms` is before the previous one; or `limit` < 1.
            RuntimeError: called from inside a running task.
        Source: Kafka `SystemTimer.advanceClock`.
        """
        if now_ms < self._now_ms:
            raise ValueError(f"time went back, from {self._now_ms} to {now_ms} ms")
        if limit is not None and limit < 1:
            raise ValueError(f"limit is {limit}; it must be at least 1")
        if self._advancing:
            raise RuntimeError("advance_to was called by a task that advance_to is running")
        self._now_ms = now_ms
        self._left = sys.maxsize if limit is None else limit
        was_behind = self._is_behind
        # Stays so if a task raises: the next call then starts afresh with what is left.
        self._is_behind = False
        self._advancing = True
        ran = 0
        try:
            if was_behind:
                ran = self._run_until(self._target_ms)
            if not self._is_behind and (now_ms > self._target_ms or not was_behind):
                self._target_ms = now_ms
                self._ready.take_all(self._due)
                ran += self._run_until(now_ms)
        finally:
            self._advancing = False
        return ran

    def next_expiration_ms(self) -> int | None:
        """Return the next time at which `advance_to` has something to do; None if there is none.

        That is the expiration of the first bucket with a task in it. Tasks may only move
        down a level then, or their deadlines may have moved; it is never later than the
        first run. It is `now_ms` if a task waits for the next advance or the timer is
        behind. O(1), plus a pop for each bucket emptied since.
        """
        if self._is_behind or not (self._due.is_empty and self._ready.is_empty):
            return self._now_ms
        bucket = self._first_bucket()
        return None if bucket is None else bucket.expiration_ms

    def _run_until(self, target_ms: int) -> int:
        """Empty `_ready` and every bucket up to `target_ms`, or stop behind at the limit."""
        wheel = self.wheel
        ran = self._flush(self._ready)
        if not self._ready.is_empty:
            self._is_behind = True
            return ran
        bucket = self._first_bucket()
        while bucket is not None and bucket.expiration_ms <= target_ms:
            if not self._left:
                self._is_behind = True
                return ran
            wheel.advance_clock(bucket.expiration_ms)
            ran += self._flush(bucket)
            bucket = self._first_bucket()
        wheel.advance_clock(target_ms)
        return ran

    def _first_bucket(self) -> Bucket | None:
        """Return the first bucket with a task in it; remove empty ones before it from the heap."""
        heap = self._heap
        while heap:
            bucket = heap[0][2]
            if not bucket.is_empty:
                return bucket
            heappop(heap)
            bucket.expiration_ms = NO_EXPIRATION_MS
        return None

    def _flush(self, bucket: Bucket) -> int:
        """Empty an expired bucket: run the tasks that are due, add the others again."""
        next_tick_ms = self.wheel.next_tick_ms
        left = self._left
        ran = 0
        # The head each time: a task may cancel or move any of those behind it.
        while left and (task := bucket.pop_first()) is not None:
            left -= 1
            self._pending -= 1
            if task.deadline_ms < next_tick_ms:
                ran += 1
                task.run()
            else:
                self.add(task, task.deadline_ms)
        self._left = left
        return ran
