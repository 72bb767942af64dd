"""Whether a coordinator answers a member, since when none has, and when that is logged.

The first message comes `FIRST_MS` after the last answer, the next ones at intervals that double up
to `MOST_MS`. A call whose answer may take long, as a JoinGroup's, is no silence until it fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from coordinator.client.member import calls

FIRST_MS = 1_250
MOST_MS = 60_000

_REFUSALS = calls.ELSEWHERE | {calls.Code.COORDINATOR_LOAD_IN_PROGRESS}


class Reachability:
    """State of one member. `failure`: why the last call had no answer; empty: it had one."""

    __slots__ = ("_awaits", "_is_reported", "_report_ms", "_wait_ms", "failure", "since_ms")

    def __init__(self) -> None:
        self.since_ms: int | None = None
        """Time since which no coordinator has answered; None: one does, or none was asked."""
        self.failure = ""
        self._awaits = self._is_reported = False
        self._report_ms = self._wait_ms = 0

    def begin(self, now_ms: int) -> None:
        """The member begins to make calls."""
        self.since_ms = now_ms
        self._wait_ms = FIRST_MS
        self._report_ms = now_ms + FIRST_MS
        self._awaits = self._is_reported = False

    def take_in(self, result: calls.Result, now_ms: int, *, is_beat: bool = False) -> str:
        """Take in the result of a call.

        Args:
            is_beat: the call was a heartbeat while operations wait. A node that loads the group
                answers heartbeats too, so it ends no silence of one that loads.
        Returns:
            A message for the log, if coordinators answer again after their silence was logged; else
            empty.
        """
        failure = failure_of_result(result)
        match result:
            case calls.BrokenCall():
                return ""
            case calls.Found():
                self._awaits = True
                return ""
            case calls.Acknowledged(code=calls.Code.NONE) if is_beat and self._loads:
                return ""
            case _ if failure:
                self.failure = failure
                self._awaits = False
                if self.since_ms is None:
                    self.begin(now_ms)
                return ""
        since_ms, was_reported = self.since_ms, self._is_reported
        self.since_ms, self.failure, self._is_reported = None, "", False
        if since_ms is None or not was_reported:
            return ""
        return f"the coordinator answers again, after {(now_ms - since_ms) / 1000:.1f} s"

    @property
    def _loads(self) -> bool:
        return self.failure.startswith(calls.Code.COORDINATOR_LOAD_IN_PROGRESS)

    def next_deadline(self) -> int | None:
        """Time of the next message; None: there is none to come."""
        return None if self.since_ms is None or self._awaits else self._report_ms

    def pass_deadlines(self, addresses: Sequence[str], now_ms: int) -> str:
        """The message that is due now; empty: there is none.

        Args:
            addresses: those that are asked, for the message.
        """
        deadline_ms = self.next_deadline()
        if deadline_ms is None or now_ms < deadline_ms:
            return ""
        assert self.since_ms is not None
        self._is_reported = True
        self._wait_ms = min(2 * self._wait_ms, MOST_MS)
        self._report_ms = now_ms + self._wait_ms
        since = datetime.fromtimestamp(self.since_ms / 1000, UTC)
        return (
            f"coordinator unreachable since {since:%H:%M:%S} UTC "
            f"({(now_ms - self.since_ms) / 1000:.1f} s) at {', '.join(addresses)}: "
            f"{self.failure or 'no answer yet'}; trying again"
        )


def failure_of_result(result: calls.Result) -> str:
    """Reason that no coordinator that serves the group answered a call; empty: one did."""
    match result:
        case calls.CallUnanswered(detail) | calls.Dropped(detail) | calls.Overloaded(detail):
            return detail or "no answer"
        case calls.Acknowledged(code=code, message=message) if code in _REFUSALS:
            return f"{code}: {message}"
        case calls.Committed(codes=codes, message=message) if _REFUSALS.intersection(codes):
            return f"{', '.join(codes)}: {message}"
    return ""
