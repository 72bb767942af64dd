"""Operations: commits, fetches and reports of the owner, retried until an answer is final.

An operation makes one attempt at a time. `attempt` gives the request of the next one, `handle`
takes its result; when `is_done`, there may be an `error`. In between it pauses until `due_ms`, or,
if it is a commit, waits until the member has its assignment (`is_waiting`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Protocol

from coordinator.assignors import TopicPartition
from coordinator.assignors.partitions import spelled_by
from coordinator.client.errors import (
    CommitFailed,
    CoordinatorError,
    FencedToken,
    OffsetMismatch,
    RebalanceInProgress,
    StaleMember,
    Unavailable,
)
from coordinator.client.member import calls
from coordinator.client.member.calls import Code, Next
from coordinator.client.member.ledger import FOREVER_MS, Holding, Ledger
from coordinator.client.member.part import CommitRules
from coordinator.client.member.retry import MOST_S, BackOff
from coordinator.client.offsets import Commit, OffsetAndMetadata, offset_number

GIVE_UP_MS = 30_000
"""Default of the time after which an operation ends without a final answer."""

_RETRIABLE = calls.ELSEWHERE | {Code.COORDINATOR_LOAD_IN_PROGRESS}
_STALE = frozenset(
    {
        Code.UNKNOWN_MEMBER_ID,
        Code.ILLEGAL_GENERATION,
        Code.FENCED_INSTANCE_ID,
        Code.GROUP_ID_NOT_FOUND,
    }
)


class MemberOperation(ABC):
    """Base of operations. Compared by identity.

    Args:
        timeout_ms: time after which it ends, with an error that says what it has waited for.
        most_s: limit of every pause between two attempts.
    """

    def __init__(
        self,
        random: Callable[[], float],
        now_ms: int,
        timeout_ms: int = GIVE_UP_MS,
        *,
        most_s: float = MOST_S,
    ) -> None:
        self._random = random
        self._most_s = most_s
        self._timeout_ms = timeout_ms
        self.begun_ms = now_ms
        self._until_ms = now_ms + timeout_ms
        self._failure = ""
        self.error: Exception | None = None
        self.is_done = self.is_out = False
        self.due_ms: int | None = None
        """Time of the next attempt; None: one is under way, or it waits."""
        self.repeated = False
        """True if an attempt without an answer may have been carried out."""
        self.retry_now(now_ms)

    def retry_now(self, now_ms: int) -> None:
        """Make an attempt now, and restart the back-off."""
        self.due_ms = now_ms
        self._back_off = BackOff(self._random, most_s=self._most_s)

    def attempt(self, now_ms: int) -> calls.Request | None:
        """The request of an attempt; None: the operation has ended instead."""
        self.check_deadline(now_ms)
        if self.is_done:
            return None
        self.is_out = True
        return self._request(now_ms)

    def handle(self, request: calls.Request | None, result: calls.Result, now_ms: int) -> Next:
        """Take in the result of an attempt; returns REDISCOVER if the coordinator has to be found.

        Args:
            request: None if it was not sent, since no coordinator was found.
        """
        self.is_out = False
        match result:
            case calls.BrokenCall(error):
                self.end(error)
            case calls.RefusedCall(detail, code):
                self.end(CommitFailed(detail, code))
            case calls.Overloaded(detail, after_ms):
                self._try_again(detail, now_ms, after_ms)
            case calls.CallUnanswered(detail) | calls.Dropped(detail) | calls.Unimplemented(detail):
                self.repeated = True
                self._try_again(detail, now_ms)
                return Next.PAUSE if isinstance(result, calls.Dropped) else Next.REDISCOVER
            case calls.Committed() | calls.Acknowledged():
                return self._received(result, now_ms)
        return Next.GO_ON

    def check_deadline(self, now_ms: int) -> None:
        """Take in the time, and changes of the member since the last call."""
        if now_ms >= self._until_ms and not self.is_done:
            self.end(self._timed_out())

    def next_deadline(self) -> int:
        """Time of the next attempt, or of giving up."""
        return self._until_ms if self.due_ms is None else min(self.due_ms, self._until_ms)

    def end(self, error: Exception | None = None) -> None:
        self.error, self.is_done, self.due_ms = error, True, None

    # --- Inside ---

    def _received(self, reply: calls.Committed | calls.Acknowledged, now_ms: int) -> Next:
        codes = set(reply.codes if isinstance(reply, calls.Committed) else (reply.code,))
        if not codes & _RETRIABLE:
            try:
                self._answered(reply, now_ms)
            except Exception as error:  # noqa: BLE001  # The caller is to hear of it.
                self.end(error)
            return Next.GO_ON
        # A write whose outcome the coordinator did not wait for may still become durable.
        self.repeated = True
        self._try_again(reply.message, now_ms)
        return Next.REDISCOVER if codes & calls.ELSEWHERE else Next.PAUSE

    def _try_again(self, failure: str, now_ms: int, after_ms: int = 0) -> None:
        """Schedule another attempt."""
        self._failure = failure
        self.due_ms = now_ms + after_ms + self._back_off.next_ms()

    def _timed_out(self) -> CoordinatorError:
        """Error of an operation that takes too long: what it has waited for."""
        why = self._failure or "the call has had no answer"
        return Unavailable(f"no coordinator answered within {self._timeout_ms / 1000:g} s: {why}")

    @abstractmethod
    def _request(self, now_ms: int) -> calls.Request:
        """Request of the next attempt."""

    @abstractmethod
    def _answered(self, reply: calls.CallReply, now_ms: int) -> None:
        """Take in the final answer. Raises CoordinatorError if it is a refusal."""


class CommittingMember(Protocol):
    """The member of a commit."""

    ledger: Ledger
    commits: CommitRules

    def log_stale(self, error: StaleMember) -> None:
        """Log a commit that came too late."""


class CommitOperation(MemberOperation):
    """A commit, for the holdings that its owner knows.

    Before each attempt the ledger is asked whether they last. A cooperative rebalance does not
    affect a holding that lasts, so a commit that was refused because of one is repeated when the
    member has its assignment. While a lease is in doubt, nothing is sent.

    Args:
        claimed: holdings that it counts for; of a commit without offsets, the membership.
        waits: wait while a holding is suspended, with the timeout standing still; else the commit
            is refused.
    """

    def __init__(
        self,
        commit: Commit,
        claimed: frozenset[Holding],
        member: CommittingMember,
        random: Callable[[], float],
        now_ms: int,
        timeout_ms: int = GIVE_UP_MS,
        *,
        waits: bool = False,
    ) -> None:
        super().__init__(random, now_ms, timeout_ms, most_s=member.commits.pause_most_s)
        self.claimed = claimed
        self._commit = commit
        self._member, self._rules = member, member.commits
        self._waits = waits
        self._sent = member.commits.identity()
        self.is_waiting = False
        """True while the member is between assignments, and the commit was refused for that."""
        self._suspended_ms: int | None = None
        """Since when it waits for a holding that is suspended."""

    def check_deadline(self, now_ms: int) -> None:
        """Take in the time, and what has become of the holdings.

        An attempt that is under way when a holding ends is left to the coordinator to judge.
        """
        if not self.is_out and not self.is_done:
            suspended = self._rules.suspended(self.claimed, now_ms)
            refused_for = () if self._waits else suspended
            try:
                self._member.ledger.check(
                    self.claimed, suspended=refused_for, repeated=self.repeated
                )
                self._note_suspension(now_ms, is_suspended=bool(suspended))
            except StaleMember as error:
                self.end(error)
        if self._suspended_ms is None:
            super().check_deadline(now_ms)

    def next_deadline(self) -> int:
        """See `MemberOperation`; of one that is suspended, the member says when."""
        return super().next_deadline() if self._suspended_ms is None else FOREVER_MS

    def end(self, error: Exception | None = None) -> None:
        """End the operation; a commit that came too late is logged."""
        super().end(error)
        if isinstance(error, StaleMember):
            self._member.log_stale(error)

    def _note_suspension(self, now_ms: int, *, is_suspended: bool) -> None:
        if is_suspended and self._suspended_ms is None:
            self._suspended_ms, self.due_ms = now_ms, None
        elif self._suspended_ms is not None and not is_suspended:
            self._until_ms += now_ms - self._suspended_ms
            self._suspended_ms = None
            self.retry_now(now_ms)
        elif self.is_waiting and not self._rules.between_assignments():
            self.is_waiting = False
            self.retry_now(now_ms)

    def _timed_out(self) -> CoordinatorError:
        if not self.is_waiting:
            return super()._timed_out()
        return RebalanceInProgress(
            f"waited {self._timeout_ms / 1000:g} s for {self._rules.between_assignments()}"
        )

    def _request(self, now_ms: int) -> calls.CommitCall:
        self._sent = self._rules.identity()
        tokens = {held.partition: held.token for held in self.claimed if held.token}
        waited_ms = now_ms - self.begun_ms if self.repeated else 0
        return calls.CommitCall(self._sent, self._commit, tokens or None, waited_ms)

    def _answered(self, reply: calls.CallReply, now_ms: int) -> None:
        assert isinstance(reply, calls.Committed)
        ledger = self._member.ledger
        try:
            judge(reply, self._commit, repeated=self.repeated)
        except (RebalanceInProgress, StaleMember) as refusal:
            moved = self._rules.out_of_date(refusal, self._sent, now_ms)
            if not moved or ledger.why_ended(self.claimed):
                raise
            self.is_waiting = True
            self.check_deadline(now_ms)
            return
        lost = ledger.why_ended(held for held in self.claimed if held.token)
        if lost:  # A sink of the next holder's may not count what is under this token.
            raise StaleMember(
                "a partition was lost while the commit was under way, so that it is stored, and "
                f"counts for whoever holds it now: {lost}"
            )
        self.end()


class FetchOperation(MemberOperation):
    """A fetch of committed offsets; `value` is the result."""

    def __init__(
        self,
        group_id: str,
        partitions: tuple[TopicPartition, ...] | None,
        random: Callable[[], float],
        now_ms: int,
        timeout_ms: int = GIVE_UP_MS,
    ) -> None:
        super().__init__(random, now_ms, timeout_ms)
        self._fetch = calls.FetchCall(group_id, partitions)
        self.value: dict[TopicPartition, OffsetAndMetadata] = {}

    def _request(self, now_ms: int) -> calls.FetchCall:
        return self._fetch

    def _answered(self, reply: calls.CallReply, now_ms: int) -> None:
        assert isinstance(reply, calls.Fetched)
        if reply.code != Code.NONE:
            raise CoordinatorError(reply.message, reply.code)
        self.value = dict(reply.offsets)
        self.end()


class ReportOperation(MemberOperation):
    """A report of log end offsets, never retried. `is_known`: the coordinator knows the method."""

    def __init__(
        self,
        member: calls.Identity,
        logs: Mapping[TopicPartition, range],
        random: Callable[[], float],
        now_ms: int,
    ) -> None:
        super().__init__(random, now_ms)
        self._member = member
        self._logs = logs
        self.is_known = True

    def handle(self, request: calls.Request | None, result: calls.Result, now_ms: int) -> Next:
        self.is_known = not isinstance(result, calls.Unimplemented)
        self.end(result.error if isinstance(result, calls.BrokenCall) else None)
        return Next.GO_ON

    def _request(self, now_ms: int) -> calls.ReportCall:
        return calls.ReportCall(self._member, self._logs)

    def _answered(self, reply: calls.CallReply, now_ms: int) -> None:
        """Not called: `handle` ends the operation after its only attempt."""


def judge(reply: calls.Committed, commit: Commit, *, repeated: bool) -> None:
    """Check the reply to a commit; returns if everything is stored.

    Args:
        repeated: an earlier attempt may have been carried out; its offsets are no mismatch.
    Raises:
        RebalanceInProgress, StaleMember, FencedToken, OffsetMismatch, CommitFailed: the commit was
            refused.
    """
    refused = [code for code in reply.codes if code not in (Code.NONE, Code.OFFSET_MISMATCH)]
    if refused:
        code = refused[0]
        if code == Code.REBALANCE_IN_PROGRESS:
            raise RebalanceInProgress(reply.message, code)
        if code == Code.FENCED_TOKEN:
            raise FencedToken(_fenced(reply), code, reply.holders)
        raise (StaleMember if code in _STALE else CommitFailed)(reply.message, code)
    if reply.stored:
        if repeated and all(
            offset_number(commit.offsets[p]) == offset for p, offset in reply.stored.items()
        ):
            return  # An earlier attempt was carried out.
        raise OffsetMismatch(reply.message, "OFFSET_MISMATCH", reply.stored)


def _fenced(reply: calls.Committed) -> str:
    """The holders of partitions that were committed under old tokens, for a message."""
    holders = ((p, name or member_id or "nobody") for p, (member_id, name) in reply.holders.items())
    holders_named = [f"{some} held by {who}" for some, who in spelled_by(holders)]
    return "; ".join([*holders_named, *([reply.message] if reply.message else [])])
