"""Runs of handlers and hooks: as tasks on the caller's loop, or in threads."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
import traceback
from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

from coordinator.client.errors import StaleMember
from coordinator.client.transport.interrupts import EndNow
from coordinator.client.worker.errors import HandlerCancelled, PartitionRevoked
from coordinator.client.worker.handlers import (
    FORMS,
    Function,
    Handlers,
    RunKind,
    refuse_coroutine,
)
from coordinator.client.worker.partition import (
    AnyPartition,
    BlockingPartition,
    Calls,
    OneCommit,
    Partition,
)
from coordinator.client.worker.scope import Run, Scope

STACK_FRAMES = 12
"""Innermost frames of a stack that a warning shows."""


class RunsOwner(Calls, Protocol):
    """Receiver of the results of runs, called on any thread."""

    is_over: bool
    """True if handlers have no time left: none starts any more, and an end is no failure."""

    def ended(self, run: Run, error: BaseException | None) -> None:
        """A run has ended; `error`: what it raised."""

    def stop(self, reason: str, grace_ms: int) -> None:
        """Have the handlers finish, then leave."""


class Runs:
    """Functions that run, and their partitions. Called on the protocol's loop unless said.

    Args:
        loop: where `async def` functions run.
    """

    def __init__(
        self,
        owner: RunsOwner,
        handlers: Handlers,
        group_id: str,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._owner, self._handlers, self._group_id = owner, handlers, group_id
        self._loop = loop
        # Handlers have the contextvars of whoever started the worker, not those of the protocol.
        self._context = contextvars.copy_context()
        self._partitions: dict[Run, AnyPartition] = {}
        self._tasks: dict[Run, asyncio.Task[Any]] = {}
        self._threads: dict[Run, threading.Thread] = {}

    def start(self, run: Run) -> None:
        """Call the function of a run, and report its end to the owner."""
        key = run.scope.key
        run.name = f"{self._group_id} {key} {run.kind}"
        function: Function | None = run.scope.handler
        if run.kind is not RunKind.HANDLER:
            function = self._handlers.hook(run.kind)
        assert function is not None
        try:
            if run.is_async:
                self._loop.call_soon_threadsafe(
                    self._start_task, run, function, context=self._context.copy()
                )
            else:
                partition = self._partitions[run] = BlockingPartition(run, self._owner)
                work = partial(self._in_thread, run, function, partition)
                self._threads[run] = self._owner.environment.start_thread(work, run.name)
        except RuntimeError as error:  # The loop is closed, or there are too many threads.
            self._end(run, error)

    def forget(self, run: Run) -> None:
        """Drop what is kept of a run that has ended."""
        self._partitions.pop(run, None)
        self._tasks.pop(run, None)
        self._threads.pop(run, None)

    def notify_revoking(self, scope: Scope) -> None:
        """Set the event of a scope, for each of its runs."""
        for run in scope.runs:
            partition = self._partitions.get(run)
            if partition is not None:
                self._set(partition, scope)

    def _set(self, partition: AnyPartition, scope: Scope) -> None:
        partition.revoking.set(scope.ends_ms)
        if isinstance(partition, Partition):
            self._on_loop(partition.revoking.wake)

    def cancel(self, run: Run) -> None:
        """Cancel a coroutine; a thread hears of it with its next call."""
        if run.is_async:
            self._on_loop(self._cancel_task, run)

    def stack_of(self, run: Run) -> str:
        """Current stack of a run, as lines that follow a log line; empty if it is not known."""
        task = self._tasks.get(run)
        if task is not None:
            return stack_of_coroutine(task.get_coro())
        thread = self._threads.get(run)
        return stack_of_thread(thread.ident) if thread is not None else ""

    def current_on_loop(self) -> str:
        """Name of the run that executes on the handlers' loop now."""
        task = asyncio.current_task(self._loop)
        for run, other in list(self._tasks.items()):
            if other is task:
                return f"the {run.kind} of {run.scope.key}"
        return "another task" if task is None else f"task {task.get_name()!r}"

    def end_if_revoked(self, commits: Sequence[OneCommit]) -> None:
        """End the handlers of revoked partitions, after a commit was stored; on their thread.

        Raises:
            asyncio.CancelledError, PartitionRevoked: the caller is to end.
        """
        revoked = [
            commit.run for commit in commits
            if commit.run.scope.is_revoking and commit.run.scope.handler.drain == "commit"
            and commit.run.kind is RunKind.HANDLER
        ]  # fmt: skip
        if not revoked:
            return
        if not revoked[0].is_async:
            raise PartitionRevoked(f"the offset is stored; {revoked[0].scope.key} is being revoked")
        for run in revoked:
            self._cancel_task(run)
        raise asyncio.CancelledError(
            f"the offset is stored; {revoked[0].scope.key} is being revoked"
        )

    # --- On the handlers' loop ---

    def _start_task(self, run: Run, function: Function) -> None:
        partition = self._partitions[run] = Partition(run, self._owner)
        task = self._loop.create_task(self._in_task(run, function, partition), name=run.name)
        self._tasks[run] = task
        if run.is_cancelled:
            task.cancel()
        task.add_done_callback(lambda task: self._task_ended(run, task))

    async def _in_task(self, run: Run, function: Function, partition: Partition) -> None:
        if not self._owner.is_over:
            await function.call(partition)

    def _task_ended(self, run: Run, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            if self._loop_ends():
                self._owner.stop("the event loop of its handlers ends", 0)
            is_expected = run.is_cancelled or run.scope.is_revoking or run.scope.has_ended
            is_expected = is_expected or self._owner.is_over
            self._end(
                run, None if is_expected else HandlerCancelled("it was cancelled by its own code")
            )
        else:
            self._end(run, task.exception())

    def _loop_ends(self) -> bool:
        """True if all tasks of the loop are cancelled, as `asyncio.run` does once it is over."""
        return all(task.cancelling() for task in asyncio.all_tasks(self._loop))

    def _cancel_task(self, run: Run) -> None:
        task = self._tasks.get(run)
        if task is not None:
            task.cancel(f"{run.scope.key} is not held any more")

    def _on_loop(self, callback: Any, *args: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:
            return  # The loop is closed, and its tasks with it.

    # --- In a thread ---

    def _in_thread(self, run: Run, function: Function, partition: BlockingPartition) -> None:
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
        self._end(run, error)

    # --- Inside ---

    def _end(self, run: Run, error: BaseException | None) -> None:
        """Report the end of a run, without errors caused by the end of its holding."""
        scope = run.scope
        is_expected = run.is_cancelled or scope.has_ended
        if isinstance(error, PartitionRevoked | EndNow) or (
            is_expected and isinstance(error, StaleMember)
        ):
            error = None
        self._owner.ended(run, error)


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
