"""The schedule of a member's protocol requests: which is next, when, and how failures are handled.

One request of the protocol is under way at a time. After an answer the next one is due at once, or
with the next heartbeat; after a failure, when the back-off is over. The commits of the owner run
beside it (`operations.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from coordinator.client.errors import CoordinatorError, FatalError
from coordinator.client.member import calls
from coordinator.client.member.calls import Next
from coordinator.client.member.classic.membership import Membership, MembershipPhase
from coordinator.client.member.part import ProgressRules
from coordinator.client.member.retry import MOST_S, BackOff
from coordinator.client.settings.configs import ClassicConfig

BEATS_A_SESSION = 4
"""Heartbeats that may fail, one after the other, before the session ends."""
FINDS_A_SESSION = 10
"""Addresses that may fail to answer, one after the other, before the session ends."""
CALL_TIMEOUT_MS = 10_000
LEAVE_TIMEOUT_MS = 2_000
JOIN_GRACE_MS = 5_000
"""Added to the rebalance timeout, as in Kafka's client; a new group's initial delay may be longer
than that timeout."""


def timeout_ms(request: calls.Request, config: ClassicConfig) -> int:
    """Milliseconds to wait for the answer to a request."""
    match request:
        case calls.Join() | calls.Sync():
            return config.rebalance_timeout_ms + JOIN_GRACE_MS
        case calls.Beat():
            # A node that was stopped never answers: leave time to find its successor.
            return min(config.session_timeout_ms // BEATS_A_SESSION, CALL_TIMEOUT_MS)
        case calls.FindCoordinator():
            return min(config.session_timeout_ms // FINDS_A_SESSION, CALL_TIMEOUT_MS)
        case calls.LeaveCall():
            return LEAVE_TIMEOUT_MS
    return CALL_TIMEOUT_MS


class Schedule(ProgressRules):
    """Decides the next request of the protocol. `is_out`: one is under way."""

    def __init__(self, membership: Membership, random: Callable[[], float]) -> None:
        self._membership = membership
        # Several attempts fit into a session, whose end costs the partitions.
        most_s = min(MOST_S, membership.config.session_timeout_ms / 6_000)
        self._back_off = BackOff(random, most_s=most_s)
        self._is_backing_off = False
        self.is_started = False
        self._due_ms = 0
        self._sent_at_ms = 0
        self._leaves_because = ""
        self._last_poll_ms = 0
        self._standing_polls = 0
        self.is_out = False

    # --- The owner ---

    def start(self, now_ms: int) -> None:
        """Begin to join."""
        self.is_started = True
        self._due_ms = self._last_poll_ms = now_ms

    def poll_begins(self, now_ms: int) -> None:
        """The owner polls; a poll that waits counts as progress."""
        self._last_poll_ms = now_ms
        self._standing_polls += 1

    def poll_ends(self, now_ms: int) -> None:
        self._last_poll_ms = now_ms
        self._standing_polls -= 1

    def alive(self, now_ms: int) -> None:
        self._last_poll_ms = now_ms

    def hurry(self, now_ms: int) -> None:
        """Take the next step at once; while a request is under way, its answer decides."""
        self._due_ms = now_ms

    @contextmanager
    def hurried_by_move(self, now_ms: int) -> Iterator[None]:
        """Take the next step at once if the input that is taken in moves the member to another
        phase."""
        phase = self._membership.phase
        yield
        if self._membership.phase is not phase:
            self.hurry(now_ms)

    # --- Time ---

    def next_deadline(self) -> int | None:
        """Time of the next expiry or request; None: there is none."""
        ends = (self._membership.next_expiry(), self._poll_deadline(), self._step_due())
        return min((end for end in ends if end is not None), default=None)

    def pass_deadlines(self, now_ms: int) -> None:
        """Expire the session, a revocation or the poll interval."""
        membership, phase = self._membership, self._membership.phase
        poll_deadline = self._poll_deadline()
        membership.pass_deadlines(now_ms)
        if poll_deadline is not None and now_ms >= poll_deadline:
            self._leaves_because = (
                f"no progress: no poll for {now_ms - self._last_poll_ms} ms; "
                f"max_poll_interval_ms is {membership.config.max_poll_interval_ms}"
            )
            membership.give_up(self._leaves_because)
        if membership.phase is not phase and not self._is_backing_off:
            self.hurry(now_ms)

    def is_due(self, now_ms: int) -> bool:
        """True if a request is to be made now."""
        due_ms = self._step_due()
        return due_ms is not None and now_ms >= due_ms

    def attempt(self, now_ms: int) -> calls.Request | None:
        """The next request; None: there is none to make any more."""
        membership = self._membership
        self._sent_at_ms = now_ms
        if self._leaves_because:
            leave = membership.leave_request(self._leaves_because)
            if leave is not None:
                return leave
            self._left()
        match membership.phase:
            case MembershipPhase.JOINING:
                return membership.join(now_ms)
            case MembershipPhase.SYNCING:
                return membership.sync()
            case MembershipPhase.STABLE | MembershipPhase.REVOKING:
                return membership.beat()
        self.is_out = False
        return None

    # --- Answers ---

    def handle(self, request: calls.Request | None, result: calls.Result, now_ms: int) -> Next:
        """Take in the result of a request; returns REDISCOVER if the coordinator has to be found.

        Args:
            request: None if it was not sent, since no coordinator was found.
        """
        self.is_out = False
        after_ms = 0
        match request, result:
            case (calls.LeaveCall(), _) | (None, _) if self._leaves_because:
                self._left()
                todo = Next.GO_ON
            case calls.Join(), calls.Joined():
                todo = self._membership.joined(result)
            case calls.Sync(), calls.Synced():
                todo = self._membership.synced(result, self._sent_at_ms, now_ms)
            case calls.Beat(), calls.Acknowledged():
                todo = self._membership.heartbeat_answered(result, self._sent_at_ms, now_ms)
            case _:
                todo = self._failed(result, now_ms)
                after_ms = result.after_ms if isinstance(result, calls.Overloaded) else 0
        self._is_backing_off = todo is not Next.GO_ON
        if self._is_backing_off:
            # A failed heartbeat is repeated after the back-off alone: the session is running out.
            self._due_ms = now_ms + after_ms + self._back_off.next_ms()
        else:
            self._back_off.reset()
            beats = self._membership.is_in_session
            self._due_ms = now_ms + self._membership.config.heartbeat_interval_ms * beats
        return todo

    # --- Inside ---

    def _failed(self, result: calls.Result, now_ms: int) -> Next:
        membership = self._membership
        match result:
            case calls.BrokenCall(error):
                membership.machine.fail(error)
            case calls.RefusedCall(detail, "INVALID_ARGUMENT" as code):
                membership.machine.fail(CoordinatorError(detail, code))
            case calls.RefusedCall(detail, code) if self._is_turned_away(code):
                membership.machine.fail(FatalError(detail, code))
            case calls.Dropped() | calls.Overloaded():
                membership.unreachable(now_ms)
                return Next.PAUSE
            case _:
                membership.unreachable(now_ms)
                return Next.REDISCOVER
        return Next.GO_ON

    def _is_turned_away(self, code: str) -> bool:
        # A token may be about to be renewed: a member of the group stays one for its session.
        return code != "UNAUTHENTICATED" or self._membership.phase is MembershipPhase.JOINING

    def _left(self) -> None:
        self._leaves_because = ""
        self._membership.left()

    def _step_due(self) -> int | None:
        """Time of the next request; None: one is under way, or there is none to make."""
        if self.is_out or not self.is_started or self._membership.phase is MembershipPhase.STOPPED:
            return None
        if self._membership.phase is MembershipPhase.IDLE and not self._leaves_because:
            return None
        return self._due_ms

    def _poll_deadline(self) -> int | None:
        limit_ms = self._membership.config.max_poll_interval_ms
        if limit_ms is None or self._standing_polls or not self._membership.is_in_session:
            return None
        return self._last_poll_ms + limit_ms + 1
