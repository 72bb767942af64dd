"""A delayed operation: work that waits for a condition or a time-out.

It completes in one of two ways. Its condition becomes true, and the code that made it
true calls `try_complete`; or its time runs out, and the timer calls `run`. Both end in
`force_complete`, and the first call wins:

    event ──► try_complete ── condition true? ──┐
                                                ├──► force_complete ──► on_complete
    timer ──► run ──────────────────────────────┘         └─ then, if it was the timer
                                                             that won: on_expiration

The operation is its own timer task, so completing it removes it from the timer at
once, without a search. Its entries in the watch lists of a purgatory stay behind, and
are dropped when their list is next touched, or by a purge.
"""

from __future__ import annotations

from timer.task import TimerTask


class ArmedCount:
    """Number of armed operations of one purgatory, shared with each of them."""

    __slots__ = ("armed",)

    def __init__(self) -> None:
        self.armed = 0


class DelayedOperation(TimerTask):
    """An operation that completes exactly once, by an event or by a time-out.

    Override `try_complete`, `on_complete` and, for time-outs, `on_expiration`.
    `gone` and `armed_by` belong to the purgatory.

    Source: Kafka `DelayedOperation`.
    """

    __slots__ = ("_completed", "armed_by", "gone")

    def __init__(self) -> None:
        super().__init__()
        self._completed = False
        # Completed, or taken out by cancel_for_key: watch lists drop it when they meet it.
        self.gone = False
        self.armed_by: ArmedCount | None = None

    @property
    def is_completed(self) -> bool:
        """True from just before `on_complete` is called."""
        return self._completed

    def try_complete(self) -> bool:
        """Test the condition and, if it is true, return `self.force_complete()`; else False.

        It may be called any number of times, also after completion.

        Raises:
            NotImplementedError: the subclass did not override it.
        """
        raise NotImplementedError

    def force_complete(self) -> bool:
        """Complete the operation without testing the condition, unless it is completed.

        The timer is cancelled first, then `on_complete` is called.

        Returns:
            True to the one caller who completed it, False to all others.
        Source: Kafka `DelayedOperation.forceComplete`.
        """
        if self._completed:
            return False
        self._completed = True
        self.gone = True
        self.disarm()
        self.on_complete()
        return True

    def on_complete(self) -> None:
        """Do the delayed work. Called exactly once.

        Raises:
            NotImplementedError: the subclass did not override it.
        """
        raise NotImplementedError

    def on_expiration(self) -> None:
        """Called after `on_complete` if it was the timer that completed the operation."""

    def run(self) -> None:
        """Complete at the deadline; called by the timer. Calls `on_expiration` if it was first."""
        if self.force_complete():
            self.on_expiration()

    def disarm(self) -> None:
        """Leave the timer, if in one, and the purgatory's count of armed operations."""
        bucket = self.bucket
        if bucket is not None:
            bucket.timer.cancel(self)
        armed_by = self.armed_by
        if armed_by is not None:
            armed_by.armed -= 1
            self.armed_by = None
