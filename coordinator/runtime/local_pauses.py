"""Pauses of this node: times in which it stalled, or had calls queued that it had not read.

Heartbeats that arrive in a pause wait in this process, so their members are not silent, and the
time does not count against their sessions (`core/pauses.py`). The rule, in full:

* A pause begins when there was no look for `STALL_MS`: the event loop, or the whole process, stood
  still since the last look. Or it begins when the oldest queued call has waited for `QUEUE_MS`:
  then it began that long ago.
* It goes on while calls wait that long, and after that for as long again, at most `RECOVERY_MS`:
  clients whose calls were lost pause before they try again, the longer the longer it took.
* Bound: a pause holds sessions back for the time in which the process stood still and at most
  `HELD_MS` beside that. When this is used up, calls that wait begin no other pause until none has
  waited for `RECOVERY_MS`; a process that stood still counts that time alone.

So a member that has really died is declared dead at most `HELD_MS` and the stalls after its
session. Looks are taken by a probe, four times a second, and by each tick before it ends a session.
The probe does not depend on the timers that it judges. On virtual time there are no looks, and
sessions are not held back.
"""

from __future__ import annotations

from coordinator.core.pauses import Pause

STALL_MS = 1_000
QUEUE_MS = 1_000
RECOVERY_MS = 10_000
HELD_MS = 60_000
REMEMBERED = 64
"""Pauses kept. A session of half an hour that sees more of them has been paused enough."""


class LocalPauses:
    """Pauses of this process, found by looking at the clock often.

    Args:
        now_ms: epoch milliseconds of a clock that never goes back.
    """

    def __init__(self, now_ms: int) -> None:
        self._looked_ms = now_ms
        self._pauses: tuple[Pause, ...] = ()
        self._stood_ms = 0  # Stalls in the last pause do not count against its bound.
        self._is_spent = False
        self._failed_at_ms: int | None = None
        self._over_ms = 0  # Length of all pauses but the last.

    @property
    def is_paused(self) -> bool:
        """True if the last look was in a pause."""
        return bool(self._pauses) and self._looked_ms < self._pauses[-1].to_ms

    @property
    def total_ms(self) -> int:
        """Total length of all pauses, up to the last look."""
        if not self._pauses:
            return 0
        last = self._pauses[-1]
        return self._over_ms + min(self._looked_ms, last.to_ms) - last.from_ms

    def measure(self, now_ms: int, queue_age_ms: int | None = None) -> tuple[Pause, ...]:
        """Note the time, and return the remembered pauses in order; the last may end in the future.

        Args:
            queue_age_ms: wait of the oldest queued call; None: unknown now.
        """
        before_ms, self._looked_ms = self._looked_ms, now_ms
        if now_ms - before_ms >= STALL_MS:
            self._pause(before_ms, now_ms, stood_ms=now_ms - before_ms)
            self._failed_at_ms = now_ms
        if queue_age_ms is not None and queue_age_ms >= QUEUE_MS:
            if not self._is_spent:
                self._pause(now_ms - queue_age_ms, now_ms)
            self._failed_at_ms = now_ms
        if self._failed_at_ms is not None and now_ms - self._failed_at_ms >= RECOVERY_MS:
            self._is_spent, self._failed_at_ms = False, None
        return self._pauses

    # --- Inside ---

    def _pause(self, from_ms: int, now_ms: int, *, stood_ms: int = 0) -> None:
        """Begin a pause, or extend the last one."""
        last = self._pauses[-1] if self._pauses else None
        if last is not None and from_ms <= last.to_ms:
            from_ms, known = last.from_ms, self._pauses[:-1]
        else:
            if last is not None:
                self._over_ms += last.to_ms - last.from_ms
            self._stood_ms, known, last = 0, self._pauses[1 - REMEMBERED :], None
        self._stood_ms += stood_ms
        # The time that has passed is a pause up to the bound, and so is that to recover in.
        end_ms = now_ms + min(now_ms - from_ms, RECOVERY_MS)
        most_ms = from_ms + self._stood_ms + HELD_MS
        if self._is_spent:
            most_ms = (from_ms if last is None else last.to_ms) + stood_ms
        self._is_spent = self._is_spent or end_ms >= most_ms
        to_ms = max(min(end_ms, most_ms), 0 if last is None else last.to_ms)
        self._pauses = (*known, Pause(from_ms, to_ms))
