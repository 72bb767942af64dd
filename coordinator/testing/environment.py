"""The environment of a member on virtual time: clock, connections, threads.

A process is two of the loop's: one for the library, one for the owner or the handlers, so that a
test can stop the one without the other. They share a machine: clock, host name, connections.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Self, TypeVar

import grpc

from coordinator.client.transport.process_environment import ENVIRONMENT, copy_outcome
from coordinator.client.worker.environment import Environment
from coordinator.dial import Credentials, Options
from coordinator.runtime.clock import AnchoredClock
from coordinator.testing.coordinator import ADDRESS
from coordinator.testing.engine.channels import Addresses, SimulatedChannel, SimulatedCredentials
from coordinator.testing.engine.process import PROCESS, Process
from coordinator.testing.loop import VirtualLoop

T = TypeVar("T")


class VirtualCredentials(SimulatedCredentials):
    """Opens channels to the virtual coordinator, unless another server listens at the address."""

    channels: list[SimulatedChannel]

    @classmethod
    def at(cls, addresses: Addresses, process: Process, host: str, peer: str) -> Self:
        """Credentials of a process on a host, which the coordinator sees as `peer`."""
        made = cls.of(addresses, process, host, peer)
        object.__setattr__(made, "channels", [])  # The class above is frozen.
        return made

    def open(self, address: str, options: Options | None = None) -> grpc.Channel:
        raise RuntimeError(
            "blocking clients (GroupAdmin) cannot reach a virtual group: ask `group.owners()` and "
            "`group.committed()`, or use the fixture `coordinator_server`"
        )

    def open_aio(self, address: str, options: Options | None = None) -> grpc.aio.Channel:
        to = ADDRESS if self.addresses.server_at(address) is None else address
        channel: Any = SimulatedChannel(self, to)  # Any: it is a channel by its methods.
        self.channels.append(channel)
        return channel  # type: ignore[no-any-return]

    def break_off(self) -> None:
        """End all connections for the coordinator, as the system does when a process dies."""
        for channel in self.channels:
            channel.break_off()


class LibraryLoop:
    """The loop, as the owner of a member sees it: whatever is put on it belongs to the library."""

    def __init__(self, loop: VirtualLoop, process: Process) -> None:
        self._loop = loop
        self._process = process

    def __getattr__(self, name: str) -> Any:  # Any: a method of the loop.
        method = getattr(self._loop, name)
        return self._in_library(method) if name in PUTS else method

    def _in_library(self, put: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, context: contextvars.Context | None = None, **named: Any) -> Any:
            # A caller's contextvars hold, but for whom the work belongs to.
            own = (contextvars.copy_context() if context is None else context).copy()
            own.run(PROCESS.set, self._process)
            return put(*args, context=own, **named)

        return call


PUTS = ("call_soon_threadsafe", "call_soon", "call_later", "call_at", "create_task")


class VirtualEnvironment(Environment):
    """Environment of one life of a process, and of what runs in it.

    Args:
        library, owner: processes of the loop, on one machine.
        name: of this life; it seeds what is drawn at random.
        on_failure: told the name and the error of a handler that has failed.
    """

    is_virtual = True

    def __init__(
        self,
        loop: VirtualLoop,
        library: Process,
        owner: Process,
        opener: VirtualCredentials,
        name: str,
        on_failure: Callable[[str, BaseException], None],
    ) -> None:
        super().__init__()
        self.virtual_loop = loop
        self.library = library
        self.owner = owner
        self.opener = opener
        self._on_failure = on_failure
        self._clock = AnchoredClock(library.wall_ns, library.monotonic_ns)
        self._dice = random.Random(name)  # noqa: S311  # It has to be predictable.
        self.loop: Any = LibraryLoop(loop, library)  # Any: it is a loop by its methods.
        self.stop: Callable[[str], None] | None = None
        """Handler of SIGTERM: of the worker that `worker.run()` runs in a thread."""
        self.threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
        for process in {library, owner}:
            process.put(ENVIRONMENT, self)

    # --- ProcessEnvironment of members ---

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def credentials(self, credentials: Credentials) -> Credentials:
        """See `ProcessEnvironment`."""
        return self.opener

    def protocol_loop(self) -> Self:
        """See `ProcessEnvironment`."""
        return self

    def own(self, context: contextvars.Context) -> None:
        """See `ProcessEnvironment`."""
        context.run(PROCESS.set, self.library)

    def result_of(self, future: Future[T]) -> T:
        """See `ProtocolLoop`. Time may move on while the calling thread waits."""
        if self.virtual_loop.is_current():
            future.cancel()
            raise RuntimeError(
                "a blocking call on the thread of the loop would wait for itself: make it in a "
                "plain function, and start that: group.start(function)"
            )
        # By way of the owner: while it is paused, its threads do not go on.
        answer: Future[T] = Future()
        future.add_done_callback(
            lambda _: self.virtual_loop.call_soon_threadsafe(
                copy_outcome, future, answer, context=self.owner.context()
            )
        )
        try:
            return self.virtual_loop.threads.wait_for(answer)
        except BaseException:
            future.cancel()
            raise

    # --- Environment of workers ---

    def random(self) -> float:
        return self._dice.random()

    def acquire(self) -> asyncio.AbstractEventLoop:
        return self.loop  # type: ignore[no-any-return]

    def release(self) -> None:
        """Nothing: the loop is the test's."""

    def post(self, callback: Callable[..., object], *args: Any) -> bool:
        if self.library.is_dead or self.virtual_loop.is_closed():
            return False
        self.loop.call_soon_threadsafe(callback, *args)
        return True

    def start_thread(self, work: Callable[[], None], name: str) -> threading.Thread:
        threads = self.virtual_loop.threads
        thread = threads.make(work, name, self.owner.context())
        self.threads.add(thread)
        # Once the owner runs: at once, unless it is paused.
        self.owner.call_soon(threads.start, thread)
        return thread

    def runs(
        self,
        serve: Callable[[], Coroutine[Any, Any, None]],
        stop: Callable[[str, int | None], None],
    ) -> bool:
        served: Future[None] = Future()

        def begin() -> None:
            task = self.owner.run(serve())
            task.add_done_callback(lambda task: copy_outcome(task, served))

        self.virtual_loop.call_soon_threadsafe(begin, context=self.owner.context())
        self.stop = lambda reason: stop(reason, None)
        try:
            self.result_of(served)
        finally:
            self.stop = None
        return True

    def failed(self, name: str, error: BaseException) -> None:
        self._on_failure(name, error)
