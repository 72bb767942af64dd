"""The garbage collector, kept out of the way.

A coordinator holds many objects that stay, and makes few cycles. A full collection would walk
over millions of them, holding everything up, and find nothing. Three rules keep it short:

- While a shard loads, collection is disabled (`gc_paused`).
- Objects that are left by a full collection or a load are frozen once they are `MANY`: later
  collections skip them. Fewer are walked over again, so that most calls have ended before anything
  is frozen, and a node whose groups stay as they are freezes nothing.
- All objects are looked at again once the frozen ones, or the memory of the process, have doubled
  since that was last done.

Reference counting still frees frozen objects: groups, members, calls and connections are not parts
of cycles. A cycle that is alive or not yet found when objects are frozen stays, so what garbage can
hold is bounded by what is in use: the third rule ([0050](../decisions/0050-garbage-is-bounded.md)).

gRPC makes one cycle for every call, which lives while its handler is looked up. A collection that
Python starts by itself starts at an allocation, so most often in the middle of that. So the event
loop runs full collections before Python would (`ShortPauses.attach`), between two callbacks, when
no such cycle is in use. Python runs them only if the loop is too busy to.

`collect_and_freeze` looks at all objects, for the rare moments in which many have become garbage.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import time
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, Final, Self

from coordinator.runtime.memory import resident_bytes

THRESHOLDS = (700, 4, 1)
"""Thresholds of `gc.set_threshold`. The loop is asked for a full collection at half of the new
objects at which Python would run one itself."""

MANY: Final = 10_000
"""Objects that are not frozen, of which there are so many that they are: walked over in 3 ms."""
LOOKED_AT: Final = 100_000
"""Frozen objects below which their number does not count as doubled."""

MIDDLE: Final = 1
GENERATIONS: Final = 3
OLDEST: Final = 2
PAUSE_BOUNDS_S: Final = (0.0001, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0)

IS_SHARED: Final = contextvars.ContextVar("collector_is_shared", default=False)
"""Set where a process is simulated, beside others in one interpreter: it may be killed in the
middle of `gc_paused`, and must not decide what is collected of the others."""

_loading = 0


class _Frozen:
    """Frozen objects, and how many there were when everything was last looked at."""

    def __init__(self) -> None:
        self._modules = 0
        self._objects = LOOKED_AT
        self._since = 0
        self._memory_bytes = 0

    def add(self, *, are_loaded: bool = False) -> None:
        """Freeze all objects if those that are not frozen have become many.

        Args:
            are_loaded: they stay, and do not count as objects that may have become garbage.
        """
        made = len(gc.get_objects())
        if made < MANY:
            return
        gc.freeze()
        if are_loaded:
            self._objects += made
            self._memory_bytes = max(self._memory_bytes, resident_bytes())
        else:
            self._since += made

    def have_doubled(self) -> bool:
        """True if the frozen objects or the memory of the process are twice what they were."""
        if self._since >= self._objects:
            # Reference counting has freed some. To count them takes a walk, so it is rarely done.
            self._since = gc.get_freeze_count() - self._modules - self._objects
        return self._since >= self._objects or 0 < 2 * self._memory_bytes <= resident_bytes()

    def begin(self) -> None:
        """Freeze imported modules. They stay, and do not count."""
        gc.freeze()
        self._modules = gc.get_freeze_count()
        self.note_frozen()

    def note_frozen(self) -> None:
        """Note that everything has just been looked at, and is frozen."""
        self._objects = max(LOOKED_AT, gc.get_freeze_count() - self._modules)
        self._since = 0
        self._memory_bytes = resident_bytes()


_FROZEN: Final = _Frozen()
"""The frozen objects of this process: there is one collector."""


@contextlib.contextmanager
def gc_paused() -> Iterator[None]:
    """Disable garbage collection inside; freeze survivors on exit if they are many. Re-entrant."""
    global _loading  # noqa: PLW0603  # The collector is the process's.
    if IS_SHARED.get():
        yield
        return
    _loading += 1
    gc.disable()
    try:
        yield
    finally:
        _loading -= 1
        if _loading == 0:
            _FROZEN.add(are_loaded=True)
            gc.enable()


def collect_and_freeze() -> None:
    """Run a full collection over frozen objects too. Slow: for when many have become garbage."""
    if IS_SHARED.get():
        return
    gc.unfreeze()
    gc.collect()
    if _loading == 0:
        gc.freeze()
        _FROZEN.note_frozen()


class ShortPauses:
    """Context manager that keeps collections short, and measures their pauses.

    Full collections run on the loop that it is attached to. It counts in plain numbers and
    without a lock: the collector may run at any moment in any thread, also in one that holds a
    lock of a metric.
    """

    bounds_s = PAUSE_BOUNDS_S

    def __init__(self) -> None:
        self.counts = [[0] * (len(PAUSE_BOUNDS_S) + 1) for _ in range(GENERATIONS)]
        """Pauses by generation and by `bounds_s`; the last counts pauses longer than all bounds."""
        self.total_s = [0.0] * GENERATIONS
        self._began = 0.0
        self._thresholds_before = gc.get_threshold()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_asked = self._is_safe = False

    def attach(self) -> None:
        """Run full collections on the current loop, between its callbacks."""
        self._loop = asyncio.get_running_loop()

    def __enter__(self) -> Self:
        self._thresholds_before = gc.get_threshold()
        gc.set_threshold(*THRESHOLDS)
        _FROZEN.begin()
        gc.callbacks.append(self._watch)
        return self

    def __exit__(self, *_: object) -> None:
        gc.callbacks.remove(self._watch)
        gc.set_threshold(*self._thresholds_before)

    def _watch(
        self, phase: str, details: dict[str, Any]
    ) -> None:  # Any: the collector's own words.
        if phase == "start":
            self._began = time.perf_counter()
            return
        generation = details["generation"]
        seconds = time.perf_counter() - self._began
        self.counts[generation][bisect_left(PAUSE_BOUNDS_S, seconds)] += 1
        self.total_s[generation] += seconds
        if generation == OLDEST and not self._is_safe:
            _FROZEN.add()
        if generation == MIDDLE and self._loop is not None and not self._is_asked:
            # Allowed in any thread. A loop that is closed collects no more.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._collect)
                self._is_asked = True

    def _collect(self) -> None:
        self._is_asked = False
        if _loading:
            return
        self._is_safe = True
        try:
            gc.collect()
            _FROZEN.add()
            if _FROZEN.have_doubled():
                collect_and_freeze()
        finally:
            self._is_safe = False
