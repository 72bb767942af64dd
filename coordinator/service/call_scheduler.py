"""Scheduling of expensive calls on the event loop: a slice, a rest, the next slice.

gRPC hands calls over in order of arrival, so a caller's burst stands before everybody else's calls
until it is taken up, which costs a third of serving it. So after each slice the event loop iterates
for a while: it takes up more calls than a slice has, answers heartbeats, and learns of other
callers. Calls that were taken up wait in the `CallQueue`.

Without a burst no call waits: a slice that took longer than `SLICE_S` needs no rest.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
from collections.abc import Callable

from coordinator.service.call_queue import CallQueue, Drop, WaitingCall

SLICE = 4
"""Calls served without a rest, if they come within `SLICE_S`."""
SLICE_S = 0.01
REST_ROUNDS = 20
"""Iterations of the event loop between two slices. Taking up a call needs some four; an idle one
costs 5-10 us, so a rest adds 6 % to a call when no one else calls."""
REST_S = 0.005
"""Longest rest, in seconds, if iterations are long because there is much to do."""


class CallScheduler:
    """Lets expensive calls through in slices, round robin over callers.

    Args:
        most: capacity of the queue, in calls.
        clock: seconds, monotonic.
    """

    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        self.queue = CallQueue(most)
        self._clock = clock
        self._is_resting = False
        self._rounds = 0
        self._rest_until_s = 0.0
        self._left = SLICE
        self._slice_ends_s = 0.0
        # Rests use this context, so they do not inherit contextvars of the call that begins one.
        self._context = contextvars.copy_context()

    @property
    def dropped(self) -> dict[str, int]:
        """Number of dropped calls by reason."""
        return {drop.value: self.queue.dropped[drop] for drop in Drop}

    @property
    def waiting(self) -> dict[str, int]:
        """Number of queued calls by kind. Thread-safe."""
        return dict(self.queue.kinds)

    def age_s(self) -> float:
        """Age of the oldest queued call, in seconds."""
        return self.queue.oldest_s(self._clock())

    async def take(
        self, caller: str, kind: str, remaining_s: float | None, *, is_awaited: bool = False
    ) -> Drop | None:
        """Wait for a call's turn.

        Args:
            caller: key of the line in which the call waits.
            remaining_s: seconds until its client's deadline; None: no deadline.
            is_awaited: a rebalance waits for it, so it goes before its caller's other calls.
        Returns:
            None at the call's turn; the reason if it is to be dropped.
        """
        if remaining_s is not None and remaining_s <= 0:
            self.queue.dropped[Drop.DEADLINE] += 1
            return Drop.DEADLINE
        now_s = self._clock()
        if not self._is_resting:
            if now_s >= self._slice_ends_s:
                self._left, self._slice_ends_s = SLICE, now_s + SLICE_S
            self._left -= 1
            if not self._left:
                self._rest()
            return None
        decided: asyncio.Future[Drop | None] = asyncio.get_running_loop().create_future()

        def decide(drop: Drop | None) -> None:
            if not decided.done():  # It is done if the client has just gone.
                decided.set_result(drop)

        deadline_s = math.inf if remaining_s is None else now_s + remaining_s
        call = WaitingCall(caller, kind, now_s, deadline_s, decide, is_awaited)
        self.queue.add(call)
        try:
            return await decided
        except asyncio.CancelledError:
            self.queue.withdraw(call)
            raise

    # --- Inside ---

    def _rest(self) -> None:
        self._is_resting = True
        self._rounds = 0
        self._rest_until_s = self._clock() + REST_S
        asyncio.get_running_loop().call_soon(self._round, context=self._context)

    def _round(self) -> None:
        self._rounds += 1
        if self._rounds < REST_ROUNDS and self._clock() < self._rest_until_s:
            asyncio.get_running_loop().call_soon(self._round, context=self._context)
            return
        now_s = self._clock()
        if all(self.queue.admit_next(now_s) for _ in range(SLICE)):
            self._rest()
        else:
            self._is_resting = False
            self._left, self._slice_ends_s = SLICE, now_s + SLICE_S
