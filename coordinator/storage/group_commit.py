"""Group commit: one thread that carries jobs out in batches, and answers each on its caller's loop.

Jobs that arrive during a commit share the next one, so the busier a log is, the more of them share
one sync of a disk, or one round trip to a server.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True, eq=False)
class QueuedJob:
    """A job and the future of its caller; `result` or `error` is its answer."""

    future: asyncio.Future[Any]
    job: Any
    result: Any = None
    error: Exception | None = None


class GroupCommit:
    """The thread of a log that writes.

    Args:
        commit: carries a batch out, in the thread, and sets the answer of each job; what it raises
            is the answer of all.
        rest: called in the thread after each batch (True), and each `idle_s` without one (False).
        end: called in the thread when all jobs are done.
        most: jobs in one batch.
    """

    def __init__(
        self,
        commit: Callable[[list[QueuedJob]], None],
        *,
        rest: Callable[[bool], None],
        end: Callable[[], None],
        idle_s: float,
        most: int = 1 << 30,
    ) -> None:
        self._commit = commit
        self._rest = rest
        self._end = end
        self._idle_s = idle_s
        self._most = most
        self._jobs: queue.SimpleQueue[QueuedJob | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="log-writer", daemon=True)
        self._thread.start()

    def submit(self, job: Any) -> asyncio.Future[Any]:
        """Have a job carried out; the future is done when what it wrote is durable."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._jobs.put(QueuedJob(future, job))
        return future

    async def close(self) -> None:
        """Finish all jobs."""
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)

    # --- The thread ---

    def _run(self) -> None:
        stopping = False
        while not stopping:
            batch: list[QueuedJob] = []
            try:
                queued = self._jobs.get(timeout=self._idle_s)
                while queued is not None:
                    batch.append(queued)
                    if len(batch) == self._most:
                        break
                    queued = self._jobs.get_nowait()
                stopping = queued is None
            except queue.Empty:
                pass
            if batch:
                try:
                    self._commit(batch)
                except Exception as error:  # noqa: BLE001  # No caller may wait for ever.
                    for queued in batch:
                        queued.error = error
                _deliver(batch)
            self._rest(bool(batch))
        self._end()


def _deliver(batch: list[QueuedJob]) -> None:
    """Answer all jobs in one turn of the loop."""
    # A log is used from one loop. If that is closed, no caller waits any more.
    with contextlib.suppress(RuntimeError):
        batch[0].future.get_loop().call_soon_threadsafe(_answer, batch)


def _answer(batch: list[QueuedJob]) -> None:
    for queued in batch:
        if queued.future.cancelled():
            continue
        if queued.error is None:
            queued.future.set_result(queued.result)
        else:
            queued.future.set_exception(queued.error)
