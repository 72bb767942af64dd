"""The loop of a test on virtual time: a `SimulatedLoop` beside which real threads may run.

Time moves only when nothing is ready and no thread of a handler runs (`threads.py`).
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
import warnings
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar, TypeVarTuple, Unpack

from coordinator.testing.engine.loop import NS_PER_S, SimulatedLoop
from coordinator.testing.engine.reports import describe_pending
from coordinator.testing.threads import TestEnded, ThreadHangs, Threads

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

WAIT_MAX_S: Final = 3_600
"""Virtual seconds that a test may wait for something else than `advance`; heartbeats never end."""
WAIT_MAX_NS: Final = WAIT_MAX_S * NS_PER_S


class WaitsForever(RuntimeError):
    """A test awaits something that nothing on its loop brings about."""


class NotOnVirtualTime(NotImplementedError):
    """Code on virtual time asks for a socket, a pipe or a process."""


class VirtualLoop(SimulatedLoop):
    """See the top of this file."""

    def __init__(self) -> None:
        super().__init__()
        self.threads = Threads()
        self.refused: list[NotOnVirtualTime] = []
        """Errors of calls that asked for something outside, even if their caller hid them."""
        self._passing: dict[asyncio.Future[None], None] = {}
        self._settling = 0
        self._ends_ns = WAIT_MAX_NS

    def call_soon_threadsafe(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Run a callback at this virtual moment. May be called from any thread."""
        if self.is_current():
            return self.call_soon(callback, *args, context=context)
        handle = self._handle(callback, args, context)
        self.threads.post(handle)
        return handle

    def now_s(self) -> float:
        """Virtual seconds since the loop was made."""
        return self.true_ns / NS_PER_S

    def is_current(self) -> bool:
        """True if the calling thread is the loop's."""
        return threading.get_ident() == self._thread

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine at this virtual moment, and have the calling thread wait for its result.

        Raises:
            TestEnded: the test has ended, or does so meanwhile.
        """
        if self.threads.has_ended:
            work.close()
            raise TestEnded
        return self.threads.wait_for(asyncio.run_coroutine_threadsafe(work, self))

    def refusal(self, reason: str) -> NotImplementedError:
        error = NotOnVirtualTime(
            f"a handler on virtual time has no {reason}, or test it with the fixture "
            "`coordinator_server`, in real time"
        )
        if reason != "signals":  # Programs try those, and do without.
            self.refused.append(error)
        return error

    async def pass_time(self, seconds: float) -> None:
        """Let time pass, until everything of the last moment has happened too."""
        self._ends_ns = max(self._ends_ns, self.true_ns + round(seconds * NS_PER_S) + WAIT_MAX_NS)
        arrived = self.create_future()
        self._passing[arrived] = None
        timer = self.world.call_later(seconds, _arrive, arrived)
        try:
            await arrived
        finally:
            timer.cancel()
            del self._passing[arrived]
        await self._run_until_idle()

    async def _run_until_idle(self) -> None:
        """Wait until everything of this virtual moment has happened."""
        self._settling += 1
        try:
            while self._has_more_now():  # noqa: ASYNC110  # No event says that there is no more.
                await asyncio.sleep(0)
        finally:
            self._settling -= 1

    def _has_more_now(self) -> bool:
        # Others that settle are ready again and again.
        if len(self._ready) >= self._settling or self._is_timer_due():
            return True
        if self.threads.are_running:
            self._ready.extend(self.threads.take_posted())
            return True
        return False

    def _is_timer_due(self) -> bool:
        next_ns = self.timers.next_ns()
        return next_ns is not None and next_ns <= self.true_ns

    def _jump(self) -> None:
        if self.threads.are_running:
            try:
                self._ready.extend(self.threads.take_posted())
            except ThreadHangs as error:
                waiting = next((one for one in self._passing if not one.done()), None)
                if waiting is None:
                    raise
                waiting.set_exception(error)  # It comes out of the test's `advance`.
            return
        super()._jump()
        if self.true_ns > self._ends_ns:
            pending = [task for task in self._tasks() if task.process is self.world]
            raise WaitsForever(
                f"the test waits since {WAIT_MAX_S} s of virtual time for what does not happen; "
                + describe_pending(self.true_ns, [], pending)
            )

    def close(self) -> None:
        with warnings.catch_warnings():
            # Nobody awaits what threads ask for while they end.
            warnings.simplefilter("ignore", RuntimeWarning)
            if not self._closed:
                self._ready.extend(self.threads.end())
            super().close()


def _arrive(arrived: asyncio.Future[None]) -> None:
    if not arrived.done():
        arrived.set_result(None)
