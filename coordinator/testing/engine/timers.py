"""The timers of a simulated loop, in the order in which they are due."""

from __future__ import annotations

import heapq
from collections import deque
from typing import Final

from coordinator.testing.engine.handles import SimulatedHandle

CANCELLED_MIN: Final = 100  # Fewer are not worth removing.


class TimerQueue:
    """A heap; timers of the same moment keep the order in which they were added."""

    __slots__ = ("_added", "_cancelled", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, SimulatedHandle]] = []
        self._added = 0
        self._cancelled = 0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, true_ns: int, handle: SimulatedHandle) -> None:
        """Have it run at `true_ns` or as soon as possible after."""
        handle.is_timer = True
        self._added += 1
        heapq.heappush(self._heap, (true_ns, self._added, handle))

    def one_is_cancelled(self) -> None:
        """Count it, and remove all such once they are most of the heap. Called by the handle."""
        self._cancelled += 1
        if self._cancelled > max(CANCELLED_MIN, len(self._heap) // 2):
            self._heap = [timer for timer in self._heap if timer[2].callback is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def next_ns(self) -> int | None:
        """Time of the next timer; drops timers that will never run."""
        heap = self._heap
        while heap:
            true_ns, _, handle = heap[0]
            if handle.callback is not None and not handle.process.is_dead:
                return true_ns
            self._pop()
            if handle.callback is not None:
                handle.process.hold(handle)
        return None

    def pop_due(self, now_ns: int, ready: deque[SimulatedHandle]) -> None:
        """Move those that are due to the end of `ready`."""
        heap = self._heap
        while heap and heap[0][0] <= now_ns:
            handle = self._pop()
            if handle.callback is not None:
                ready.append(handle)

    def clear(self) -> list[SimulatedHandle]:
        """Remove all and return them."""
        handles = [timer[2] for timer in self._heap]
        self._heap.clear()
        self._cancelled = 0
        for handle in handles:
            handle.is_timer = False
        return handles

    def _pop(self) -> SimulatedHandle:
        handle = heapq.heappop(self._heap)[2]
        handle.is_timer = False
        if handle.callback is None:
            self._cancelled -= 1
        return handle
