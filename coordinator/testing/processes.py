"""Processes of a virtual group: each runs a worker, or a function that makes members."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import itertools
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from coordinator.client import Worker
from coordinator.testing.coordinator import HOST
from coordinator.testing.engine.clock import MachineClock
from coordinator.testing.environment import VirtualCredentials, VirtualEnvironment

if TYPE_CHECKING:
    from coordinator.testing.group import VirtualGroup

LOOK_S = 0.01
Program = Callable[[VirtualEnvironment], Awaitable[object]]
"""A process runs it anew in each life, in its environment; a worker that it returns is run."""


class VirtualProcess:
    """A process that can be killed, paused, cut off and started again. Made by `group.start`.

    Attributes:
        name: shown by `group.owners`.
        worker: the one that it runs, or ran last; None: it runs none.
        clock: of its machine; `clock.wall_offset_ns` may be changed at any time.
        error: what the last life ended with; None: nothing, or it still runs.
    """

    def __init__(self, group: VirtualGroup, name: str, number: int, program: Program) -> None:
        self.name = name
        self.clock = MachineClock()
        self.error: BaseException | None = None
        self.worker: Worker | None = None
        self.client_host = f"/10.0.{number >> 8}.{number & 255}"
        self._group = group
        self._program = program
        self._lives = itertools.count(1)
        self._environment: VirtualEnvironment | None = None
        self._task: asyncio.Task[object] | None = None

    @property
    def is_running(self) -> bool:
        """True until it ends or is killed; also while it is paused."""
        return self._environment is not None

    def start(self) -> None:
        """Start it again after its end, as a supervisor does. A new process: it remembers nothing.

        Raises:
            RuntimeError: it is still running.
        """
        if self._environment is not None:
            raise RuntimeError(f"{self.name} is running: `kill` or `await stop()` it first")
        group = self._group
        life = f"{self.name}.{next(self._lives)}"
        library = group.loop.process(life, self.clock)
        owner = group.loop.process(f"{life} (handlers)", self.clock)
        opener = VirtualCredentials.at(
            group.addresses, library, self.name, f"ipv4:{self.client_host[1:]}:5000"
        )
        self.error = self.worker = None
        environment = VirtualEnvironment(
            group.loop, library, owner, opener, life, group.handler_failed
        )
        self._environment = environment
        self._tell("starts")
        self._task = owner.run(self._run(environment), name=f"{self.name} of the virtual group")
        self._task.add_done_callback(
            lambda task: self._ended(environment, task), context=contextvars.Context()
        )

    def kill(self) -> None:
        """Kill it, as SIGKILL does: not another line of it runs, no `finally` either.

        Its threads stay where they wait for the library, until the test has ended.
        """
        environment = self._environment
        if environment is not None:
            self._tell("*** killed")
            self._die(environment)

    def pause(self, *, heartbeats: bool = False) -> None:
        """Let it stand still until `resume`.

        Args:
            heartbeats: only its handlers stop, or the function that it was started with, as if
                they were busy; the library goes on. A thread stops where it next waits for the
                library. A `Member` that is in `poll` counts as polling while it is paused
                there. False: all of it stops, as by SIGSTOP.
        """
        environment = self._alive()
        self._tell("*** handlers paused" if heartbeats else "*** paused")
        environment.owner.pause()
        if not heartbeats:
            environment.library.pause()

    def resume(self) -> None:
        """Let it go on after `pause`."""
        environment = self._alive()
        self._tell("resumed")
        environment.library.resume()
        environment.owner.resume()

    def cut(self) -> None:
        """Cut its network: nothing that it and the coordinator send arrives, until `mend`."""
        self._tell("*** cut off")
        self._group.network.cut(self.name, HOST)

    def mend(self) -> None:
        """End `cut` and `delay`."""
        self._tell("reachable again")
        self._group.network.mend(self.name, HOST)
        self._group.network.delays_s.pop(frozenset((self.name, HOST)), None)

    def delay(self, seconds: float) -> None:
        """Have each of its messages and their answers take so long."""
        self._tell(f"*** messages take {seconds:g} s")
        self._group.network.delays_s[frozenset((self.name, HOST))] = seconds

    async def stop(self) -> None:
        """End it as SIGTERM does, and wait for its end.

        A worker drains and leaves. A coroutine function is cancelled. A function in a thread gets
        `SystemExit` from the call of the library that it waits in, unless that is `worker.run()`.
        """
        environment = self._alive()
        self.request_stop()
        while self._environment is environment:
            await self._group.loop.pass_time(LOOK_S)

    def request_stop(self) -> None:
        """Begin to end it as `stop` does."""
        environment, task = self._alive(), self._task
        assert task is not None
        self._tell("is told to stop")
        stop = environment.stop if self.worker is None else self.worker.stop
        if stop is not None:
            stop("stopped by SIGTERM")
            return
        threads = environment.virtual_loop.threads
        interrupted = [threads.interrupt(t, SystemExit()) for t in environment.threads]
        if not any(interrupted):
            task.cancel()

    @property
    def is_reachable(self) -> bool:
        """True if it runs, is not paused and not cut off."""
        environment = self._environment
        return (
            environment is not None
            and not environment.owner.is_held
            and not self._group.network.is_cut(self.name, HOST)
        )

    # --- Inside ---

    async def _run(self, environment: VirtualEnvironment) -> object:
        try:
            made = await self._program(environment)
            if isinstance(made, Worker):
                self.worker = made
                await made.serve()
            return None
        except SystemExit as end:  # On a loop, it would end the test's process.
            if end.code:
                raise RuntimeError(f"{self.name} ended with the status {end.code}") from end
            return None

    def _ended(self, environment: VirtualEnvironment, task: asyncio.Task[object]) -> None:
        error = None if task.cancelled() else task.exception()
        if self._environment is environment:
            self.error = error
            self._tell("has ended" if error is None else f"has ended: {error!r}")
            self._die(environment)
        if error is not None:
            self._group.note(error)

    def _die(self, environment: VirtualEnvironment) -> None:
        self._environment = self._task = None
        environment.opener.break_off()
        environment.owner.kill()
        environment.library.kill()

    def _alive(self) -> VirtualEnvironment:
        if self._environment is None:
            raise RuntimeError(f"{self.name} is not running")
        return self._environment

    def _tell(self, text: str) -> None:
        self._group.story.tell(self.name, text)

    def __repr__(self) -> str:
        return f"<VirtualProcess {self.name}: {'running' if self.is_running else 'ended'}>"


def program_of(program: object, args: tuple[Any, ...]) -> Program:
    """The program of what is started; `args`: of a function.

    Raises:
        TypeError: it cannot be started.
    """
    if inspect.iscoroutine(program):
        program.close()
        raise TypeError(
            "a coroutine runs only once: pass the function, and its arguments after it, as in "
            "group.start(run, 3)"
        )
    if isinstance(program, Worker):
        return _program_of_worker(program)
    if callable(program):
        return _program_of_function(program, args)
    raise TypeError(f"a worker or a function is started, not {program!r}")


def _program_of_worker(worker: Worker) -> Program:
    async def run(environment: VirtualEnvironment) -> object:
        return worker.copy()

    return run


def _program_of_function(function: Callable[..., Any], args: tuple[Any, ...]) -> Program:
    """A program that calls a function: a coroutine function on the loop, another in a thread."""

    async def run(environment: VirtualEnvironment) -> object:
        if inspect.iscoroutinefunction(function):
            return await function(*args)
        loop = environment.virtual_loop
        ended: asyncio.Future[object] = loop.create_future()

        def call() -> None:
            result, error = None, None
            try:
                result = function(*args)
            except SystemExit:
                result = None  # Told to stop.
            except Exception as raised:  # noqa: BLE001  # The test is told.
                error = raised
            settle = ended.set_result if error is None else ended.set_exception
            argument: Any = result if error is None else error  # Any: as the setter wants it.
            loop.call_soon_threadsafe(settle, argument, context=environment.owner.context())

        environment.start_thread(call, f"{environment.library.name} {name_of(function)}")
        return await ended

    return run


def name_of(function: object) -> str:
    """Name of a function, or of the type of a callable object."""
    return getattr(function, "__name__", type(function).__name__)
