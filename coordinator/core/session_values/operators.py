"""Requests of operators about session groups, and the answers, as values."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from coordinator.core.errors import ErrorCode, Refused
from coordinator.core.ids import NO_OFFSET, NO_TIME, CallId, TopicPartition
from coordinator.core.session_values.policy import Policy
from coordinator.core.session_values.records import Phase, SessionMemberStored
from coordinator.core.session_values.requests import Standing

DEFAULTS = Policy()

# --- Answers ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SessionMemberState:
    """A member, or a process that waits for the name of one.

    record: durable; of a waiting process the one it would get. lease_ms: the lease that counts,
    which is the one that the member was told last. last_seen_ms, lease_ends_ms: epoch
    milliseconds. partitions: number that it holds, in any phase. why: why it has nothing; empty if
    it has something. waits_for: of a waiting process, the id of the member that has its name.
    differing_wishes: settings of the policy that it asked for and that have other values.
    """

    record: SessionMemberStored
    standing: Standing
    is_suspect: bool
    lease_ms: int
    last_seen_ms: int
    lease_ends_ms: int
    partitions: int = 0
    is_ready: bool = True
    is_overloaded: bool = False
    is_stalled: bool = False
    leaves_at_ms: int = NO_TIME
    why: str = ""
    waits_for: str = ""
    differing_wishes: tuple[tuple[str, object], ...] = ()


@dataclass(frozen=True, slots=True)
class DescribedTopic:
    """Holders of one topic, in columns: one item a partition.

    holders: member ids; empty: nobody. tokens: of the grants; 0: none. declared: number of
    partitions that live members declare.
    """

    topic: str
    declared: int
    holders: tuple[str, ...]
    tokens: array[int]


@dataclass(frozen=True, slots=True)
class HandoffRow:
    """An open hand-off. Times are epoch milliseconds; -1: unknown, or no limit.

    source: member id of the holder; empty in COPY. successor: empty if none was found yet.
    waits_for: id of the member whose word is awaited; empty: the log's, or the planner's.
    reason: why the partition moves, as a code of `MoveReason`; empty: unknown.
    """

    topic_partition: TopicPartition
    handoff_id: int
    phase: Phase
    source: str
    successor: str
    opened_at_ms: int
    phase_since_ms: int
    deadline_ms: int
    waits_for: str
    is_ready: bool
    position: int = NO_OFFSET
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ReservationRow:
    """Partitions that are reserved for a name, until `until_ms` at the latest (epoch)."""

    name: str
    until_ms: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class FreeRow:
    """Declared partitions of one topic that nobody holds, for one reason.

    why: a code. `plan_due`: the next plan looks for a holder; the others are not placeable now.
    ranges: first and last, both included.
    """

    topic: str
    ranges: tuple[tuple[int, int], ...]
    why: str


@dataclass(frozen=True, slots=True)
class SessionGroupReply:
    """A session group as it is now. Times are epoch milliseconds; -1: none.

    policy: the one in force. is_policy_stored: False: nobody has chosen one yet.
    plan_due_ms: when the next plan runs.
    """

    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    group_id: str = ""
    state: str = ""
    policy: Policy = DEFAULTS
    is_policy_stored: bool = False
    now_ms: int = NO_TIME
    planned_at_ms: int = NO_TIME
    plan_due_ms: int = NO_TIME
    members: tuple[SessionMemberState, ...] = ()
    topics: tuple[DescribedTopic, ...] = ()
    handoffs: tuple[HandoffRow, ...] = ()
    reservations: tuple[ReservationRow, ...] = ()
    free: tuple[FreeRow, ...] = ()


@dataclass(frozen=True, slots=True)
class PolicyReply:
    """The policy in force from now on."""

    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    policy: Policy = DEFAULTS


@dataclass(frozen=True, slots=True)
class EvictReply:
    """The evicted member or name.

    partitions: number that it held, or that were reserved for its name.
    """

    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    member_id: str = ""
    name: str = ""
    partitions: int = 0


# --- Requests -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeSessionGroup:
    call_id: CallId
    group_id: str

    def refusal(self, refused: Refused) -> SessionGroupReply:
        """The answer that says why it was refused."""
        return SessionGroupReply(refused.error, refused.message, self.group_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetGroupPolicy:
    """Change a policy. `changes`: (setting, value); `defaults`: settings that get their default."""

    call_id: CallId
    group_id: str
    changes: tuple[tuple[str, object], ...] = ()
    defaults: tuple[str, ...] = ()

    def refusal(self, refused: Refused) -> PolicyReply:
        """The answer that says why it was refused."""
        return PolicyReply(refused.error, refused.message)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictMember:
    """Take everything from a member, and end its session. It has a member id or a name.

    is_gone: the operator vouches that the process has ended. is_dry_run: only look.
    """

    call_id: CallId
    group_id: str
    member_id: str = ""
    member_name: str = ""
    is_gone: bool = False
    is_dry_run: bool = False

    def refusal(self, refused: Refused) -> EvictReply:
        """The answer that says why it was refused."""
        return EvictReply(refused.error, refused.message)


OperatorRequest = DescribeSessionGroup | SetGroupPolicy | EvictMember
OperatorReply = SessionGroupReply | PolicyReply | EvictReply
