"""Handles, tasks and futures of a simulated loop, which know their process.

Tasks and futures hash by a number of their own, not by their address, so that a set of them has
the same order in each run.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from coordinator.testing.engine.process import PROCESS, Process

if TYPE_CHECKING:
    from coordinator.testing.engine.loop import SimulatedLoop

T = TypeVar("T")


class SimulatedHandle(asyncio.TimerHandle):
    """A callback that is ready or waits for its time."""

    # asyncio's own constructors take longer and set more than is needed here.
    __slots__ = ("args", "callback", "context", "is_timer", "loop", "process", "when_s")

    def __init__(
        self,
        loop: SimulatedLoop,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context,
    ) -> None:
        self.loop = loop
        self.callback: Callable[..., object] | None = callback
        self.args = args
        self.context = context
        self.process: Process = context.get(PROCESS, loop.world)
        self.is_timer = False  # Still waits for its time.
        self.when_s = 0.0

    def cancel(self) -> None:
        if self.callback is not None:
            self.callback = None
            self.args = ()
            if self.is_timer:
                self.loop.timers.one_is_cancelled()

    def cancelled(self) -> bool:
        return self.callback is None

    def when(self) -> float:
        return self.when_s

    def __repr__(self) -> str:
        return f"<SimulatedHandle {self.callback} of {self.process.name} at {self.when_s}>"


class SimulatedTask(asyncio.Task[T]):
    """A task that knows its process, and hashes by its number."""

    def __init__(
        self,
        coro: Coroutine[Any, Any, T],
        *,
        loop: SimulatedLoop,
        number: int,
        name: str | None,
        context: contextvars.Context,
    ) -> None:
        self.number = number
        self.process = context.get(PROCESS, loop.world)
        super().__init__(coro, loop=loop, name=name or f"Task-{number}", context=context)

    def __hash__(self) -> int:
        return self.number


class SimulatedFuture(asyncio.Future[T]):
    """A future that knows whose it is, and hashes by its number."""

    __slots__ = ("number", "process")

    number: int
    process: Process

    def __hash__(self) -> int:
        return self.number
