"""Alternatives to the timing wheel: a heap, asyncio's own timers, a sorted list.

Each starts a timer for something, stops it by the ticket it gave, and hands over what is
due. `RivalTimer` puts one of them in the place of the wheel, so that the purgatory is the
same for all.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any, Final, Protocol

from sortedcontainers import SortedList

from timer.bucket import Bucket
from timer.operation import DelayedOperation
from timer.task import TimerTask
from timer.timer import Timer

PURGE_INTERVAL: Final = 1000
"""Stopped timers that the heap tolerates, as many as a purgatory."""

Due = Callable[[Any], object]  # Any: what was started is the caller's.


class Rival(Protocol):
    """Timers by ticket. `on_due` is told what was started when its time has come."""

    on_due: Due

    def start(self, deadline_ms: int, what: object) -> object:
        """Start a timer; the ticket stops it."""
        ...

    def stop(self, ticket: Any) -> None:  # Any: what `start` of the same rival returned.
        """Stop a timer that has not come due."""
        ...

    def advance_to(self, now_ms: int) -> None:
        """Hand over what is due."""
        ...


class LazyHeap:
    """The old design: what is stopped stays in the heap until it comes up or is scanned for."""

    def __init__(self, on_due: Due) -> None:
        self.on_due = on_due
        self._entries: list[list[Any]] = []  # Any: deadline, number, and what was started.
        self._numbers = itertools.count()
        self._stopped = 0

    def start(self, deadline_ms: int, what: object) -> list[Any]:
        entry = [deadline_ms, next(self._numbers), what]
        heappush(self._entries, entry)
        return entry

    def stop(self, ticket: list[Any]) -> None:
        ticket[2] = None
        self._stopped += 1
        if self._stopped > PURGE_INTERVAL:
            self._entries = [entry for entry in self._entries if entry[2] is not None]
            heapify(self._entries)
            self._stopped = 0

    def advance_to(self, now_ms: int) -> None:
        entries = self._entries
        while entries and entries[0][0] <= now_ms:
            what = heappop(entries)[2]
            if what is None:
                self._stopped -= 1
            else:
                self.on_due(what)
                entries = self._entries  # It may have been scanned meanwhile.


class LoopTimers:
    """`loop.call_at`, which every asyncio program has. The loop itself sees to what is due.

    Args:
        origin_s: the loop's time at millisecond 0.
    """

    def __init__(self, on_due: Due, loop: asyncio.AbstractEventLoop, origin_s: float) -> None:
        self.on_due = on_due
        self._loop = loop
        self._origin_s = origin_s

    def start(self, deadline_ms: int, what: object) -> asyncio.TimerHandle:
        return self._loop.call_at(self._origin_s + deadline_ms / 1000, self.on_due, what)

    def stop(self, ticket: asyncio.TimerHandle) -> None:
        ticket.cancel()

    def advance_to(self, now_ms: int) -> None:
        pass


class SortedTimers:
    """A list kept in order by `sortedcontainers`: what is stopped leaves at once."""

    def __init__(self, on_due: Due) -> None:
        self.on_due = on_due
        self._entries = SortedList()
        self._numbers = itertools.count()

    def start(self, deadline_ms: int, what: object) -> tuple[int, int, object]:
        entry = (deadline_ms, next(self._numbers), what)
        self._entries.add(entry)
        return entry

    def stop(self, ticket: tuple[int, int, object]) -> None:
        self._entries.remove(ticket)

    def advance_to(self, now_ms: int) -> None:
        entries = self._entries
        while entries and entries[0][0] <= now_ms:
            self.on_due(entries.pop(0)[2])


class Ticketed(DelayedOperation):
    """An operation with room for the ticket of a rival."""

    __slots__ = ("ticket",)

    def __init__(self) -> None:
        super().__init__()
        self.ticket: object = None


class RivalTimer(Timer):
    """A rival in the place of the wheel, for operations that are `Ticketed`."""

    __slots__ = ("_home", "_rival")

    def __init__(self, make: Callable[[Due], Rival]) -> None:
        super().__init__(0, wheel_size=2)
        self._home = Bucket(self, 0)  # Tasks in a bucket are pending, and know their timer by it.
        self._rival = make(self._run)

    def add(self, task: TimerTask, deadline_ms: int) -> None:
        assert isinstance(task, Ticketed)
        if task.bucket is not None:
            task.bucket.timer.cancel(task)
        task.bucket = self._home
        task.deadline_ms = deadline_ms
        task.ticket = self._rival.start(deadline_ms, task)
        self._pending += 1

    def cancel(self, task: TimerTask) -> bool:
        if task.bucket is None:
            return False
        assert isinstance(task, Ticketed)
        task.bucket = None
        self._rival.stop(task.ticket)
        task.ticket = None
        self._pending -= 1
        return True

    def advance_to(self, now_ms: int, limit: int | None = None) -> int:
        before = self._pending
        self._rival.advance_to(now_ms)
        return before - self._pending

    def _run(self, task: TimerTask) -> None:
        task.bucket = None
        self._pending -= 1
        task.run()
