"""Long work on the event loop, in slices between which other tasks run.

A generator does the work and yields after every small part of it. `in_slices` drives it, and lets
other tasks run whenever a slice has lasted for `SLICE_S`; `at_once` drives it without pauses. Work
that cannot be cut, one step of a shard, is bounded by limits instead.

Cancelling the caller between two slices ends the work there, so a part of the work must either have
no effect before the end, or be correct by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable
from functools import partial
from itertools import islice
from typing import TypeAlias, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
Work: TypeAlias = Generator[None, None, Result]

SLICE_S = 0.002
"""An answer takes some turns of the loop: with slices of 2 ms a heartbeat waits 10 or 20 ms."""

PART = 50
"""Small items, encoded, checked or merged, between two yields of a generator."""


Rest: TypeAlias = Callable[[], Awaitable[None]]
LET_OTHERS_RUN: Rest = partial(asyncio.sleep, 0)

TURNS, TURN_S = 4, 0.001
REST_S = TURNS * TURN_S


async def let_others_be_answered() -> None:
    """Wait for some turns of the loop: as many as a call takes from its arrival to its answer."""
    for _ in range(TURNS):
        await asyncio.sleep(TURN_S)


class Slices:
    """Pauses between the slices of one piece of work.

    Args:
        clock: seconds; that of the running event loop if None.
        rest: waits between two slices.
    """

    def __init__(
        self, clock: Callable[[], float] | None = None, rest: Rest = LET_OTHERS_RUN
    ) -> None:
        self._clock = clock or asyncio.get_running_loop().time
        self._rest = rest
        self.begin()

    def begin(self) -> None:
        """Begin a slice: others have just run."""
        self._began = self._clock()

    async def pause(self) -> None:
        """Let other tasks run, if this slice has lasted long enough."""
        if self._clock() - self._began >= SLICE_S:
            await self._rest()
            self._began = self._clock()


async def in_slices(work: Work[Result], rest: Rest = LET_OTHERS_RUN) -> Result:
    """Do the work a slice at a time, and return its result. `rest`: waits between two slices."""
    slices = None  # Most work ends with its first part, and needs no clock.
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: Result = done.value
            return result
        if slices is None:
            slices = Slices(rest=rest)
        await slices.pause()


def collected(items: Iterable[Item]) -> Work[list[Item]]:
    """Make items, a part of them at a time."""
    collected_items: list[Item] = []
    left = iter(items)
    while part := list(islice(left, PART)):
        collected_items += part
        yield
    return collected_items


def at_once(work: Work[Result]) -> Result:
    """Do the work without pauses, and return its result."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: Result = done.value
            return result
