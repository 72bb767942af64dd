"""Values that a member's machine and its driver exchange: requests, replies, failures, actions.

The machine returns a `MemberAction`; the driver carries it out, and gives each `MemberCall` its
`Answer`. No transport is known here: `wire.py` alone translates to protobuf and gRPC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum, StrEnum

from coordinator.assignors import TopicPartition
from coordinator.client.offsets import Commit, OffsetAndMetadata


class Code(StrEnum):
    """Error codes of the coordinator that a member handles; replies may carry others."""

    NONE = "NONE"
    COORDINATOR_LOAD_IN_PROGRESS = "COORDINATOR_LOAD_IN_PROGRESS"
    COORDINATOR_NOT_AVAILABLE = "COORDINATOR_NOT_AVAILABLE"
    FENCED_INSTANCE_ID = "FENCED_INSTANCE_ID"
    FENCED_TOKEN = "FENCED_TOKEN"  # noqa: S105  # An error code, no password.
    GROUP_AUTHORIZATION_FAILED = "GROUP_AUTHORIZATION_FAILED"
    GROUP_ID_NOT_FOUND = "GROUP_ID_NOT_FOUND"
    GROUP_MAX_SIZE_REACHED = "GROUP_MAX_SIZE_REACHED"
    ILLEGAL_GENERATION = "ILLEGAL_GENERATION"
    INCONSISTENT_GROUP_PROTOCOL = "INCONSISTENT_GROUP_PROTOCOL"
    INVALID_GROUP_ID = "INVALID_GROUP_ID"
    INVALID_REQUEST = "INVALID_REQUEST"
    INVALID_SESSION_TIMEOUT = "INVALID_SESSION_TIMEOUT"
    MEMBER_ID_REQUIRED = "MEMBER_ID_REQUIRED"
    NOT_COORDINATOR = "NOT_COORDINATOR"
    OFFSET_MISMATCH = "OFFSET_MISMATCH"
    REBALANCE_IN_PROGRESS = "REBALANCE_IN_PROGRESS"
    UNKNOWN_MEMBER_ID = "UNKNOWN_MEMBER_ID"
    UNSUPPORTED_VERSION = "UNSUPPORTED_VERSION"


ELSEWHERE = frozenset({Code.NOT_COORDINATOR, Code.COORDINATOR_NOT_AVAILABLE})
"""Codes of a node that does not coordinate the group (any more)."""


# --- Requests ---


@dataclass(frozen=True, slots=True)
class Identity:
    """Fields that identify a member to its group."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None


@dataclass(frozen=True, slots=True)
class FindCoordinator:
    """A FindCoordinator, to one bootstrap address."""

    group_id: str
    address: str


@dataclass(frozen=True, slots=True)
class Join:
    """A JoinGroup. `protocols`: assignor name and subscription bytes, best first. `stopped`: how
    long ago, in ms, the owner stopped to work on partitions that an outage has cost."""

    member: Identity
    protocols: tuple[tuple[str, bytes], ...]
    protocol_type: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    client_id: str
    reason: str
    stopped: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Sync:
    """A SyncGroup. `assignments`: member id and assignment bytes; empty but from the leader."""

    member: Identity
    protocol_type: str
    protocol_name: str
    assignments: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Beat:
    """A Heartbeat."""

    member: Identity


@dataclass(frozen=True, slots=True)
class LeaveCall:
    """A LeaveGroup."""

    member: Identity
    reason: str


@dataclass(frozen=True, slots=True)
class CommitCall:
    """An OffsetCommit. `tokens`: of a session member's holdings. `waited_ms`: since it was first
    sent, without an answer yet."""

    member: Identity
    commit: Commit
    tokens: Mapping[TopicPartition, int] | None = None
    waited_ms: int = 0


@dataclass(frozen=True, slots=True)
class FetchCall:
    """An OffsetFetch; `partitions` None: all that are stored."""

    group_id: str
    partitions: tuple[TopicPartition, ...] | None


@dataclass(frozen=True, slots=True)
class ReportCall:
    """A ReportLogEnds: the offsets that logs have."""

    member: Identity
    logs: Mapping[TopicPartition, range]


Request = FindCoordinator | Join | Sync | Beat | LeaveCall | CommitCall | FetchCall | ReportCall


# --- Replies ---


@dataclass(frozen=True, slots=True)
class Found:
    """The answer to a FindCoordinator: HOST:PORT, to which the driver is connected from now on."""

    address: str


@dataclass(frozen=True, slots=True)
class GenerationMember:
    """A member of the generation, as its leader receives it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged:
    """The answer to a Beat, a Leave or a ReportLogEnds; base of most others."""

    code: str = Code.NONE
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined(Acknowledged):
    """The answer to a Join. Only the leader is given `members`."""

    member_id: str = ""
    generation: int = -1
    leader: str = ""
    protocol_name: str = ""
    members: tuple[GenerationMember, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Synced(Acknowledged):
    """The answer to a Sync."""

    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The answer to a CommitOffsets.

    `codes`: the distinct error codes of its partitions, sorted by number. `stored`: the current
    offsets of partitions whose expected offset did not match. `holders`: member id and name of
    those who hold the partitions whose token was not the holding's.
    """

    codes: tuple[str, ...]
    stored: Mapping[TopicPartition, int] = field(default_factory=dict)
    message: str = ""
    holders: Mapping[TopicPartition, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched(Acknowledged):
    """The answer to a FetchOffsets; offset -1: nothing is stored."""

    offsets: Mapping[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)


CallReply = Found | Joined | Synced | Acknowledged | Committed | Fetched


# --- Failures: a call without a reply ---


@dataclass(frozen=True, slots=True)
class CallUnanswered:
    """No answer came, or the connection broke. The request may have been carried out."""

    detail: str


@dataclass(frozen=True, slots=True)
class Dropped:
    """An overloaded or stopping coordinator dropped the call. Ask it again after a pause, without
    rediscovery, which would only add load."""

    detail: str


@dataclass(frozen=True, slots=True)
class Overloaded:
    """The coordinator refused for lack of room, and says when to try again."""

    detail: str
    after_ms: int


@dataclass(frozen=True, slots=True)
class RefusedCall:
    """The coordinator refused the caller, or the request as it is.

    `code`: UNAUTHENTICATED, PERMISSION_DENIED, RESOURCE_EXHAUSTED (too large) or INVALID_ARGUMENT.
    """

    detail: str
    code: str


@dataclass(frozen=True, slots=True)
class Unimplemented:
    """The server does not know the method."""

    detail: str


@dataclass(frozen=True, slots=True)
class BrokenCall:
    """The call could not be made: a token's file is gone, say. Its owner is notified."""

    error: Exception


Failure = CallUnanswered | Dropped | Overloaded | RefusedCall | Unimplemented | BrokenCall
Result = CallReply | Failure


class Next(Enum):
    """The next step of a machine after a result."""

    GO_ON = "go on"
    PAUSE = "pause, then try again"
    REDISCOVER = "pause, look the coordinator up, then try again"


# --- Actions and answers ---


@dataclass(frozen=True, slots=True, eq=False)
class MemberCall:
    """Make one attempt, and hand in its `Answer`. Compared by identity.

    A FindCoordinator goes to the address that it names, and connects the driver to the coordinator
    found. Every other request uses the current connection, whose number is `connection`.
    `requester` is the part of the machine that receives the answer.
    """

    request: Request
    timeout_ms: int
    connection: int
    requester: object


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel a call; its answer is not needed any more."""

    call: MemberCall


@dataclass(frozen=True, slots=True)
class HangUp:
    """Close the connection; calls under way on it fail as `CallUnanswered`, and streams end."""


@dataclass(frozen=True, slots=True, eq=False)
class OpenStream:
    """Open the stream of a session member over the current connection. Compared by identity.

    What it says is handed in as `Received`, and its end as `StreamClosed`.
    """

    connection: int


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message on a stream, after those before it."""

    stream: OpenStream
    message: object


@dataclass(frozen=True, slots=True)
class CloseStream:
    """End a stream once everything is sent; nothing of it is received any more."""

    stream: OpenStream


class Level(IntEnum):
    """Level of a log message; the numbers are those of `logging`."""

    DEBUG = 10
    INFO = 20
    WARNING = 30


@dataclass(frozen=True, slots=True)
class LogMessage:
    """Write one line to the log of the member's process; its text names member and group.

    `group_id` and `member_id` are fields of its log record, `group` and `member`.
    """

    level: Level
    text: str
    group_id: str
    member_id: str


MemberAction = MemberCall | Cancel | HangUp | OpenStream | Send | CloseStream | LogMessage


@dataclass(frozen=True, slots=True)
class Answer:
    """Result of a call."""

    call: MemberCall
    result: Result


@dataclass(frozen=True, slots=True)
class Received:
    """A message of a stream."""

    stream: OpenStream
    message: object


@dataclass(frozen=True, slots=True)
class StreamClosed:
    """The end of a stream that was not closed here. `result`: why, if it is known."""

    stream: OpenStream
    result: Failure
