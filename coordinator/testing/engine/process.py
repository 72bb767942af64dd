"""A simulated process: code that is killed, paused, and told the time, as one.

Whatever runs on a `SimulatedLoop` belongs to a process: the one that is named in the context
(`contextvars`) of the handle or task. Tasks, timers and callbacks that a process makes inherit
its context, and so belong to it, too. A callback that is added to another's future belongs to
whoever added it. What belongs to nobody belongs to the loop's `world`, whose clock is true
time, and which is neither killed nor paused.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar, TypeVarTuple, Unpack

from coordinator.runtime import garbage
from coordinator.testing.engine.clock import MachineClock

if TYPE_CHECKING:
    from coordinator.testing.engine.handles import SimulatedHandle, SimulatedTask
    from coordinator.testing.engine.loop import SimulatedLoop

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

PROCESS: Final[contextvars.ContextVar[Process]] = contextvars.ContextVar("process")


class Process:
    """Made by `SimulatedLoop.process`.

    Attributes:
        name: shown in errors; need not be unique (a process that is started again).
        clock: of the machine that it runs on; processes of one machine share it.
        thread_takes_s: how long a function takes that is given to a thread. It has its
            effects at once, and its caller has the result that much later.
        is_dead: it was killed.
        is_held: it runs nothing now: dead or paused.
    """

    __slots__ = (
        "_backlog",
        "_context",
        "_handles",
        "_tasks",
        "_wake",
        "clock",
        "is_dead",
        "is_held",
        "loop",
        "name",
        "thread_takes_s",
    )

    def __init__(self, loop: SimulatedLoop, name: str, clock: MachineClock) -> None:
        self.loop = loop
        self.name = name
        self.clock = clock
        self.thread_takes_s = 0.0
        self.is_dead = False
        self.is_held = False
        self._wake: asyncio.TimerHandle | None = None
        self._backlog: deque[SimulatedHandle] = deque()  # Became ready during a pause.
        # Of a dead process, kept until the loop closes: a coroutine that is collected runs.
        self._handles: list[SimulatedHandle] = []
        self._tasks: list[SimulatedTask[Any]] = []
        # Empty but for the process: nothing of whoever started it.
        self._context = contextvars.Context()
        self._context.run(PROCESS.set, self)
        self._context.run(garbage.IS_SHARED.set, True)

    def context(self) -> contextvars.Context:
        """A context in which whatever runs belongs to this process."""
        return self._context.copy()

    def put(self, variable: contextvars.ContextVar[T], value: T) -> None:
        """Give a context variable its value in whatever belongs to this process from now on."""
        self._context.run(variable.set, value)

    def run(self, work: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
        """Start a task in this process."""
        return self.loop.create_task(work, name=name, context=self.context())

    def call_soon(self, callback: Callable[[Unpack[Ts]], object], *args: *Ts) -> asyncio.Handle:
        """Call in this process, as soon as it runs: a message that has arrived."""
        return self.loop.call_soon(callback, *args, context=self.context())

    def call_later(
        self, delay_s: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts
    ) -> asyncio.TimerHandle:
        """Call in this process after `delay_s` on its clock."""
        return self.loop.call_later(delay_s, callback, *args, context=self.context())

    def arrives_at(
        self, true_s: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts
    ) -> asyncio.TimerHandle:
        """Call in this process at a time of the world: a message on its way has no clock."""
        return self.loop.call_at_true(true_s, callback, *args, context=self.context())

    def monotonic_ns(self) -> int:
        """Time of its machine's monotonic clock, in nanoseconds."""
        return self.clock.monotonic_ns(self.loop.true_ns)

    def wall_ns(self) -> int:
        """Time of its machine's wall clock, in nanoseconds since the epoch."""
        return self.clock.wall_ns(self.loop.true_ns)

    def kill(self) -> None:
        """End it as SIGKILL does: nothing of it runs ever again, no `finally` either.

        A process that kills itself runs to the end of the present callback or to the next
        `await` of the present task, and whatever it still asks for is dropped. Futures that
        it would have resolved are never resolved: it is for the simulated network to tell
        whoever waits for an answer.
        """
        self._may_be_held()
        if self.is_dead:
            return
        self.is_dead = self.is_held = True
        self._forget_wake()
        self._handles += self._backlog
        self._backlog.clear()
        for task in self.loop.tasks_of(self):
            self.bury(task)

    def pause(self, until_s: float | None = None) -> None:
        """Stop it as SIGSTOP does: what becomes ready waits, timers too.

        Args:
            until_s: true time (of the loop's `world`) at which it goes on; None: when
                `resume` is called. A second call replaces the first one's.
        """
        self._may_be_held()
        if self.is_dead:
            return
        self.is_held = True
        self._forget_wake()
        if until_s is not None:
            self._wake = self.loop.world.call_at(until_s, self.resume)

    def resume(self) -> None:
        """Let it go on: whatever became ready meanwhile runs now, in that order."""
        if self.is_dead or not self.is_held:
            return
        self.is_held = False
        self._forget_wake()
        self.loop.make_ready(self._backlog)
        self._backlog.clear()

    def call_at(
        self, when_s: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts
    ) -> asyncio.TimerHandle:
        """Call in this process when its monotonic clock reads `when_s`."""
        return self.loop.call_at(when_s, callback, *args, context=self.context())

    def hold(self, handle: SimulatedHandle) -> None:
        """Take a handle that is ready while the process is held; called by the loop."""
        if self.is_dead:
            self._handles.append(handle)
        else:
            self._backlog.append(handle)

    def bury(self, task: SimulatedTask[Any]) -> None:
        """Keep a task of a dead process, out of `asyncio.all_tasks`. Called by the loop."""
        # Code that cancels all tasks and waits for them would wait for ever.
        asyncio.tasks._unregister_task(task)
        self._tasks.append(task)

    def take_remains(self) -> tuple[list[SimulatedTask[Any]], list[SimulatedHandle]]:
        """Return and drop the tasks and handles of a dead process. Called by the loop."""
        tasks, handles = self._tasks, [*self._handles, *self._backlog]
        self._tasks, self._handles = [], []
        self._backlog.clear()
        return tasks, handles

    def _may_be_held(self) -> None:
        if self is self.loop.world:
            raise ValueError("the world is neither killed nor paused")

    def _forget_wake(self) -> None:
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None

    def __repr__(self) -> str:
        state = "dead" if self.is_dead else "paused" if self.is_held else "running"
        return f"<Process {self.name} {state}>"


class ProcessClock:
    """A node's clock, in epoch milliseconds: anchored at its start, then monotonic."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._offset_ns = process.wall_ns() - process.monotonic_ns()

    def now_ms(self) -> int:
        """Milliseconds since the epoch, as this machine believes."""
        return (self._offset_ns + self._process.monotonic_ns()) // 1_000_000


class NumberedIds:
    """Member ids of one process: as random ones they differ from all others, and stay the same in
    each run."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._numbers = itertools.count(1)

    def new_member_id(self, prefix: str) -> str:
        return f"{prefix}-{self._name}-{next(self._numbers)}"

    def new_session_id(self) -> str:
        return self.new_member_id("session")
