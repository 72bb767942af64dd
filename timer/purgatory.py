"""Purgatory: delayed operations, watched by key for events and armed in a timer.

An event names a key ("this group", "this shard"), and every operation watched under
that key is tried again. An operation may be watched under many keys. When it completes
through one of them, or by time, its entries under the other keys stay: removing them
would take a search per key, in lists that are mostly touched soon anyway. These dead
entries go when their list is next touched, when it has grown, or by a purge.

A list that grows is compacted: once it has twice the entries that were left when it
was last cleaned, its dead entries are removed. So a list holds at most twice as many
entries as it had waiting at some moment since (lists below 16 are left alone), and
since a walk over n entries comes after n/2 new ones, watching costs O(1) for each on
average. That serves keys in use. A key without new operations neither grows nor is
touched, and waits for the purge; which in turn skips long lists that have grown
since the purge before (with 100 keys in use and half of the operations timing out, a
third of the CPU at full load went into walking over them).

When to purge, without counting dead entries: `estimated` rises by one with each
operation that is newly watched, and the armed ones are counted exactly, so

    estimated - armed  =  completed since the last purge, still watched at worst

and a purge, a walk over the lists, is due when that exceeds the interval.
At the start of a purge the estimate is set back to the number armed. Lists that
were touched meanwhile have dropped their dead already, so the estimate errs
upwards, and the price of that is a walk that finds less. A purge is started from
`try_complete_else_watch` and `check_and_complete` only.

Why try twice: between the first try and the watching, an event may make the
condition true and find nobody under the key. With one thread that takes a
`try_complete` (or a key) with side effects, but the rule is kept: the second try
comes after the operation can be found, so no event is missed, and the timer is
armed only for what still has to wait.

Operations may call back into the purgatory from any of their methods. Lists are
walked as snapshots, and cleaned afterwards from what is then there.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final, Generic, TypeVar

from timer.operation import ArmedCount, DelayedOperation
from timer.timer import Timer

K = TypeVar("K", bound=Hashable)

# Length from which a watch list is compacted; most never get there.
COMPACT_FROM: Final = 16


class Purgatory(Generic[K]):
    """Delayed operations, watched under keys of type `K`.

    The timer may be shared: with other purgatories, and with plain tasks.

    Args:
        timer: arms the operations; the owner advances it.
        purge_interval: completed operations in the lists that cause a purge.
    Source: Kafka `DelayedOperationPurgatory`.
    """

    __slots__ = (
        "_armed_count",
        "_compact_at",
        "_estimated",
        "_lengths",
        "_purge_interval",
        "_purged_total",
        "_timer",
        "_watch_lists",
        "_watched",
    )

    def __init__(self, timer: Timer, *, purge_interval: int = 1000) -> None:
        self._timer = timer
        self._purge_interval = purge_interval
        self._watch_lists: dict[K, list[DelayedOperation]] = {}
        # The length at which a list is compacted, where that is not COMPACT_FROM. Beside the
        # lists and not in them: most keys have one operation, and a plain list is the smallest.
        self._compact_at: dict[K, int] = {}
        # The lengths of long lists at the last purge: a list that has another one is in use.
        self._lengths: dict[K, int] = {}
        self._watched = 0
        self._estimated = 0
        self._purged_total = 0
        self._armed_count = ArmedCount()

    @property
    def watched(self) -> int:
        """Number of entries in all watch lists: one per operation and key, dead ones included."""
        return self._watched

    @property
    def delayed(self) -> int:
        """Number of armed operations of this purgatory."""
        return self._armed_count.armed

    @property
    def purged_total(self) -> int:
        """Watch-list entries dropped by purges since the start."""
        return self._purged_total

    def try_complete_else_watch(
        self, operation: DelayedOperation, keys: Sequence[K], deadline_ms: int
    ) -> bool:
        """Complete the operation if that is possible now; else watch it and arm it.

        Try; watch under every key, stopping if it completes meanwhile; try again;
        arm for `deadline_ms`, unless completed. An operation whose deadline has
        passed expires at the next `Timer.advance_to`. If a try raises, the
        exception passes through and the operation is not armed.

        Returns:
            True if this call completed it.
        Raises:
            ValueError: `keys` is empty, so that no event could ever complete it.
        Source: Kafka `DelayedOperationPurgatory.tryCompleteElseWatch`.
        """
        if not keys:
            raise ValueError("an operation needs at least one key to be watched under")
        if operation.try_complete():
            return True
        if operation.is_completed:
            return False
        operation.gone = False  # It may come back after a cancel_for_key.
        watch_lists = self._watch_lists
        for key in keys:
            if operation.gone:
                break
            operations = watch_lists.get(key)
            if operations is None:
                watch_lists[key] = [operation]
            else:
                operations.append(operation)
                if len(operations) >= COMPACT_FROM:
                    self._compact_if_grown(key, len(operations))
            self._watched += 1
        self._estimated += 1
        completed = operation.try_complete()
        if not operation.gone:
            self._arm(operation, deadline_ms)
        self._purge_if_due()
        return completed

    def find(self, key: K) -> DelayedOperation | None:
        """Return the first operation that waits under a key; None if there is none."""
        for operation in self._watch_lists.get(key, ()):
            if not operation.gone:
                return operation
        return None

    def waiting(self, key: K) -> list[DelayedOperation]:
        """Return all operations that wait under a key; linear in its list."""
        return [operation for operation in self._watch_lists.get(key, ()) if not operation.gone]

    def check_and_complete(self, key: K) -> int:
        """Try to complete every operation watched under `key`.

        Returns:
            The number of operations that this call completed.
        Source: Kafka `DelayedOperationPurgatory.checkAndComplete`.
        """
        operations = self._watch_lists.get(key)
        if operations is None:
            return 0
        completed = 0
        for operation in tuple(operations):
            if not operation.gone and operation.try_complete():
                completed += 1
        self._drop_gone(key)
        self._purge_if_due()
        return completed

    def cancel_for_key(self, key: K) -> list[DelayedOperation]:
        """Remove every operation watched under `key`, without completing it.

        They are disarmed, and not tried again under their other keys either. The
        caller may still complete one, or have it watched again.

        Returns:
            The operations, in the order in which they were watched, each once;
            those that had completed are not among them.
        Source: Kafka `DelayedOperationPurgatory.cancelForKey`.
        """
        operations = self._watch_lists.pop(key, None)
        if operations is None:
            return []
        self._compact_at.pop(key, None)
        self._watched -= len(operations)
        cancelled: list[DelayedOperation] = []
        for operation in operations:
            if not operation.gone:
                operation.gone = True
                operation.disarm()
                cancelled.append(operation)
        return cancelled

    def purge(self) -> int:
        """Walk all lists and drop completed and cancelled operations.

        Returns:
            The number of dropped entries; they count in `purged_total`.
        Source: Kafka `DelayedOperationPurgatory.advanceClock`.
        """
        self._lengths.clear()
        return self._purge(tuple(self._watch_lists))

    def _purge_if_due(self) -> None:
        if self._estimated - self._armed_count.armed > self._purge_interval:
            self._purge(self._idle_keys())

    def _idle_keys(self) -> Sequence[K]:
        """Return the keys of short lists, and of long ones unchanged since the last purge."""
        before, self._lengths = self._lengths, {}
        idle = []
        for key, operations in self._watch_lists.items():
            length = len(operations)
            if length >= COMPACT_FROM:
                self._lengths[key] = length
            if length < COMPACT_FROM or before.get(key) == length:
                idle.append(key)
        return idle

    def _purge(self, keys: Sequence[K]) -> int:
        self._estimated = self._armed_count.armed
        purged = 0
        for key in keys:
            purged += self._drop_gone(key)
        self._purged_total += purged
        return purged

    def _arm(self, operation: DelayedOperation, deadline_ms: int) -> None:
        if operation.armed_by is not self._armed_count:
            operation.disarm()
            operation.armed_by = self._armed_count
            self._armed_count.armed += 1
        self._timer.add(operation, deadline_ms)

    def _compact_if_grown(self, key: K, length: int) -> None:
        if length >= self._compact_at.get(key, COMPACT_FROM):
            self._drop_gone(key)

    def _drop_gone(self, key: K) -> int:
        """Remove dead entries from a list, and an empty list; returns their number."""
        operations = self._watch_lists.get(key)
        if operations is None:
            return 0
        waiting = [operation for operation in operations if not operation.gone]
        dropped = len(operations) - len(waiting)
        if not waiting:
            del self._watch_lists[key]
        elif dropped:
            self._watch_lists[key] = waiting
        if 2 * len(waiting) > COMPACT_FROM:
            self._compact_at[key] = 2 * len(waiting)
        elif self._compact_at:
            self._compact_at.pop(key, None)
        self._watched -= dropped
        return dropped
