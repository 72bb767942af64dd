"""Calls of handlers and hooks: as tasks, or in threads; and the watch of the loop of tasks."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from coordinator.client.errors import StaleMember
from coordinator.client.transport.interrupts import EndNow
from coordinator.client.worker.handlers import (
    FORMS,
    CallKind,
    Function,
    HandlerCancelled,
    Handlers,
    PartitionRevoked,
    refuse_coroutine,
)
from coordinator.client.worker.held_partition import HandlerCall, HeldPartition
from coordinator.client.worker.partition import (
    AnyPartition,
    BlockingPartition,
    OneCommit,
    Partition,
    WorkerRequests,
)

PROBE_S = 0.5
"""Time between two probes of the handlers' loop."""
BLOCKED_S = 2.0
"""Time without an answer of the loop after which it counts as blocked."""
STACK_FRAMES = 12
"""Innermost frames of a stack that a warning shows."""


class CallOwner(WorkerRequests, Protocol):
    """Receiver of the results of calls, called on any thread."""

    is_over: bool
    """True if handlers have no time left: none starts any more, and an end is no failure."""

    def ended(self, call: HandlerCall, error: BaseException | None) -> None:
        """A call has ended; `error`: what it raised."""

    def stop(self, reason: str, grace_ms: int) -> None:
        """Have the handlers finish, then leave."""


class HandlerExecutor:
    """Calls that run, and their partitions. Called on the protocol's loop unless said.

    Args:
        loop: where `async def` functions run.
    """

    def __init__(
        self,
        owner: CallOwner,
        handlers: Handlers,
        group_id: str,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._owner, self._handlers, self._group_id = owner, handlers, group_id
        self._loop = loop
        # Handlers have the contextvars of whoever started the worker, not those of the protocol.
        self._context = contextvars.copy_context()
        self._partitions: dict[HandlerCall, AnyPartition] = {}
        self._tasks: dict[HandlerCall, asyncio.Task[Any]] = {}
        self._threads: dict[HandlerCall, threading.Thread] = {}

    def start(self, call: HandlerCall) -> None:
        """Make a call, and report its end to the owner."""
        key = call.held.key
        call.name = f"{self._group_id} {key} {call.kind}"
        function: Function | None = call.held.handler
        if call.kind is not CallKind.HANDLER:
            function = self._handlers.hook(call.kind)
        assert function is not None
        try:
            if call.is_async:
                self._loop.call_soon_threadsafe(
                    self._start_task, call, function, context=self._context.copy()
                )
            else:
                partition = self._partitions[call] = BlockingPartition(call, self._owner)
                work = partial(self._in_thread, call, function, partition)
                self._threads[call] = self._owner.environment.start_thread(work, call.name)
        except RuntimeError as error:  # The loop is closed, or there are too many threads.
            self._end(call, error)

    def forget(self, call: HandlerCall) -> None:
        """Drop what is kept of a call that has ended."""
        self._partitions.pop(call, None)
        self._tasks.pop(call, None)
        self._threads.pop(call, None)

    def notify_revoking(self, held: HeldPartition) -> None:
        """Set the event of a held partition, for each of its calls."""
        for call in held.calls:
            partition = self._partitions.get(call)
            if partition is not None:
                self._set(partition, held)

    def _set(self, partition: AnyPartition, held: HeldPartition) -> None:
        partition.revoking.set(held.ends_ms)
        if isinstance(partition, Partition):
            self._on_loop(partition.revoking.wake)

    def cancel(self, call: HandlerCall) -> None:
        """Cancel a coroutine; a thread learns of it with its next call."""
        if call.is_async:
            self._on_loop(self._cancel_task, call)

    def stack_of(self, call: HandlerCall) -> str:
        """Current stack of a call, as lines that follow a log line; empty if it is not known."""
        task = self._tasks.get(call)
        if task is not None:
            return stack_of_coroutine(task.get_coro())
        thread = self._threads.get(call)
        return stack_of_thread(thread.ident) if thread is not None else ""

    def current_on_loop(self) -> str:
        """Name of the call that executes on the handlers' loop now."""
        task = asyncio.current_task(self._loop)
        for call, other in list(self._tasks.items()):
            if other is task:
                return f"the {call.kind} of {call.held.key}"
        return "another task" if task is None else f"task {task.get_name()!r}"

    def end_if_revoked(self, commits: Sequence[OneCommit]) -> None:
        """End the handlers of revoked partitions, after a commit was stored; on their thread.

        Raises:
            asyncio.CancelledError, PartitionRevoked: the caller is to end.
        """
        revoked = [
            commit.call for commit in commits
            if commit.call.held.is_revoking and commit.call.held.handler.drain == "commit"
            and commit.call.kind is CallKind.HANDLER
        ]  # fmt: skip
        if not revoked:
            return
        if not revoked[0].is_async:
            raise PartitionRevoked(f"the offset is stored; {revoked[0].held.key} is being revoked")
        for call in revoked:
            self._cancel_task(call)
        raise asyncio.CancelledError(
            f"the offset is stored; {revoked[0].held.key} is being revoked"
        )

    # --- On the handlers' loop ---

    def _start_task(self, call: HandlerCall, function: Function) -> None:
        partition = self._partitions[call] = Partition(call, self._owner)
        task = self._loop.create_task(self._in_task(call, function, partition), name=call.name)
        self._tasks[call] = task
        if call.is_cancelled:
            task.cancel()
        task.add_done_callback(lambda task: self._task_ended(call, task))

    async def _in_task(self, call: HandlerCall, function: Function, partition: Partition) -> None:
        if not self._owner.is_over:
            await function.call(partition)

    def _task_ended(self, call: HandlerCall, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            if self._loop_ends():
                self._owner.stop("the event loop of its handlers ends", 0)
            is_expected = call.is_cancelled or call.held.is_revoking or call.held.has_ended
            is_expected = is_expected or self._owner.is_over
            self._end(
                call, None if is_expected else HandlerCancelled("it was cancelled by its own code")
            )
        else:
            self._end(call, task.exception())

    def _loop_ends(self) -> bool:
        """True if all tasks of the loop are cancelled, as `asyncio.run` does once it is over."""
        return all(task.cancelling() for task in asyncio.all_tasks(self._loop))

    def _cancel_task(self, call: HandlerCall) -> None:
        task = self._tasks.get(call)
        if task is not None:
            task.cancel(f"{call.held.key} is not held any more")

    def _on_loop(self, callback: Any, *args: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:
            return  # The loop is closed, and its tasks with it.

    # --- In a thread ---

    def _in_thread(
        self, call: HandlerCall, function: Function, partition: BlockingPartition
    ) -> None:
        error: BaseException | None = None
        try:
            result = function.call(partition)
            refuse_coroutine(
                result,
                f"{getattr(function.call, '__qualname__', function.call)} returned a coroutine "
                f"that nobody awaits: declare it `async def`; {FORMS}",
            )
        except PartitionRevoked:
            pass
        except BaseException as raised:  # noqa: BLE001  # The error policy decides.
            error = raised
        self._end(call, error)

    # --- Inside ---

    def _end(self, call: HandlerCall, error: BaseException | None) -> None:
        """Report the end of a call, without errors caused by the end of its holding."""
        held = call.held
        is_expected = call.is_cancelled or held.has_ended
        if isinstance(error, PartitionRevoked | EndNow) or (
            is_expected and isinstance(error, StaleMember)
        ):
            error = None
        self._owner.ended(call, error)


def stack_of_coroutine(coroutine: Any) -> str:  # Any: it may await any awaitable.
    """Frames of a coroutine that is suspended, the innermost last, as `stack_of_thread`."""
    lines: list[str] = []
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        lines += traceback.format_stack(frame, limit=1)
        coroutine = coroutine.cr_await
    return "\n" + "".join(lines[-STACK_FRAMES:]).rstrip() if lines else ""


def stack_of_thread(ident: int | None) -> str:
    """Innermost frames of a thread, as lines that follow a log line; empty if it has ended."""
    frame = sys._current_frames().get(ident or 0)
    if frame is None:
        return ""
    return "\n" + "".join(traceback.format_stack(frame)[-STACK_FRAMES:]).rstrip()


class LoopWatch:
    """Watch of one loop, from another one.

    Args:
        log: logs a line at a level.
        blocked: called once each time that the loop is found blocked.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        executor: HandlerExecutor,
        log: Callable[[int, str], None],
        blocked: Callable[[], object],
    ) -> None:
        self._loop, self._executor, self._log, self._blocked = loop, executor, log, blocked
        self._thread_id = threading.get_ident()
        self._is_out = self._is_reported = False
        self._asked_at = 0.0
        self.blocked_by = ""
        """Task whose turn it is on the loop, if it is blocked; else empty."""

    async def run(self) -> None:
        """Probe the loop until it is closed."""
        while True:
            if not self._is_out:
                self._is_out, self._asked_at = True, time.monotonic()
                try:
                    self._loop.call_soon_threadsafe(self._answer)
                except RuntimeError:
                    return  # It is closed.
            await asyncio.sleep(PROBE_S)
            self._check()

    def _check(self) -> None:
        waited_s = time.monotonic() - self._asked_at
        is_blocked = self._is_out and waited_s >= BLOCKED_S
        self.blocked_by = self._executor.current_on_loop() if is_blocked else ""
        if is_blocked and not self._is_reported:
            self._is_reported = True
            self._blocked()
            self._log(
                logging.WARNING,
                f"the event loop of the handlers has been blocked for {waited_s:.1f} s by "
                f"{self.blocked_by}: its other handlers stand still; call what blocks "
                f"with asyncio.to_thread{stack_of_thread(self._thread_id)}",
            )
        elif self._is_reported and not self._is_out:
            self._is_reported = False
            self._log(logging.INFO, "the event loop of the handlers runs again")

    def _answer(self) -> None:
        self._thread_id = threading.get_ident()
        self._is_out = False
