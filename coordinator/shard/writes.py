"""The way to the log: what waits, what is under way, and how far the log has come.

The end of the log is what the store has acknowledged. The high watermark is what counts as
done, which with acks=all is what those in sync have as well; else the two are the same.

At most one append is under way. What is written meanwhile makes the next entry, so
the busier the shard, the larger its entries, with no linger. A write without records
rides with the one before it and shares its fate.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile

from coordinator.core.commands import Command
from coordinator.core.errors import ErrorCode
from coordinator.core.outcome import Write
from coordinator.core.records import Record
from coordinator.shard.operations import DelayedProduce
from coordinator.shard.outbox import Append, AppendFailure
from coordinator.shard.waits import Waits
from timer.purgatory import Purgatory
from timer.timer import Timer

SHARD_KEY = "shard"
"""All writes of a shard wait for the same thing: its high watermark."""

MAX_AMBIGUOUS_ATTEMPTS = 10
"""After so many the shard gives up and is loaded again, which shows what was written."""

_FAILURES = {
    AppendFailure.FENCED: ErrorCode.NOT_COORDINATOR,
    AppendFailure.AMBIGUOUS: ErrorCode.NOT_COORDINATOR,
    AppendFailure.UNAVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    AppendFailure.TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""What clients are told. Source: Kafka `CoordinatorOperationExceptionHelper`."""


class WriteQueue:
    """Turns writes into entries and answers of the log into follow-ups.

    Args:
        apply: makes a record true; called in the order of the log.
        drop: forgets a record that was refused.
        post: puts a follow-up on the shard's inner queue.
        are_enough: so many are in sync that a write may count as done.
        timeout_ms: how long an answer waits for the log.
        waits: counts how long they did.
    """

    def __init__(
        self,
        timer: Timer,
        *,
        apply: Callable[[Record], None],
        drop: Callable[[Record], None],
        post: Callable[[Command], None],
        are_enough: Callable[[], bool],
        timeout_ms: int,
        waits: Waits,
    ) -> None:
        self._waits = waits
        self.purgatory: Purgatory[str] = Purgatory(timer)
        self.end_offset = 0
        """Of the log: the store has what lies before."""
        self.high_watermark = 0
        """What lies before counts as done."""
        self._are_enough = are_enough
        self._apply = apply
        self._drop = drop
        self._post = post
        self._timeout_ms = timeout_ms
        self._sequence = 0
        self._queued: list[DelayedProduce] = []
        self._under_way: list[DelayedProduce] = []
        self._stored: list[DelayedProduce] = []  # The store has them; those in sync not yet.
        self._append: Append | None = None
        self._to_emit: Append | None = None
        self._alone = 0  # So many writes of the queue go one by one: together they were too large.

    def start_at(self, sequence: int, offset: int) -> None:
        """Go on after the `sequence` entries and `offset` records that were loaded."""
        self._sequence = sequence
        self.end_offset = self.high_watermark = offset

    @property
    def pending(self) -> int:
        """Writes whose fate is open."""
        return len(self._queued) + len(self._under_way) + len(self._stored)

    def add(self, write: Write, now_ms: int) -> None:
        """Queue a write; one without records that has nothing to wait for follows up at once."""
        operation = DelayedProduce(
            write.records,
            write.then,
            lambda: self.high_watermark,
            self._are_enough,
            self._post,
            self._waits,
        )
        if write.records and not self._are_enough():
            self._refuse([operation], ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        if not write.records and not self._queued:
            # It waits for what is under way, if anything is.
            operation.required_offset = self._end_of_append()
            if self._append is not None:
                self._under_way.append(operation)
            elif operation.required_offset > self.high_watermark:
                self._stored.append(operation)
        else:
            self._queued.append(operation)
        self.purgatory.try_complete_else_watch(operation, (SHARD_KEY,), now_ms + self._timeout_ms)

    def next_append(self) -> Append | None:
        """The append to start now, if any: a new entry, or one to be repeated."""
        if self._append is None and self._queued:
            self._form_entry()
        append, self._to_emit = self._to_emit, None
        return append

    def appended(self, sequence: int) -> None:
        """The log has acknowledged: records become true. They count as done when `advance` says."""
        append = self._append
        if append is None or append.sequence != sequence:
            return
        self._append = None
        self._stored += self._under_way
        self._under_way = []
        self._sequence = sequence
        for record in append.records:
            self._apply(record)
        self.end_offset = append.base_offset + len(append.records)

    def advance(self, high_watermark: int) -> None:
        """Move the high watermark, if that is forward, and let go on who waited for it."""
        if high_watermark > self.high_watermark:
            self.high_watermark = high_watermark
            self.purgatory.check_and_complete(SHARD_KEY)
            self._stored = [waiting for waiting in self._stored if not waiting.is_completed]

    def append_failed(self, sequence: int, failure: AppendFailure) -> bool:
        """The log has refused, or does not know. True: give the shard up."""
        append = self._append
        if append is None or append.sequence != sequence:
            return False
        if append.attempt > 1 and failure is not AppendFailure.FENCED:
            # Whatever this attempt says of itself, an earlier one may have been written.
            failure = AppendFailure.AMBIGUOUS
        if failure is AppendFailure.AMBIGUOUS and append.attempt < MAX_AMBIGUOUS_ATTEMPTS:
            self._append = self._to_emit = Append(
                append.sequence, append.base_offset, append.records, append.attempt + 1
            )
            return False
        self._append = None
        operations, self._under_way = self._under_way, []
        carriers = sum(bool(operation.records) for operation in operations)
        if failure is AppendFailure.TOO_LARGE and carriers > 1:
            self._queued[:0] = operations
            self._alone = carriers
            return False
        self._refuse(operations, _FAILURES[failure])
        return failure in (AppendFailure.FENCED, AppendFailure.AMBIGUOUS)

    def refuse_all(self, error: ErrorCode) -> None:
        """Refuse everything that waits; the shard is being given up."""
        operations = self._under_way + self._queued
        stored, self._stored = self._stored, []
        self._append = self._to_emit = None
        self._under_way, self._queued = [], []
        for operation in stored:
            operation.fail(error)  # What they carry is true all the same.
        self._refuse(operations, error)

    def _form_entry(self) -> None:
        count = self._size_of_first() if self._alone else len(self._queued)
        self._alone = max(0, self._alone - 1)
        self._under_way, self._queued = self._queued[:count], self._queued[count:]
        records = tuple(r for operation in self._under_way for r in operation.records)
        assert records, "a write without records rides with the one before it"
        append = Append(self._sequence + 1, self.end_offset, records)
        self._append = self._to_emit = append
        for operation in self._under_way:
            operation.required_offset = self._end_of_append()

    def _size_of_first(self) -> int:
        """How many operations the first write of the queue comes to, with those that ride."""
        riders = takewhile(lambda operation: not operation.records, self._queued[1:])
        return 1 + sum(1 for _ in riders)

    def _end_of_append(self) -> int:
        if self._append is None:
            return self.end_offset
        return self._append.base_offset + len(self._append.records)

    def _refuse(self, operations: list[DelayedProduce], error: ErrorCode) -> None:
        for operation in operations:
            for record in operation.records:
                self._drop(record)
            operation.fail(error)
