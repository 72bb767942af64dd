"""`Partition` and `BlockingPartition`: what a handler is given.

One object per call of a handler. Its methods reach the worker through `WorkerRequests`, which the
driver implements (`driver.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import weakref
from collections.abc import Callable, Coroutine, Iterator, Sequence
from types import CoroutineType
from typing import Any, Protocol

from coordinator.assignors import TopicPartition
from coordinator.client.errors import StaleMember
from coordinator.client.offsets import OffsetAndMetadata
from coordinator.client.transport.loop_thread import check_process, is_forked_from
from coordinator.client.validation import number_of, offset_of
from coordinator.client.worker.environment import Environment
from coordinator.client.worker.handlers import PartitionRevoked
from coordinator.client.worker.held_partition import HandlerCall, HeldPartition, Stage
from coordinator.client.worker.sql_offsets import at_once, offset_in


class WorkerRequests(Protocol):
    """Requests of partitions to their worker."""

    environment: Environment
    pid: int
    """Process in which the worker runs."""
    group_id: str

    async def commit(self, commits: Sequence[OneCommit], *, atomic: bool, manifest: bytes) -> None:
        """Commit, from the loop of the handlers."""

    def commit_blocking(
        self, commits: Sequence[OneCommit], *, atomic: bool, manifest: bytes
    ) -> None:
        """Commit, from another thread."""

    def lasts_until_ms(self, held: HeldPartition) -> int:
        """Time at which a holding ends unless the coordinator answers; from any thread."""

    def report(self, call: HandlerCall, subject: str, offset: int = -1) -> None:
        """Pass `alive`, `log_end`, `done` or a `forgotten` await on, from any thread."""

    async def until_may_begin(self, call: HandlerCall) -> None:
        """Wait until new work may be begun, from the loop of the handlers."""

    def until_may_begin_blocking(self, call: HandlerCall) -> None:
        """Do the same, from another thread."""

    def wait_revoking(self, held: HeldPartition, timeout_s: float | None) -> bool:
        """Block until the partition is being revoked, or for so long."""


class OneCommit:
    """One partition of a commit. Raises TypeError if the caller wrote no offset or no text."""

    __slots__ = ("call", "expected", "metadata", "offset")

    def __init__(self, call: HandlerCall, offset: int, metadata: str, expected: int | None) -> None:
        key, example = call.held.key, f"p.commit({max(0, call.held.committed) + 1})"
        self.offset = number_of(f"the offset of {key}", offset, example)
        offset_of(key, OffsetAndMetadata(self.offset, metadata))
        if expected is not None:
            example = f"p.commit(..., expected={call.held.committed})"
            expected = number_of(f"the expected offset of {key}", expected, example)
        self.call, self.metadata, self.expected = call, metadata, expected


async def _nothing() -> None:
    """Coroutine of a method that has acted already; awaited like those that wait."""


class Revocation:
    """State of a revocation. May be read from any thread."""

    __slots__ = ("_held", "_set", "_worker", "deadline_ms")

    def __init__(self, held: HeldPartition, worker: WorkerRequests) -> None:
        self._held, self._worker = held, worker
        self._set = held.is_revoking
        self.deadline_ms = held.ends_ms if held.is_revoking else None
        """Epoch milliseconds at which the partition is lost; None: it is not being revoked."""

    def is_set(self) -> bool:
        """True once the partition is to be given back, and when its holding has ended."""
        return self._set or self._held.ends_ms == 0

    @property
    def deadline(self) -> float | None:
        """Seconds until the partition is lost, on the clock of the running loop and of
        `time.monotonic`; None: it is not being revoked."""
        if self.deadline_ms is None:
            return None
        return self._clock_s() + (self.deadline_ms - self._worker.environment.now_ms()) / 1000

    def _clock_s(self) -> float:
        raise NotImplementedError

    def set(self, deadline_ms: int) -> None:
        """Set it; called by the worker."""
        self.deadline_ms = deadline_ms
        self._set = True

    def __repr__(self) -> str:
        return f"<revoking: {'set' if self.is_set() else 'not set'}>"


class AsyncRevoking(Revocation):
    """An event: `await revoking.wait()`."""

    __slots__ = ("_event",)

    def __init__(self, held: HeldPartition, worker: WorkerRequests) -> None:
        super().__init__(held, worker)
        self._event = asyncio.Event()
        if held.is_revoking:
            self._event.set()

    async def wait(self) -> bool:
        """Wait until the partition is to be given back."""
        return await self._event.wait()

    def wake(self) -> None:
        """Wake those who wait; called on their loop."""
        self._event.set()

    def _clock_s(self) -> float:
        return asyncio.get_running_loop().time()


class BlockingRevoking(Revocation):
    """An event: `revoking.wait(timeout)`."""

    __slots__ = ()

    def wait(self, timeout: float | None = None) -> bool:
        """Block until the partition is to be given back, or for `timeout` seconds.

        Returns:
            False if the time passed.
        """
        return self.is_set() or self._worker.wait_revoking(self._held, timeout)

    def _clock_s(self) -> float:
        return time.monotonic()


def _end_of(offset: object) -> int:
    """A log end as a handler wrote it."""
    end = number_of("the log end", offset, "p.log_end(100)")
    if end < 0:
        raise ValueError(f"the log end is {end}; that of an empty log is 0")
    return end


class PartitionView:
    """Attributes of both kinds of partition. Every attribute may be read from any thread."""

    __slots__ = ("__weakref__", "_call", "_held", "_worker")

    def __init__(self, call: HandlerCall, worker: WorkerRequests) -> None:
        self._call, self._held, self._worker = call, call.held, worker

    @property
    def key(self) -> TopicPartition:
        """Topic and number."""
        return self._held.key

    @property
    def topic(self) -> str:
        """Name of the topic."""
        return self._held.key.topic

    @property
    def number(self) -> int:
        """Number of the partition in its topic, from 0 on."""
        return self._held.key.partition

    @property
    def position(self) -> int:
        """The next offset to read: the committed one, else where the `start` policy says."""
        return self._held.committed

    @property
    def stored(self) -> int:
        """The committed offset, to be `expected` by a commit; -1: none."""
        return self._held.stored

    @property
    def metadata(self) -> str:
        """Metadata stored with the committed offset; empty: none."""
        return self._held.metadata

    @property
    def token(self) -> int:
        """Number of the holding, higher than those of former ones: of this process, or in a
        session group of all processes, so that a sink can check it. 0 while it is prepared."""
        return self._held.token

    @property
    def valid(self) -> bool:
        """True while the partition is this process's, and this call of the handler counts.

        A process that stood still sees False as soon as its session may have ended, or 9/10 of its
        lease, before it has learnt so. False in a forked child.
        """
        worker, held = self._worker, self._held
        now_ms = worker.environment.now_ms()
        return (
            now_ms < min(held.ends_ms, worker.lasts_until_ms(held))
            and not self._call.is_cancelled
            and not is_forked_from(worker.pid)
        )

    def _offset_in(self, cursor: Any, offset: int, *, moves: bool) -> Coroutine[Any, Any, int]:
        self._check()
        key = self._worker.group_id, self.topic, self.number
        return offset_in(cursor, key, self._held.holding.token, offset, moves=moves)

    def _report(self, subject: str, offset: int = -1) -> None:
        if self._held.stage is not Stage.WARMING:
            self._check()
        self._worker.report(self._call, subject, offset)

    def _check(self) -> None:
        """Raise if the holding has ended, or the handler was told to end."""
        held = self._held
        check_process(self._worker.pid)
        if held.ends_ms == 0:
            raise StaleMember(f"nothing was sent, for {held.key} is not held any more: "
                              f"{held.ended_because}")  # fmt: skip
        if self._call.is_cancelled:
            raise StaleMember(
                f"nothing was sent, for the handler of {held.key} was told to end: "
                f"{self._call.verdict}"
            )

    def __repr__(self) -> str:
        ended = "" if self.valid else ", ended"
        return (
            f"{type(self).__name__}({self.key}, position {self.position}, "
            f"token {self.token}{ended})"
        )


class Partition(PartitionView):
    """A partition of an `async def` handler, for one call of it.

    Its methods are called on the loop of the handler, and awaited. Once the holding has ended, each
    raises StaleMember.
    """

    __slots__ = ("_revoking",)

    def __init__(self, call: HandlerCall, worker: WorkerRequests) -> None:
        super().__init__(call, worker)
        self._revoking = AsyncRevoking(call.held, worker)

    @property
    def revoking(self) -> AsyncRevoking:
        """Set when the partition is to be given back; `deadline_ms` says until when."""
        return self._revoking

    def commit(
        self, offset: int, metadata: str = "", expected: int | None = None
    ) -> Coroutine[Any, Any, None]:
        """Commit; returns when the offset is stored, but if the partition is being revoked.

        Then the handler ends here by cancellation, after the offset was stored; `drain="manual"`
        lets it go on until the deadline.

        Args:
            offset: the next offset to read.
            metadata: stored with it.
            expected: offset that must be the one stored now; -1: none.
        Raises:
            StaleMember: the holding has ended. RebalanceInProgress, OffsetMismatch, CommitFailed:
                it was refused. Unavailable: no coordinator answered for 30 s, with retries.
        """

        async def work() -> None:
            self._check()
            commit = OneCommit(self._call, offset, metadata, expected)
            await self._worker.commit([commit], atomic=False, manifest=b"")

        return to_be_awaited("Partition.commit", self._worker, self._call, work)

    async def position_in(self, cursor: Any) -> int:
        """Where to begin, as the table `partition_offset` (see `OFFSETS_TABLE`) of the cursor's
        database has it. From now on former owners are refused there.

        Args:
            cursor: of your transaction: of the DB-API, or an async one of the same form.
        Raises:
            StaleMember: a later owner has been there; roll back. RuntimeError: no session group.
        """
        return await self._offset_in(cursor, self.position, moves=False)

    async def commit_in(self, cursor: Any, offset: int) -> None:
        """Write the next offset into that table: it counts if the transaction does.

        `commit` after the transaction shows progress, and ends a handler that is to end. Raises as
        `position_in`.
        """
        to = OneCommit(self._call, offset, "", None).offset
        await self._offset_in(cursor, to, moves=True)

    def alive(self) -> Coroutine[Any, Any, None]:
        """Show progress without a commit, during long work."""
        return self._reporting("alive")

    def log_end(self, offset: int) -> Coroutine[Any, Any, None]:
        """Tell where the log ends: the offset after the last row."""
        return self._reporting("log_end", _end_of(offset))

    def done(self) -> Coroutine[Any, Any, None]:
        """Tell that there is nothing more to do: the handler is not called again once it returns,
        before the partition is handed out anew."""
        return self._reporting("done")

    def _reporting(self, subject: str, offset: int = -1) -> Coroutine[Any, Any, None]:
        self._report(subject, offset)
        awaited = _nothing()
        assert isinstance(awaited, CoroutineType)
        awaited.__qualname__ = f"Partition.{subject}"  # As a warning of a forgotten await names it.
        return awaited


def to_be_awaited(
    name: str,
    worker: WorkerRequests,
    call: HandlerCall,
    work: Callable[[], Coroutine[Any, Any, None]],
) -> Coroutine[Any, Any, None]:
    """Work that begins when it is awaited; the worker is notified if it never is.

    Args:
        name: of the method, as Python's own warning of a forgotten await names it.
    """

    async def begin() -> None:
        forgotten.detach()
        await work()

    awaited = begin()
    assert isinstance(awaited, CoroutineType)
    awaited.__qualname__ = name
    forgotten = weakref.finalize(awaited, worker.report, call, "forgotten")
    forgotten.atexit = False
    return awaited


class BlockingPartition(PartitionView):
    """A partition of a `def` handler, for one call of it.

    Its methods may be called from any thread but one that runs an event loop. Once the holding has
    ended, each raises PartitionRevoked, a BaseException.
    """

    __slots__ = ("_revoking",)

    def __init__(self, call: HandlerCall, worker: WorkerRequests) -> None:
        super().__init__(call, worker)
        self._revoking = BlockingRevoking(call.held, worker)

    @property
    def revoking(self) -> BlockingRevoking:
        """Set when the partition is to be given back; `deadline_ms` says until when."""
        return self._revoking

    def commit(self, offset: int, metadata: str = "", expected: int | None = None) -> None:
        """Commit; returns when the offset is stored, but if the partition is being revoked.

        Then it raises PartitionRevoked, after the offset was stored; `drain="manual"` lets the
        handler go on until the deadline.

        Args:
            offset: the next offset to read.
            metadata: stored with it.
            expected: offset that must be the one stored now; -1: none.
        Raises:
            PartitionRevoked: see above; or the holding has ended, and nothing was sent.
            RebalanceInProgress, OffsetMismatch, CommitFailed: it was refused. Unavailable: no
                coordinator answered for 30 s, with retries.
        """
        self._check()
        commit = OneCommit(self._call, offset, metadata, expected)
        self._worker.commit_blocking([commit], atomic=False, manifest=b"")

    def position_in(self, cursor: Any) -> int:
        """Where to begin, as `Partition.position_in`, with a cursor that blocks. Raises
        PartitionRevoked if another worker has had the partition since."""
        with _revoked_if_stale():
            return at_once(self._offset_in(cursor, self.position, moves=False))

    def commit_in(self, cursor: Any, offset: int) -> None:
        """Write the next offset, as `Partition.commit_in`. Raises as `position_in`."""
        to = OneCommit(self._call, offset, "", None).offset
        with _revoked_if_stale():
            at_once(self._offset_in(cursor, to, moves=True))

    def alive(self) -> None:
        """Show progress without a commit, during long work."""
        self._report("alive")

    def log_end(self, offset: int) -> None:
        """Tell where the log ends: the offset after the last row."""
        self._report("log_end", _end_of(offset))

    def done(self) -> None:
        """Tell that there is nothing more to do: the handler is not called again once it returns,
        before the partition is handed out anew."""
        self._report("done")

    def _check(self) -> None:
        with _revoked_if_stale():
            super()._check()


@contextlib.contextmanager
def _revoked_if_stale() -> Iterator[None]:
    try:
        yield
    except StaleMember as error:
        raise PartitionRevoked(str(error)) from error


AnyPartition = Partition | BlockingPartition
