"""Turns of expensive calls on the event loop: a few, then everything else, then the next few.

gRPC hands calls over in the order in which they came, so a caller's burst stands before everybody
else's calls until it is taken up. That costs a third of serving it. So after a slice of calls has
been served, the loop goes round for a while before the next: it takes up more calls than a slice
has, answers heartbeats, and finds out who else is there. What has been taken up waits in the
`AdmissionQueue`.

Without a burst nothing waits, and nothing goes round: a slice that took longer than `SLICE_S` needs
no rest.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
from collections.abc import Callable

from coordinator.service.admission_queue import AdmissionQueue, Drop, WaitingCall

SLICE = 4
"""Calls served without a rest, if they come within `SLICE_S`."""
SLICE_S = 0.01
REST_ROUNDS = 20
"""Rounds of the loop between two slices. It takes some four to take a call up, and 5-10 us for an
idle one: 6 % of a call, where nobody else is there."""
REST_S = 0.005
"""No longer than this, where rounds are long because there is much to do."""


class Turns:
    """Lets expensive calls through, a caller after the other.

    Args:
        most: calls that may wait.
        clock: seconds, monotonic.
    """

    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        self.queue = AdmissionQueue(most)
        self._clock = clock
        self._is_resting = False
        self._rounds = 0
        self._rest_until_s = 0.0
        self._left = SLICE
        self._slice_ends_s = 0.0
        # The rounds belong to nobody: not to the call that happened to begin them.
        self._context = contextvars.copy_context()

    @property
    def dropped(self) -> dict[str, int]:
        """Calls that were not served, by reason."""
        return {drop.value: self.queue.dropped[drop] for drop in Drop}

    @property
    def waiting(self) -> dict[str, int]:
        """Calls that wait, by kind. Any thread may ask."""
        return dict(self.queue.kinds)

    def age_s(self) -> float:
        """For how long the oldest call has waited."""
        return self.queue.oldest_s(self._clock())

    async def take(
        self, caller: str, kind: str, remaining_s: float | None, *, is_awaited: bool = False
    ) -> Drop | None:
        """Wait for a call's turn.

        Args:
            caller: whose turn it is to be.
            remaining_s: for which its client waits; None: for ever.
            is_awaited: a rebalance waits for it, so it goes before its caller's others.
        Returns:
            None when it is its turn, or why it is to be dropped.
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
            if not decided.done():  # It is, if its client has just gone.
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
