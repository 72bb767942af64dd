"""The queue of writes to the log: at most one append in flight, and the high watermark.

The end offset is the end of what the store has acknowledged. The high watermark is the end of
what has been acknowledged to callers: with acks=all the nodes in sync have it too; else the two are
the same.

Writes that arrive during an append make up the next entry, so entries grow with load and nothing
lingers. A write without records shares the entry, and the result, of the write before it; one that
only waits for earlier appends succeeds whatever their results.

A log that cannot be reached (UNAVAILABLE) has written nothing. The entry goes back into the queue
and is retried after a back-off, under the same sequence number and together with newer writes.
Each write is retried until its own time-out; one that times out between two attempts is certainly
not in the log, and is removed from the queue. So is one that is not to be retried, at the first
failure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from coordinator.core.sessions.holdings import size_of
from coordinator.core.values.commands import Command, HandleAgain, RefuseReplacement
from coordinator.core.values.effects import Write
from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.records import PartitionsGranted, Record
from coordinator.shard.inputs import Append, AppendFailed, AppendFailure
from coordinator.shard.waits import Wait, Waits
from timer.purgatory import Purgatory
from timer.task import TimerTask
from timer.timer import Timer

SHARD_KEY = "shard"
"""The only key of the purgatory: all writes of a shard wait for its high watermark."""

ENTRY_RECORDS = 4_000
"""Records after which an entry takes no further write: applying them takes one step of 20 ms. A
partition that is granted counts as a record."""

MAX_AMBIGUOUS_ATTEMPTS = 10
"""Attempts after which the shard is given up and loaded again, which shows what was written."""

BACKOFF_MS = 50
BACKOFF_MS_MAX = 500
"""Delay between attempts while the log is unreachable: doubled each time. A store that elects a
leader is back in about a second; a time-out of 5 s allows a dozen attempts."""

_FAILURES = {
    AppendFailure.UNAVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    AppendFailure.TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""Errors of refused writes. The other two failures, and writes that wait when a shard is given up,
give NOT_COORDINATOR. Source: Kafka `CoordinatorOperationExceptionHelper`."""


class DelayedProduce(Wait):
    """Holds a follow-up back until the records before it are durable, or refused.

    `required_offset` is the end of the entry that carries them, once it is formed.
    A time-out does not decide whether the records are written: their append goes on, unless the
    queue can still drop them.
    """

    __slots__ = (
        "_follow_up",
        "_queue",
        "_then",
        "error",
        "is_carrier",
        "is_retried",
        "records",
        "required_offset",
    )

    def __init__(self, write: Write, queue: WriteQueue) -> None:
        super().__init__(queue.waits)
        self.records = write.records
        self.is_carrier = bool(write.records)
        self.is_retried = write.is_retried
        self.required_offset: int | None = None
        self._then = write.then
        self._follow_up = write.follow_up
        # Error on a time-out; replaced by the result of the append.
        self.error = (
            ErrorCode.NOT_COORDINATOR
            if isinstance(write.then, HandleAgain)
            else ErrorCode.COORDINATOR_NOT_AVAILABLE
        )
        self._queue = queue

    @property
    def _only_waits(self) -> bool:
        """True if it waits for the end of earlier appends, whatever their results."""
        return isinstance(self._then, HandleAgain | RefuseReplacement)

    def try_complete(self) -> bool:
        if self.is_completed or self.required_offset is None:
            return False
        if self.required_offset > self._queue.high_watermark:
            return False
        if self._queue.are_enough() or self._only_waits:
            self.error = ErrorCode.NONE  # Else it is stored, on fewer nodes than `min_in_sync`.
        return self.force_complete()

    def fail(self, error: ErrorCode, *, is_final: bool = False) -> None:
        """Complete with `error`, because the append failed; no effect after a time-out.

        Args:
            is_final: the shard is given up, so that `error` also goes to operations that only wait.
        """
        if not self.is_completed:
            self.error = ErrorCode.NONE if self._only_waits and not is_final else error
            self.force_complete()

    def resolve(self, error: ErrorCode) -> None:
        """Post the follow-up with the result of the append.

        With NONE the records are durable. It may come after a time-out, and before the nodes in
        sync have the records.
        """
        follow_up, self._follow_up = self._follow_up, None
        if follow_up is not None:
            self._queue.post(replace(follow_up, error=error))

    def run(self) -> None:
        if not self.is_completed:
            self._queue.time_is_over(self)
        super().run()

    def on_complete(self) -> None:
        self._queue.post(replace(self._then, error=self.error))


class WriteQueue:
    """Turns writes into entries and answers of the log into follow-ups.

    Args:
        now_ms: the time of the step.
        apply: applies an acknowledged record; called in the order of the log.
        drop: called with each record that was refused.
        post: puts a follow-up on the shard's inner queue.
        are_enough: True if enough nodes are in sync to acknowledge a write.
        timeout_ms: longest wait of an answer for the log.
        waits: histogram of these waits.
    """

    def __init__(
        self,
        timer: Timer,
        *,
        now_ms: Callable[[], int],
        apply: Callable[[Record], None],
        drop: Callable[[Record], None],
        post: Callable[[Command], None],
        are_enough: Callable[[], bool],
        timeout_ms: int,
        waits: Waits,
    ) -> None:
        self._timer = timer
        self._now_ms = now_ms
        self.waits = waits
        self.purgatory: Purgatory[str] = Purgatory(timer)
        self.end_offset = 0
        """Log end offset: the store has everything before it."""
        self.high_watermark = 0
        """Offset before which all writes are acknowledged."""
        self.are_enough = are_enough
        self._apply = apply
        self._drop = drop
        self.post = post
        self._timeout_ms = timeout_ms
        self._sequence = 0
        self._queued: list[DelayedProduce] = []
        self._under_way: list[DelayedProduce] = []
        self._stored: list[DelayedProduce] = []  # In the store; not yet on all nodes in sync.
        self._append: Append | None = None
        self._to_emit: Append | None = None
        self._to_cut = 0  # Writes still to be sent in parts: together they were too large.
        self._part = 0  # Most writes in such an entry.
        self._cut = 0  # Writes in the entry in flight, if it is one of those.
        self._backoff = _Backoff()
        self._is_reached = True  # The log has answered the last attempt.
        self._closed: ErrorCode | None = None

    def start_at(self, sequence: int, offset: int) -> None:
        """Continue after the `sequence` entries and `offset` records that were loaded."""
        self._sequence = sequence
        self.end_offset = self.high_watermark = offset

    @property
    def pending(self) -> int:
        """Number of writes without a result yet."""
        return len(self._queued) + len(self._under_way) + len(self._stored)

    @property
    def is_available(self) -> bool:
        """False from a failed attempt to reach the log until it answers one, and while too few
        nodes are in sync."""
        return self._is_reached and self.are_enough()

    def add(self, write: Write, now_ms: int) -> None:
        """Queue a write; one without records completes at once if nothing is in flight."""
        operation = DelayedProduce(write, self)
        if self._closed is not None:
            self._refuse([operation], self._closed, is_final=True)
            return
        is_accepted = self.are_enough() if write.is_retried else self.is_available
        if write.records and not is_accepted:
            self._refuse([operation], ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        if not write.records and not self._queued:
            # It waits for the append in flight, if there is one.
            operation.required_offset = self._end_of_append()
            if self._append is not None:
                self._under_way.append(operation)
            elif operation.required_offset > self.high_watermark:
                self._stored.append(operation)
        else:
            self._queued.append(operation)
        deadline_ms = now_ms + self._timeout_ms
        if write.deadline_ms is not None:
            deadline_ms = min(deadline_ms, write.deadline_ms)
        self.purgatory.try_complete_else_watch(operation, (SHARD_KEY,), deadline_ms)

    def next_append(self) -> Append | None:
        """Return the append to start now: a new entry, or a retry; None if there is none."""
        if self._append is None and not self._backoff.is_pending:
            if self._backoff.attempts:
                self._drop_overdue()
                if not self._queued:
                    self._backoff.attempts = 0
            if self._queued:
                self._form_entry()
        append, self._to_emit = self._to_emit, None
        return append

    def appended(self, sequence: int) -> None:
        """Apply the records of an acknowledged entry; `advance` completes their operations."""
        append = self._append
        if append is None or append.sequence != sequence:
            return
        self._append = None
        self._backoff.attempts = 0
        self._is_reached = True
        operations, self._under_way = self._under_way, []
        self._stored += operations
        self._sequence = sequence
        for record in append.records:
            self._apply(record)
        self.end_offset = append.base_offset + len(append.records)
        for operation in operations:
            operation.resolve(ErrorCode.NONE)

    def advance(self, high_watermark: int) -> None:
        """Move the high watermark forward and complete the operations that waited for it."""
        if high_watermark > self.high_watermark:
            self.high_watermark = high_watermark
            self.purgatory.check_and_complete(SHARD_KEY)
            self._stored = [waiting for waiting in self._stored if not waiting.is_completed]

    def append_failed(self, event: AppendFailed) -> bool:
        """Handle a failed append. True: give the shard up."""
        append, failure = self._append, event.failure
        if append is None or append.sequence != event.sequence:
            return False
        if append.attempt > 1 and failure is not AppendFailure.FENCED:
            # An earlier attempt may have been written, so the result is not known.
            failure = AppendFailure.AMBIGUOUS
        self._is_reached = failure is AppendFailure.TOO_LARGE
        if failure is AppendFailure.AMBIGUOUS and append.attempt < MAX_AMBIGUOUS_ATTEMPTS:
            self._append = self._to_emit = Append(
                append.sequence, append.base_offset, append.records, append.attempt + 1
            )
            self._drop_unretried()
            return False
        if failure in (AppendFailure.FENCED, AppendFailure.AMBIGUOUS):
            return True
        self._append = None
        operations, self._under_way = self._under_way, []
        carriers = sum(bool(operation.records) for operation in operations)
        if failure is AppendFailure.TOO_LARGE and carriers > 1:
            self._put_back(operations)
            # By halves: thousands of writes fit into a few entries, whatever the store's limit is.
            self._to_cut += carriers
            self._part = carriers // 2
            return False
        if failure is AppendFailure.UNAVAILABLE and not event.is_lasting:
            self._put_back(operations)
            self._to_cut += self._cut
            self._backoff.arm(self._timer, self._now_ms())
            self._drop_unretried()
            return False
        self._backoff.attempts = 0
        self._refuse(operations, _FAILURES[failure])
        if not self._is_reached:
            self._drop_unretried()
        return False

    def close(self, error: ErrorCode) -> None:
        """Refuse all waiting and all later writes: the shard is being given up."""
        self._closed = error
        self._backoff.cancel()
        operations = self._under_way + self._queued
        stored, self._stored = self._stored, []
        self._append = self._to_emit = None
        self._under_way, self._queued = [], []
        for operation in stored:
            operation.fail(error, is_final=True)  # Their records are durable all the same.
        self._refuse(operations, error, is_final=True)

    # --- Inside ---

    def _form_entry(self) -> None:
        if self._to_cut:
            self._cut, count = self._size_of_part(min(self._part, self._to_cut))
            self._to_cut -= self._cut
        else:
            self._cut, count = 0, self._size_of_entry()
        self._under_way, self._queued = self._queued[:count], self._queued[count:]
        records = tuple(r for operation in self._under_way for r in operation.records)
        assert records, "a write without records rides with the one before it"
        append = Append(self._sequence + 1, self.end_offset, records)
        self._append = self._to_emit = append
        for operation in self._under_way:
            operation.required_offset = self._end_of_append()

    def _size_of_part(self, most: int) -> tuple[int, int]:
        """Number of writes, up to `most`, and of operations with those that ride with them."""
        writes = 0
        for count, operation in enumerate(self._queued):
            if operation.records and writes == most:
                return writes, count
            writes += bool(operation.records)
        return writes, len(self._queued)

    def _size_of_entry(self) -> int:
        """Number of operations in the next entry. A write is never split."""
        records = 0
        for count, operation in enumerate(self._queued):
            records += sum(map(_records_in, operation.records))
            if count and operation.records and records > ENTRY_RECORDS:
                return count
        return len(self._queued)

    def _end_of_append(self) -> int:
        if self._append is None:
            return self.end_offset
        return self._append.base_offset + len(self._append.records)

    def _put_back(self, operations: list[DelayedProduce]) -> None:
        """Return operations of an unwritten entry to the head of the queue."""
        for operation in operations:
            operation.required_offset = None
        self._queued[:0] = operations

    def time_is_over(self, operation: DelayedProduce) -> None:
        """Handle a time-out: between two attempts the write can be removed from the queue."""
        is_queued = operation.required_offset is None
        if self._backoff.is_pending and is_queued and operation.records:
            self._take_back(operation, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            newest = next(queued for queued in reversed(self._queued) if queued.is_carrier)
            if newest is operation:  # Nothing is left to retry: the next write goes at once.
                self._backoff.cancel()

    def _drop_unretried(self) -> None:
        """Drop queued writes that are not to be retried, and those that have timed out."""
        for operation in self._queued:
            if not operation.is_retried:
                operation.fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self._drop_overdue()

    def _drop_overdue(self) -> None:
        """Drop writes that have timed out, and the writes without records that depend on them."""
        overdue = ErrorCode.COORDINATOR_NOT_AVAILABLE
        is_dropped = True  # Writes without records at the head have nothing to wait for.
        kept: list[DelayedProduce] = []
        queued, self._queued = self._queued, kept
        for operation in queued:
            if operation.is_carrier:
                is_dropped = operation.is_completed
                if is_dropped and operation.records:
                    self._take_back(operation, overdue)
            if is_dropped:
                operation.fail(overdue)
            else:
                kept.append(operation)

    def _refuse(
        self, operations: list[DelayedProduce], error: ErrorCode, *, is_final: bool = False
    ) -> None:
        """Fail operations that are not in the log, or whose shard is given up (`is_final`)."""
        for operation in operations:
            self._take_back(operation, error)
            operation.fail(error, is_final=is_final)

    def _take_back(self, operation: DelayedProduce, error: ErrorCode) -> None:
        records, operation.records = operation.records, ()
        for record in records:
            self._drop(record)
        operation.resolve(error)


def _records_in(record: Record) -> int:
    if isinstance(record, PartitionsGranted):
        return sum(size_of(grant.partitions) for grant in record.grants)
    return 1


class _Backoff(TimerTask):
    """Pending during the back-off after UNAVAILABLE. The step in which it ends retries."""

    __slots__ = ("attempts",)

    def __init__(self) -> None:
        super().__init__()
        self.attempts = 0
        """Consecutive failed attempts."""

    def arm(self, timer: Timer, now_ms: int) -> None:
        self.attempts += 1
        timer.add(self, now_ms + min(BACKOFF_MS << min(self.attempts - 1, 10), BACKOFF_MS_MAX))

    def cancel(self) -> None:
        if self.bucket is not None:
            self.bucket.timer.cancel(self)

    def run(self) -> None:
        pass  # At its end the step asks for the next append.
