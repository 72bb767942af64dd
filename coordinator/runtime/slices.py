"""Long work on the event loop, in slices that let others in.

A generator does the work and yields after every small part of it. `in_slices` drives it, and gives
the loop to everybody else whenever a slice has lasted for `SLICE_S`; `at_once` drives it where
nobody waits. Work that cannot be cut, one step of a shard, is bounded by limits instead.

A caller that goes away between two slices ends the work there: nothing of it may have taken effect
yet, or what has must be right by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import TypeAlias, TypeVar

Result = TypeVar("Result")
Work: TypeAlias = Generator[None, None, Result]

SLICE_S = 0.002
"""An answer takes some turns of the loop: with slices of 2 ms a heartbeat waits for 10 or 20 ms."""


class Slices:
    """Says when it is others' turn.

    Args:
        clock: seconds; that of the running event loop if None.
    """

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock or asyncio.get_running_loop().time
        self._began = self._clock()

    async def pause(self) -> None:
        """Let others in, if this slice has lasted long enough."""
        if self._clock() - self._began >= SLICE_S:
            await asyncio.sleep(0)
            self._began = self._clock()


async def in_slices(work: Work[Result]) -> Result:
    """The result of the work, done a slice at a time."""
    slices = Slices()
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: Result = done.value
            return result
        await slices.pause()


def at_once(work: Work[Result]) -> Result:
    """The result of the work, done in one go."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: Result = done.value
            return result
