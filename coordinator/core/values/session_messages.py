"""Messages between a member of a session group and the coordinator, as values.

A stream has a call id, as a call has. Its Attach is answered by an `AttachReply`; what comes after
it has no answer of its own: it changes what the stream is sent next, or ends it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from coordinator.core.values.errors import ErrorCode, Refused
from coordinator.core.values.ids import NO_OFFSET, NO_TIME, NO_TOKEN, CallId, TopicPartition
from coordinator.core.values.policy import Policy


class Order(Enum):
    """Order about a partition. The values are codes."""

    ACTIVE = "active"
    WARM = "warm"
    DRAIN = "drain"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class OrderedPartition:
    """One partition. `remaining_ms`: time that a phase has left; 0: no limit.

    `offset`: committed; `position`: where the copy begins. -1: none.
    """

    topic: str
    partition: int
    order: Order
    token: int = NO_TOKEN
    handoff_id: int = 0
    remaining_ms: int = 0
    offset: int = NO_OFFSET
    position: int = NO_OFFSET


@dataclass(frozen=True, slots=True)
class Orders:
    """A member's orders. `based_on`: the version before, of which it is the difference; -1: whole.

    `answers`: number of the heartbeat that asked for the whole; -1: none did. `why`: why there
    are none. `is_part`: more partitions of the same version follow.
    """

    version: int
    based_on: int
    partitions: tuple[OrderedPartition, ...]
    answers: int = -1
    why: str = ""
    is_part: bool = False


@dataclass(frozen=True, slots=True)
class HeartbeatAck:
    """The newest heartbeat that was taken in, and partitions that it does not renew."""

    number: int
    expiring: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class ToMember:
    """Everything there is to say to a member now. `attached`: it waited, and is a member now."""

    ack: HeartbeatAck | None
    orders: Orders | None
    attached: bool = False


class Standing(Enum):
    """Standing of an attached process. The values are codes."""

    MEMBER = "member"
    WAITING = "waiting"
    """Another process has its name, and may be alive."""


@dataclass(frozen=True, slots=True)
class AttachReply:
    """Answer to an Attach; with an error, the stream ends.

    `retry_after_ms`: when a waiting process inherits at the latest, or when a refused one may ask
    again.
    """

    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    standing: Standing = Standing.MEMBER
    session_id: str = ""
    member_id: str = ""
    lease_ms: int = 0
    retry_after_ms: int = 0
    orders: Orders | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attach:
    """A member's stream begins.

    `held`: all partitions that the member has not released, with their tokens. `epoch`: the highest
    that it has seen; `is_ahead`: that is above the epoch of the coordinator. `wishes`: for the
    policy, used if the group has none yet. `wished`: the settings that it names; others have their
    defaults. `silent_ms`: time since it sent what was acknowledged last; 0: not known.
    `keep_classic`: refuse it if classic members have used the group last.
    """

    call_id: CallId
    group_id: str
    incarnation: str
    started_at_ms: int = 0
    name: str = ""
    session_id: str = ""
    stream_number: int = 0
    principal: str = ""
    client_id: str = ""
    client_host: str = ""
    rack: str = ""
    topics: tuple[tuple[str, int], ...] = ()
    capacity: float = 1.0
    max_partitions: int | None = None
    drain_ms: int | None = None
    revision: str = ""
    deployment: str = ""
    ready: bool = True
    wishes: Policy | None = None
    wished: tuple[str, ...] = ()
    held: tuple[tuple[str, int, int], ...] = ()
    epoch: int = 0
    is_ahead: bool = False
    silent_ms: int = 0
    keep_classic: bool = False

    def refusal(self, refused: Refused) -> AttachReply:
        """The answer that says why the Attach was refused."""
        return AttachReply(refused.error, refused.message, retry_after_ms=refused.retry_after_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionHeartbeat:
    """A heartbeat. `applied`: version of the orders that the member has applied.

    `held`: as in Attach; None: unchanged. `progress`: rises while its working side gets on.
    """

    stream_id: CallId
    group_id: str
    number: int
    applied: int = 0
    whole: bool = False
    progress: int = 0
    ready: bool = True
    overloaded: bool = False
    held: tuple[tuple[str, int, int], ...] | None = None
    log_ends: tuple[ReportedLog, ...] = ()


class AckKind(Enum):
    """Result of an order at a member."""

    RELEASED = "released"
    READY = "ready"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class PartitionAck:
    """One partition. `token`: of RELEASED, and of a REFUSED that was held."""

    topic: str
    partition: int
    kind: AckKind
    token: int = 0
    handoff_id: int = 0
    position: int = NO_OFFSET
    reason: str = ""

    @property
    def topic_partition(self) -> TopicPartition:
        return self.topic, self.partition


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionAck:
    stream_id: CallId
    group_id: str
    partitions: tuple[PartitionAck, ...]


class LeaveKind(Enum):
    """Way in which a member leaves."""

    NOW = "now"
    DRAIN = "drain"
    RETURN = "return"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLeave:
    """`within_ms`: deadline of DRAIN, or when it will be back at the latest."""

    stream_id: CallId
    group_id: str
    kind: LeaveKind
    within_ms: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEnded:
    """A stream has ended, which says nothing about its member."""

    stream_id: CallId
    group_id: str


class GoAwayReason(Enum):
    """Reason for which the coordinator ends a stream. The values are codes."""

    MOVED = "moved"
    SUPERSEDED = "superseded"
    SHUTTING_DOWN = "shutting_down"
    LEFT = "left"
    DRAINED = "drained"


@dataclass(frozen=True, slots=True)
class GoAway:
    reason: GoAwayReason


def unloaded(error: ErrorCode) -> GoAway:
    """The end of all streams of a shard that is given up with this error."""
    is_shutdown = error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    return GoAway(GoAwayReason.SHUTTING_DOWN if is_shutdown else GoAwayReason.MOVED)


@dataclass(frozen=True, slots=True)
class StreamRefused:
    """The stream ends with an error."""

    error: ErrorCode
    message: str = ""
    retry_after_ms: int = NO_TIME


ReportedLog = tuple[str, int, int] | tuple[str, int, int, int]
"""Topic and partition of a log, the offset after its last row, and that of its first (else 0)."""

StreamEnd = GoAway | StreamRefused
SessionInput = SessionHeartbeat | SessionAck | SessionLeave | StreamEnded
