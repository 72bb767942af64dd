"""Fair queue of expensive calls: callers take turns, so one cannot keep the others waiting.

Joins, syncs, commits and admin requests cost some 500 us each, and one caller may send thousands at
once. Each caller has a FIFO line here, and the lines are served round robin, a call each. In a
line, calls that a rebalance waits for go before the others: if members that have their ids stood
behind thousands who ask for one, the initial delay of their group would be over before they are
in. Heartbeats, leaving and finding the coordinator are not
queued: they go ahead of all of these.

A call whose client no longer waits is dropped when its turn comes, before it is translated. When
the queue is full, callers that have their share of it are refused, and those with less are
admitted: so it never holds more than twice its capacity.

This module only decides; `call_scheduler.py` waits.

Source: deficit round robin (Shreedhar & Varghese 1995), with a quantum of one call.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum


class Drop(Enum):
    """Reason for which a call was not served."""

    DEADLINE = "deadline"
    """Its deadline had passed when its turn came."""
    GONE = "gone"
    """Its client gave up before its turn."""
    FULL = "full"
    """The queue was full, and its caller had its share of it."""


@dataclass(slots=True, eq=False)
class WaitingCall:
    """A queued call. `decide` is called once: with None when it is its turn."""

    caller: str
    kind: str
    came_s: float
    deadline_s: float
    decide: Callable[[Drop | None], None]
    is_awaited: bool = False
    """A rebalance waits for it."""
    is_over: bool = False


class _Line:
    """FIFO queue of one caller."""

    __slots__ = ("awaited", "others")

    def __init__(self) -> None:
        self.awaited: deque[WaitingCall] = deque()
        self.others: deque[WaitingCall] = deque()

    def __len__(self) -> int:
        return len(self.awaited) + len(self.others)

    def pop(self) -> WaitingCall:
        return (self.awaited or self.others).popleft()

    def came_s(self) -> float:
        return min(calls[0].came_s for calls in (self.awaited, self.others) if calls)


class CallQueue:
    """Round-robin queue over callers.

    Args:
        most: capacity, in calls.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        # The first caller is served next. No line is empty.
        self._lines: OrderedDict[str, _Line] = OrderedDict()
        self.kinds: Counter[str] = Counter()
        """Queued calls by kind."""
        self.dropped: Counter[Drop] = Counter()
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    def add(self, call: WaitingCall) -> None:
        """Append a call to its caller's line, or refuse it."""
        line = self._lines.get(call.caller)
        lines = len(self._lines) + (line is None)
        if self._waiting >= self._most and line is not None and len(line) * lines >= self._most:
            call.is_over = True
            self.dropped[Drop.FULL] += 1
            call.decide(Drop.FULL)
            return
        if line is None:
            line = self._lines[call.caller] = _Line()
        (line.awaited if call.is_awaited else line.others).append(call)
        self._waiting += 1
        self.kinds[call.kind] += 1

    def admit_next(self, now_s: float) -> bool:
        """Decide the next call; calls whose client has gone or given up are dropped on the way.

        Returns:
            False if no call waits.
        """
        while self._lines:
            caller, line = self._lines.popitem(last=False)
            call = line.pop()
            if line:
                self._lines[caller] = line  # At the end: all others have their turns first.
            if call.is_over:
                continue
            late = call.deadline_s <= now_s
            self._end(call, Drop.DEADLINE if late else None)
            call.decide(Drop.DEADLINE if late else None)
            if not late:
                return True
        return False

    def withdraw(self, call: WaitingCall) -> None:
        """Drop a queued call whose client has given up; its place in the line is skipped later."""
        if not call.is_over:
            self._end(call, Drop.GONE)

    def oldest_s(self, now_s: float) -> float:
        """Age of the oldest queued call, in seconds."""
        return max((now_s - line.came_s() for line in self._lines.values()), default=0.0)

    def _end(self, call: WaitingCall, drop: Drop | None) -> None:
        call.is_over = True
        self._waiting -= 1
        self.kinds[call.kind] -= 1
        if drop is not None:
            self.dropped[drop] += 1
