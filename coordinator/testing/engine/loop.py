"""An event loop whose clock jumps: many simulated processes, one thread, the same every time.

There is no selector, no socket and no thread. When nothing is ready, time jumps to the next
timer. Handles run in the order in which they became ready, timers of the same moment in the
order in which they were set; tasks and futures hash by a number of their own, so that sets of
them (in `asyncio.wait`, `TaskGroup`) have the same order in each run. So a program that asks
only this loop for the time and a seeded generator for chance runs exactly the same twice.

As in asyncio's own loops, a round runs what was ready when it began; timers that are due join
at the beginning of a round.

A function for a thread (`asyncio.to_thread`) runs in the loop's thread, in a turn of its own.

`process.py` says whose code runs, and what killing and pausing it means.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable
from inspect import iscoroutine
from types import CoroutineType
from typing import Any, Final, NoReturn, TypeVar, TypeVarTuple, Unpack

from coordinator.testing.engine.burial import bury
from coordinator.testing.engine.clock import MachineClock
from coordinator.testing.engine.handles import SimulatedFuture, SimulatedHandle, SimulatedTask
from coordinator.testing.engine.process import PROCESS, Process
from coordinator.testing.engine.reports import SHOWN_MAX, ErrorReports, describe_pending
from coordinator.testing.engine.timers import TimerQueue


def _refusal(reason: str) -> Any:
    def refuse(loop: NoOutsideWorld, *_args: object, **_options: object) -> NoReturn:
        raise loop.refusal(reason)

    return refuse


class NoOutsideWorld(asyncio.AbstractEventLoop):
    """Refuses sockets, pipes, subprocesses and signals."""

    def refusal(self, reason: str) -> NotImplementedError:
        """Return the error of a call that asks for something outside of this process."""
        return NotImplementedError(f"a loop on virtual time has no {reason}")

    _no_sockets = _refusal("sockets: put a fake in the place of what is connected to")
    create_connection = create_server = create_datagram_endpoint = _no_sockets
    create_unix_connection = create_unix_server = start_tls = sendfile = _no_sockets
    connect_accepted_socket = getaddrinfo = getnameinfo = _no_sockets
    add_reader = remove_reader = add_writer = remove_writer = _no_sockets
    sock_recv = sock_recv_into = sock_recvfrom = sock_recvfrom_into = _no_sockets
    sock_sendall = sock_sendto = sock_connect = sock_accept = sock_sendfile = _no_sockets
    connect_read_pipe = connect_write_pipe = _refusal("pipes")
    subprocess_shell = subprocess_exec = _refusal("subprocesses")
    add_signal_handler = remove_signal_handler = _refusal("signals")
    set_task_factory = _refusal("tasks but its own")


T = TypeVar("T")
Ts = TypeVarTuple("Ts")

NS_PER_S: Final = 1_000_000_000
ROUNDS_AT_ONE_TIME_MAX: Final = 100_000


class Stuck(RuntimeError):
    """Something is awaited, and nothing is left that could bring it about."""


class Livelock(RuntimeError):
    """Callbacks keep following each other, and time does not move on."""


class SimulatedLoop(ErrorReports, NoOutsideWorld):
    """See the top of this file.

    Args:
        rounds_at_one_time_max: after so many rounds without time moving on, it is a livelock.
    """

    def __init__(self, *, rounds_at_one_time_max: int = ROUNDS_AT_ONE_TIME_MAX) -> None:
        super().__init__()
        self.true_ns = 0
        self.world = Process(self, "world", MachineClock())
        self._rounds_max = rounds_at_one_time_max
        self._rounds = 0  # Since time has moved on.
        self._ready: deque[SimulatedHandle] = deque()
        self.timers = TimerQueue()
        self._numbers = 0
        self._processes: list[Process] = []
        self._generators: weakref.WeakSet[AsyncGenerator[Any, Any]] = weakref.WeakSet()
        # By id, since weak references are gone when a generator ends. Ids are used again, so
        # there are no more of them than generators at one time.
        self._generator_owners: dict[int, Process] = {}
        self._thread = threading.get_ident()
        self._running = self._stopping = self._closed = False

    def process(self, name: str, clock: MachineClock | None = None) -> Process:
        """A new process, on a machine of its own unless it is given the clock of one."""
        process = Process(self, name, clock or MachineClock())
        self._processes.append(process)
        return process

    # --- Time ---------------------------------------------------------------------------------

    def time(self) -> float:
        """The monotonic clock, in seconds, of the process that asks."""
        return PROCESS.get(self.world).clock.monotonic_ns(self.true_ns) / NS_PER_S

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call after `delay` seconds on the clock of the process that the handle belongs to."""
        handle = self._handle(callback, args, context)
        # A delay above zero takes time, however short it is: loops that wait for the rest of
        # a time come to an end.
        delay_ns = max(round(delay * NS_PER_S), 1 if delay > 0 else 0)
        clock = handle.process.clock
        when_ns = clock.monotonic_ns(self.true_ns) + delay_ns
        handle.when_s = when_ns / NS_PER_S
        self.timers.add(clock.true_ns(when_ns), handle)
        return handle

    def call_at_true(
        self,
        true_s: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call at a true time, whatever the clock of the process says that the handle is of."""
        handle = self._handle(callback, args, context)
        true_ns = max(round(true_s * NS_PER_S), self.true_ns)
        handle.when_s = handle.process.clock.monotonic_ns(true_ns) / NS_PER_S
        self.timers.add(true_ns, handle)
        return handle

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call when the clock of the process that the handle belongs to reads `when`."""
        handle = self._handle(callback, args, context)
        when_ns = round(when * NS_PER_S)
        if when_ns / NS_PER_S < when:
            when_ns += 1  # Never early.
        handle.when_s = when
        self.timers.add(handle.process.clock.true_ns(when_ns), handle)
        return handle

    # --- Handles ------------------------------------------------------------------------------

    def call_soon(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        handle = self._handle(callback, args, context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Like `call_soon`, and only from the loop's thread: other threads' order is random."""
        if threading.get_ident() != self._thread:
            raise RuntimeError("a thread calls a simulated loop; it would not run the same twice")
        return self.call_soon(callback, *args, context=context)

    def _handle(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
    ) -> SimulatedHandle:
        if self._closed:
            raise RuntimeError("Event loop is closed")
        # An empty context is false.
        return SimulatedHandle(
            self, callback, args, contextvars.copy_context() if context is None else context
        )

    def make_ready(self, handles: Iterable[SimulatedHandle]) -> None:
        """Run handles that were held back, in their order; called by `Process`."""
        self._ready.extend(handles)

    # --- Running ------------------------------------------------------------------------------

    def run_forever(self) -> None:
        """Run until `stop`.

        Raises:
            Stuck: nothing is left to do.
            Livelock: time does not move on.
        """
        self._check_may_run()
        hooks = sys.get_asyncgen_hooks()
        self._thread = threading.get_ident()
        self._running = True
        asyncio._set_running_loop(self)
        sys.set_asyncgen_hooks(firstiter=self._generator_begins, finalizer=self._generator_ends)
        try:
            while True:
                self._run_round()
                if self._stopping:
                    break
        finally:
            self._running = self._stopping = False
            asyncio._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)

    def run_until_complete(self, future: Any) -> Any:
        """Run until the future or coroutine is done; its result. Raises as `run_forever`."""
        self._check_may_run()
        is_ours = not asyncio.isfuture(future)
        future = asyncio.ensure_future(future, loop=self)
        future.add_done_callback(self._awaited_is_done)
        try:
            self.run_forever()
        except BaseException:
            if is_ours and future.done() and not future.cancelled():
                future.exception()  # It comes out of `run_forever`: do not report it again.
            raise
        finally:
            future.remove_done_callback(self._awaited_is_done)
        if not future.done():
            raise RuntimeError("Event loop stopped before Future completed.")
        return future.result()

    def _awaited_is_done(self, future: asyncio.Future[Any]) -> None:
        if not future.cancelled() and isinstance(
            future.exception(), (SystemExit, KeyboardInterrupt)
        ):
            return  # It came out of `run_forever` already.
        self.stop()

    def stop(self) -> None:
        self._stopping = True

    def is_running(self) -> bool:
        return self._running

    def _run_round(self) -> None:
        ready = self._ready
        if not ready and not self._stopping:
            self._jump()
        self.timers.pop_due(self.true_ns, ready)
        self._rounds += 1
        if self._rounds > self._rounds_max:
            self._rounds = 0
            raise Livelock(
                f"{self._rounds_max} rounds at {self.time()} s, and time does not move on; "
                f"next to run: {', '.join(map(repr, list(ready)[:SHOWN_MAX]))}"
            )
        for _ in range(len(ready)):
            handle = ready.popleft()
            callback = handle.callback
            if callback is None:
                continue
            if handle.process.is_held:
                handle.process.hold(handle)
                continue
            try:
                handle.context.run(callback, *handle.args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:  # noqa: BLE001 - as asyncio's loops do.
                self.call_exception_handler(
                    {"message": f"Exception in {callback!r}", "exception": error, "handle": handle}
                )

    def _jump(self) -> None:
        """Move time on to the next timer that will run."""
        next_ns = self.timers.next_ns()
        if next_ns is None:
            paused = [
                process for process in self._processes if process.is_held and not process.is_dead
            ]
            raise Stuck(describe_pending(self.true_ns, paused, self._tasks()))
        if next_ns > self.true_ns:
            self.true_ns = next_ns
            self._rounds = 0

    # --- Tasks and futures --------------------------------------------------------------------

    def create_future(self) -> asyncio.Future[Any]:
        future: SimulatedFuture[Any] = SimulatedFuture(loop=self)
        self._numbers += 1
        future.number = self._numbers
        future.process = PROCESS.get(self.world)
        return future

    def create_task(
        self,
        coro: Any,
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
        **_options: object,
    ) -> asyncio.Task[Any]:
        if self._closed:
            raise RuntimeError("Event loop is closed")
        self._numbers += 1
        task: SimulatedTask[Any] = SimulatedTask(
            coro,
            loop=self,
            number=self._numbers,
            name=name,
            context=contextvars.copy_context() if context is None else context,
        )
        if task.process.is_dead:
            task.process.bury(task)
        return task

    def get_task_factory(self) -> None:
        return None

    def run_in_executor(
        self, executor: object, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Run `func` in a turn of its own; its result comes after `Process.thread_takes_s`."""
        future = self.create_future()
        takes_s = PROCESS.get(self.world).thread_takes_s

        def work() -> None:
            settle: Callable[[Any], None]
            outcome: Any
            try:
                settle, outcome = future.set_result, func(*args)
            except Exception as error:  # noqa: BLE001 - it is its caller's.
                settle, outcome = future.set_exception, error

            def done() -> None:
                if not future.done():
                    settle(outcome)

            if takes_s:
                self.call_later(takes_s, done)
            else:
                done()

        self.call_soon(work)
        return future

    def set_default_executor(self, executor: object) -> None:
        """Nothing: there are no threads."""

    def tasks_of(self, process: Process) -> list[SimulatedTask[Any]]:
        """The unfinished tasks of a process, oldest first."""
        return [task for task in self._tasks() if task.process is process]

    def _tasks(self) -> list[SimulatedTask[Any]]:
        tasks = [task for task in asyncio.all_tasks(self) if isinstance(task, SimulatedTask)]
        return sorted(tasks, key=lambda task: task.number)

    # --- The end ------------------------------------------------------------------------------

    async def shutdown_asyncgens(self) -> None:
        """Close the asynchronous generators that are under way, but for those of held processes."""
        generators = [
            generator
            for generator in self._generators
            if not self._generator_owners[id(generator)].is_held
        ]
        self._generators.clear()
        for generator in generators:
            await generator.aclose()

    async def shutdown_default_executor(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - asyncio's own signature.
    ) -> None:
        """Nothing: there are no threads."""

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """End as a power cut does: what is pending never runs, in the world neither."""
        if self._running:
            raise RuntimeError("Cannot close a running event loop")
        if self._closed:
            return
        self._closed = True
        tasks = self._tasks()
        handles = [*self.timers.clear(), *self._ready]
        for process in (self.world, *self._processes):
            process.is_dead = process.is_held = True
            dead_tasks, dead_handles = process.take_remains()
            tasks += dead_tasks
            handles += dead_handles
        coroutines: list[CoroutineType[Any, Any, Any]] = []
        for task in tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coroutines += filter(iscoroutine, [task.get_coro()])
        for handle in handles:
            coroutines += filter(iscoroutine, handle.args)
        bury(coroutines)
        for handle in handles:
            handle.cancel()
        self._ready.clear()

    def _check_may_run(self) -> None:
        if self._closed:
            raise RuntimeError("Event loop is closed")
        if self._running:
            raise RuntimeError("This event loop is already running")
        if asyncio._get_running_loop() is not None:
            raise RuntimeError("Cannot run the event loop while another loop is running")

    def _generator_begins(self, generator: AsyncGenerator[Any, Any]) -> None:
        self._generators.add(generator)
        self._generator_owners[id(generator)] = PROCESS.get(self.world)

    def _generator_ends(self, generator: AsyncGenerator[Any, Any]) -> None:
        """An asynchronous generator is collected unfinished: close it in its process."""
        process = self._generator_owners.pop(id(generator), self.world)
        if not process.is_dead and not self._closed:
            process.call_soon(process.run, generator.aclose())
