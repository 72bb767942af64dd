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
import heapq
import logging
import sys
import threading
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from inspect import iscoroutine
from types import CoroutineType
from typing import Any, Final, NoReturn, TypeVar, TypeVarTuple, Unpack

from coordinator.simulate.burial import bury
from coordinator.simulate.clock import MachineClock
from coordinator.simulate.process import PROCESS, Process

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

NS_PER_S: Final = 1_000_000_000
ROUNDS_AT_ONE_TIME_MAX: Final = 100_000
_CANCELLED_TIMERS_MIN: Final = 100  # Fewer are not worth removing.
_SHOWN_MAX: Final = 20


class Stuck(RuntimeError):
    """Something is awaited, and nothing is left that could bring it about."""


class Livelock(RuntimeError):
    """Callbacks keep following each other, and time does not move on."""


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
                self.loop.timer_cancelled()

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


def _refusal(reason: str) -> Any:
    def refuse(*_args: object, **_options: object) -> NoReturn:
        raise NotImplementedError(f"a simulated loop has no {reason}")

    return refuse


class SimulatedLoop(asyncio.AbstractEventLoop):
    """See the top of this file.

    Args:
        rounds_at_one_time_max: after so many rounds without time moving on, it is a livelock.
    """

    def __init__(self, *, rounds_at_one_time_max: int = ROUNDS_AT_ONE_TIME_MAX) -> None:
        self.true_ns = 0
        self.world = Process(self, "world", MachineClock())
        self._rounds_max = rounds_at_one_time_max
        self._rounds = 0  # Since time has moved on.
        self._ready: deque[SimulatedHandle] = deque()
        # The number keeps timers of the same moment in order.
        self._timers: list[tuple[int, int, SimulatedHandle]] = []
        self._cancelled_timers = 0
        self._numbers = 0
        self._processes: list[Process] = []
        self._generators: weakref.WeakSet[AsyncGenerator[Any, Any]] = weakref.WeakSet()
        # By id, since weak references are gone when a generator ends. Ids are used again, so
        # there are no more of them than generators at one time.
        self._generator_owners: dict[int, Process] = {}
        self._thread = threading.get_ident()
        self._running = self._stopping = self._closed = self._debug = False
        self._exception_handler: Callable[[Any, dict[str, Any]], object] | None = None

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
        self._set_timer(handle, clock.true_ns(when_ns))
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
        self._set_timer(handle, handle.process.clock.true_ns(when_ns))
        return handle

    def _set_timer(self, handle: SimulatedHandle, true_ns: int) -> None:
        handle.is_timer = True
        self._numbers += 1
        heapq.heappush(self._timers, (true_ns, self._numbers, handle))

    def timer_cancelled(self) -> None:
        """Count a cancelled timer, and remove such as soon as they are most; by handles."""
        self._cancelled_timers += 1
        if self._cancelled_timers > max(_CANCELLED_TIMERS_MIN, len(self._timers) // 2):
            self._timers = [timer for timer in self._timers if timer[2].callback is not None]
            heapq.heapify(self._timers)
            self._cancelled_timers = 0

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
        """As `call_soon`, and only from the loop's thread: another's order is not reproducible."""
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
        timers, now_ns = self._timers, self.true_ns
        while timers and timers[0][0] <= now_ns:
            handle = heapq.heappop(timers)[2]
            handle.is_timer = False
            if handle.callback is None:
                self._cancelled_timers -= 1
            else:
                ready.append(handle)
        self._rounds += 1
        if self._rounds > self._rounds_max:
            self._rounds = 0
            raise Livelock(
                f"{self._rounds_max} rounds at {self.time()} s, and time does not move on; "
                f"next to run: {', '.join(map(repr, list(ready)[:_SHOWN_MAX]))}"
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
        timers = self._timers
        while timers and (timers[0][2].callback is None or timers[0][2].process.is_dead):
            handle = heapq.heappop(timers)[2]
            handle.is_timer = False
            if handle.callback is None:
                self._cancelled_timers -= 1
            else:
                handle.process.hold(handle)
        if not timers:
            raise Stuck(self._describe_pending())
        if timers[0][0] > self.true_ns:
            self.true_ns = timers[0][0]
            self._rounds = 0

    def _describe_pending(self) -> str:
        pending = [task for task in self._tasks() if not task.process.is_dead]
        lines = [
            f"at {self.true_ns / NS_PER_S} s nothing is left to do, and still pending are:",
            *(f"  {process!r}" for process in self._processes if process.is_held),
            *(f"  {_describe_task(task)}" for task in pending[:_SHOWN_MAX]),
        ]
        if len(pending) > _SHOWN_MAX:
            lines.append(f"  and {len(pending) - _SHOWN_MAX} tasks more")
        return "\n".join(lines)

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
        return SimulatedTask(
            coro,
            loop=self,
            number=self._numbers,
            name=name,
            context=contextvars.copy_context() if context is None else context,
        )

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

    def tasks_of(self, process: Process) -> list[asyncio.Task[Any]]:
        """The unfinished tasks of a process, oldest first."""
        return [task for task in self._tasks() if task.process is process]

    def _tasks(self) -> list[SimulatedTask[Any]]:
        tasks = [task for task in asyncio.all_tasks(self) if isinstance(task, SimulatedTask)]
        return sorted(tasks, key=lambda task: task.number)

    # --- Errors -------------------------------------------------------------------------------

    def get_exception_handler(self) -> Any:
        return self._exception_handler

    def set_exception_handler(self, handler: Any) -> None:
        self._exception_handler = handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Log it as asyncio's own loops do, with the process that it happened in."""
        message = context.get("message") or "Unhandled exception in event loop"
        rest = [
            f"{name}: {context[name]!r}"
            for name in sorted(context)
            if name not in {"message", "exception"}
        ]
        logging.getLogger("asyncio").error(
            "\n".join([message, *rest]), exc_info=context.get("exception")
        )

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Report an error, unless it is what a dead process has left behind."""
        left = context.get("task") or context.get("future")
        process = getattr(left, "process", None)
        if process is not None and process.is_dead:
            return
        if self._exception_handler is None:
            self.default_exception_handler(context)
            return
        try:
            self._exception_handler(self, context)
        except Exception as error:  # noqa: BLE001 - as asyncio's loops do.
            self.default_exception_handler(
                {"message": "Unhandled error in exception handler", "exception": error}
            )

    def get_debug(self) -> bool:
        return self._debug

    def set_debug(self, enabled: bool) -> None:
        self._debug = enabled

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
        coroutines: list[CoroutineType[Any, Any, Any]] = []
        tasks = self._tasks()
        for task in tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            if iscoroutine(coroutine := task.get_coro()):
                coroutines.append(coroutine)
        handles = [timer[2] for timer in self._timers] + list(self._ready)
        for process in (self.world, *self._processes):
            process.is_dead = process.is_held = True
            handles += process.take_remains()
        for handle in handles:
            coroutines += filter(iscoroutine, handle.args)
        bury(coroutines)
        for handle in handles:
            handle.cancel()
        self._ready.clear()
        self._timers.clear()

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

    # --- What there is not --------------------------------------------------------------------

    _no_sockets = _refusal("sockets: give its processes a simulated network")
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


def _describe_task(task: SimulatedTask[Any]) -> str:
    """Name, process, and where the innermost coroutine waits."""
    waits: Any = task.get_coro()
    while iscoroutine(waits) and iscoroutine(waits.cr_await):
        waits = waits.cr_await
    frame = waits.cr_frame if iscoroutine(waits) else None
    place = f"{frame.f_code.co_qualname}, line {frame.f_lineno}" if frame else repr(waits)
    return f"{task.get_name()} of {task.process.name} at {place}"
