"""Real threads beside a loop on virtual time.

A thread is *running* from its start to its end, but for the time that it waits for the library
(`wait_for`). While one runs, time stands still: the loop waits, in real time, until none does. What
threads ask of the loop (`post`) is taken up at once, at the same virtual moment, so a thread that
holds a lock while it waits for a commit stops nobody for good.

The loop cannot tell a thread that computes from one that hangs. After `SAID_AFTER_S` it logs where
the threads are, and after the patience that it was given it raises `ThreadHangs`.
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
import sys
import threading
import time
import traceback
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, TypeVar

from coordinator.client.transport.process_environment import copy_outcome
from coordinator.testing.engine.handles import SimulatedHandle

T = TypeVar("T")

LOGGER = logging.getLogger(__name__)
SAID_AFTER_S: Final = 5.0
PATIENCE_S: Final = 60.0
LAST_PATIENCE_S: Final = 1.0
FRAMES_SHOWN: Final = 4


class ThreadHangs(RuntimeError):
    """A thread has neither ended nor called the library for a long real time."""


class TestEnded(SystemExit):
    """Raised in a thread that still waits for the library, or calls it, when its test has ended.

    As any `SystemExit` it ends a thread without a traceback, and no `except Exception` stops it.
    """

    __test__ = False  # No class of tests, whatever its name begins with.


class Threads:
    """The threads of one loop.

    Args:
        patience_s: real seconds that a thread may run without a call of the library.
    """

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self.patience_s = patience_s
        self._changed = threading.Condition()
        # Dicts keep their order; sets do not.
        self._running: dict[threading.Thread, None] = {}
        self._waiting: dict[threading.Thread, Future[Any]] = {}  # Any: results of any call.
        self._started: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
        self._posted: deque[SimulatedHandle] = deque()
        self._hangs = False
        self.has_ended = False
        """True once `end` was called."""

    # --- The loop's side ---

    @property
    def are_running(self) -> bool:
        """True if a thread runs, or has asked for something."""
        return bool(self._running or self._posted)

    def make(
        self, work: Callable[[], None], name: str, context: contextvars.Context
    ) -> threading.Thread:
        """Make a thread for `start`, which does not keep the interpreter from exiting."""
        return threading.Thread(target=self._run, args=(work, context), name=name, daemon=True)

    def start(self, thread: threading.Thread) -> None:
        """Start a thread; it runs from now on."""
        with self._changed:
            self._started.add(thread)
            self._running[thread] = None
        thread.start()

    def take_posted(self) -> list[SimulatedHandle]:
        """Take what threads have asked for; waits while there is nothing, and one of them runs.

        Raises:
            ThreadHangs: none of them has ended or called the library for too long.
        """
        began_s, is_said = time.monotonic(), False
        with self._changed:
            while self._running and not self._posted:
                self._changed.wait(min(SAID_AFTER_S, self.patience_s))
                if self._posted or not self._running:
                    break
                waited_s = time.monotonic() - began_s
                if waited_s >= self.patience_s:
                    self._hangs = True
                    raise ThreadHangs(self._describe(waited_s))
                if waited_s >= SAID_AFTER_S and not is_said:
                    is_said = True
                    LOGGER.warning("%s", self._describe(waited_s))
            posted = list(self._posted)
            self._posted.clear()
            return posted

    def end(self) -> list[SimulatedHandle]:
        """Raise `TestEnded` in the threads that wait for the library, and wait for their end.

        Returns:
            What they have asked for last, which nobody carries out any more.
        A thread that hangs, of which the test knows already, is soon left to itself.

        Raises:
            ThreadHangs: one of them does not end.
        """
        self.has_ended = True
        posted: list[SimulatedHandle] = []
        is_known = self._hangs
        if is_known:
            self.patience_s = min(self.patience_s, LAST_PATIENCE_S)
        while self._waiting or self.are_running:
            for thread in list(self._waiting):
                self.interrupt(thread, TestEnded())
            try:
                posted += self.take_posted()
            except ThreadHangs:
                if not is_known:
                    raise
                break
        return posted

    def interrupt(self, thread: threading.Thread, error: BaseException) -> bool:
        """Raise an error in a thread that waits for the library; False: it does not wait."""
        waiting = self._waiting.get(thread)
        return waiting is not None and self._answer(
            thread, waiting, partial(waiting.set_exception, error)
        )

    # --- The threads' side ---

    def post(self, handle: SimulatedHandle) -> None:
        """Have the loop run something. May be called from any thread."""
        with self._changed:
            self._posted.append(handle)
            self._changed.notify_all()

    def wait_for(self, future: Future[T]) -> T:
        """Wait for the library: `future.result()`, while time may move on.

        Raises:
            TestEnded: the test has ended meanwhile.
        """
        if self.has_ended:
            future.cancel()
            raise TestEnded
        thread = threading.current_thread()
        # Another future: `future` belongs to the loop, and an interruption must not end it.
        waiting: Future[T] = Future()
        with self._changed:
            self._waiting[thread] = waiting
            self._running.pop(thread, None)
            self._changed.notify_all()
        future.add_done_callback(
            lambda _: self._answer(thread, waiting, partial(copy_outcome, future, waiting))
        )
        try:
            return waiting.result()
        except BaseException:
            future.cancel()
            raise

    # --- Inside ---

    def _answer(
        self, thread: threading.Thread, waiting: Future[T], settle: Callable[[], None]
    ) -> bool:
        """Let a thread go on, once; False: it has gone on already."""
        with self._changed:
            if self._waiting.get(thread) is not waiting:
                return False
            del self._waiting[thread]
            # It counts as running before it does, or time could move on in between.
            if thread in self._started:
                self._running[thread] = None
        settle()
        return True

    def _run(self, work: Callable[[], None], context: contextvars.Context) -> None:
        try:
            with contextlib.suppress(TestEnded):
                context.run(work)
        finally:
            with self._changed:
                self._running.pop(threading.current_thread(), None)
                self._changed.notify_all()

    def _describe(self, waited_s: float) -> str:
        frames = sys._current_frames()
        subject = (
            f"virtual time stands still since {waited_s:.0f} s: a thread of a handler has neither "
            "returned nor called the library (time.sleep, locks and I/O are real there)"
        )
        lines = [subject]
        for thread in self._running:
            lines.append(f"thread {thread.name}, innermost call last:")
            frame = frames.get(thread.ident or 0)
            stack = traceback.format_stack(frame)[-FRAMES_SHOWN:] if frame is not None else []
            lines += [line.rstrip() for line in stack]
        return "\n".join(lines)
