"""The environment of a member on virtual time: clock, connections, threads.

A process is two of the loop's: one for the library, one for the owner or the handlers, so that a
test can stop the one without the other. They share a machine: clock, host name, connections.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Self, TypeVar

import grpc

from coordinator.client.surroundings import SURROUNDINGS
from coordinator.dial import Credentials, Options
from coordinator.runtime.clock import AnchoredClock
from coordinator.simulate.channels import Addresses, SimulatedChannel, SimulatedCredentials
from coordinator.simulate.process import PROCESS, Process
from coordinator.testing.coordinator import ADDRESS
from coordinator.testing.loop import VirtualLoop
from coordinator.testing.threads import copy_outcome

T = TypeVar("T")


class VirtualCredentials(SimulatedCredentials):
    """Opens channels to the virtual coordinator, whatever address is asked for."""

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
        channel: Any = SimulatedChannel(self, ADDRESS)  # Any: it is a channel by its methods.
        self.channels.append(channel)
        return channel  # type: ignore[no-any-return]

    def break_off(self) -> None:
        """End all connections for the coordinator, as the system does when a process dies."""
        for channel in self.channels:
            channel.break_off()


class LibraryLoop:
    """The loop, as the owner of a member sees it: tasks put on it belong to the library."""

    def __init__(self, loop: VirtualLoop, process: Process) -> None:
        self._loop = loop
        self._process = process

    def call_soon_threadsafe(
        self,
        callback: Callable[..., object],
        *args: Any,  # Any: the callback's own.
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        return self._loop.call_soon_threadsafe(
            callback, *args, context=self._own(context) or self._process.context()
        )

    def create_task(
        self,
        coro: Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        return self._loop.create_task(
            coro, name=name, context=self._own(context) or self._process.context()
        )

    def __getattr__(self, name: str) -> Any:  # Any: the rest is the loop's own.
        return getattr(self._loop, name)

    def _own(self, context: contextvars.Context | None) -> contextvars.Context | None:
        if context is not None:
            context = context.copy()
            context.run(PROCESS.set, self._process)
        return context


class VirtualEnvironment:
    """Environment of one life of a process; the surroundings of what runs in it.

    Args:
        library, owner: processes of the loop, on one machine.
        name: of this life; it seeds what is drawn at random.
    """

    is_virtual = True

    def __init__(
        self,
        loop: VirtualLoop,
        library: Process,
        owner: Process,
        opener: VirtualCredentials,
        name: str,
    ) -> None:
        self.virtual_loop = loop
        self.library = library
        self.owner = owner
        self.opener = opener
        self.now_ms: Callable[[], int] = AnchoredClock(library.wall_ns, library.monotonic_ns).now_ms
        self.random = random.Random(name).random  # noqa: S311  # It has to be predictable.
        self.loop: Any = LibraryLoop(loop, library)  # Any: it is a loop by its methods.
        self.threads: list[threading.Thread] = []
        for process in {library, owner}:
            process.put(SURROUNDINGS, self)

    # --- Surroundings of members ---

    def credentials(self, told: Credentials) -> Credentials:
        """See `Surroundings`."""
        return self.opener

    def protocol_loop(self) -> Self:
        """See `Surroundings`."""
        return self

    def own(self, context: contextvars.Context) -> None:
        """See `Surroundings`."""
        context.run(PROCESS.set, self.library)

    def result_of(self, future: Future[T]) -> T:
        """Block the calling thread until the future is done, while time may move on."""
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

    def release(self) -> None:
        """Nothing: the loop is the test's."""

    # --- Threads ---

    def start_thread(self, work: Callable[[], None], name: str) -> threading.Thread:
        """Run `work` in a real thread; time stands still while it does not wait for the library."""
        thread = self.virtual_loop.threads.start(work, name, self.owner.context())
        self.threads.append(thread)
        return thread
