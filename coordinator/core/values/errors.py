"""Error codes of the protocol, the advice for each, and the exceptions of handlers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class ErrorCode(IntEnum):
    """Kafka's codes under Kafka's names and numbers; ours begin at 10001.

    `coordinator/v1/errors.proto` says the same, and a test compares the two.
    """

    NONE = 0
    UNKNOWN_SERVER_ERROR = -1
    UNKNOWN_TOPIC_OR_PARTITION = 3
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    GROUP_AUTHORIZATION_FAILED = 30
    UNSUPPORTED_VERSION = 35
    INVALID_PARTITIONS = 37
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    KAFKA_STORAGE_ERROR = 56
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    UNSTABLE_OFFSET_COMMIT = 88
    UNRELEASED_INSTANCE_ID = 111
    OFFSET_MISMATCH = 10001
    FENCED_TOKEN = 10002


ADVICE: dict[ErrorCode, str] = {
    ErrorCode.NONE: "",
    ErrorCode.UNKNOWN_SERVER_ERROR: "the coordinator failed; its log says why",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "no topic has this name",
    ErrorCode.MESSAGE_TOO_LARGE: "send less in one request",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "shorten the metadata of this partition",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "the group is being loaded; retry the same node",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "look the coordinator up again and retry",
    ErrorCode.NOT_COORDINATOR: "another node coordinates this group; look it up again and retry",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "give a name that Kafka allows for a topic",
    ErrorCode.ILLEGAL_GENERATION: "the group has moved on; keep the member id and join again",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        "offer the group's protocol type and a protocol that all its members list"
    ),
    ErrorCode.INVALID_GROUP_ID: "give a group id that is not empty",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group does not know this member; join with an empty id",
    ErrorCode.INVALID_SESSION_TIMEOUT: "ask for a session timeout within the coordinator's bounds",
    ErrorCode.REBALANCE_IN_PROGRESS: "the group is rebalancing; join again with this member id",
    ErrorCode.UNSUPPORTED_VERSION: "this coordinator does not offer that yet",
    ErrorCode.INVALID_PARTITIONS: "give a number of partitions that the topic can have",
    ErrorCode.NOT_CONTROLLER: "another node is the controller; ask that one",
    ErrorCode.INVALID_REQUEST: "correct the request",
    ErrorCode.NON_EMPTY_GROUP: "stop the group's members first",
    ErrorCode.GROUP_ID_NOT_FOUND: "no group has this id",
    ErrorCode.MEMBER_ID_REQUIRED: "join again at once with the member id given here",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the group has as many members as it may have",
    ErrorCode.FENCED_INSTANCE_ID: "another process has taken this instance id; stop this one",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "a member is subscribed to this topic",
    ErrorCode.UNSTABLE_OFFSET_COMMIT: "a commit is on its way; retry",
    ErrorCode.UNRELEASED_INSTANCE_ID: "another process has this name; wait until it has left",
    ErrorCode.FENCED_TOKEN: "the partition was given to another member; stop working on it",
    ErrorCode.OFFSET_MISMATCH: "another offset is stored than the one expected; read it first",
}

SESSION_ENDED = "the session has ended; give up what it held, and attach without a session_id"


def advice(error: ErrorCode) -> str:
    """Return what a client can do about `error`, in half a sentence; empty for NONE."""
    return ADVICE.get(error, error.name.replace("_", " ").lower())


class Refused(Exception):
    """A request is refused with an error code. Raised before anything was changed.

    Args:
        error: the code of the answer.
        message: what to do about it; the advice for the code by default.
        member_id: the member id of a JoinGroup answer, if it is not the request's.
        retry_after_ms: when an Attach may be tried again.
    """

    def __init__(
        self,
        error: ErrorCode,
        message: str = "",
        *,
        member_id: str | None = None,
        retry_after_ms: int = 0,
    ) -> None:
        super().__init__(error, message)
        self.error = error
        self.message = message or advice(error)
        self.member_id = member_id
        self.retry_after_ms = retry_after_ms


@dataclass(frozen=True, slots=True)
class Refuse:
    """A rule that refuses every request."""

    error: ErrorCode
    message: str = ""

    def __call__(self, *_: object) -> None:
        raise self.refused

    @property
    def refused(self) -> Refused:
        return Refused(self.error, self.message)


def session_refused(error: ErrorCode = ErrorCode.UNKNOWN_MEMBER_ID) -> Refused:
    """The refusal of a member of a session group, which attaches and never joins."""
    return Refused(error, SESSION_ENDED if error is ErrorCode.UNKNOWN_MEMBER_ID else "")


class MustWait(Exception):
    """The answer depends on a write without a result yet. Raised before anything was changed.

    The request is handled again once the write has a result, and refused with NOT_COORDINATOR if
    that takes too long.

    Args:
        deadline_ms: time-out of that write, epoch milliseconds.
    """

    def __init__(self, deadline_ms: int) -> None:
        super().__init__(deadline_ms)
        self.deadline_ms = deadline_ms


class InvariantViolated(AssertionError):
    """An invariant of a group is violated: an internal error. The shard stops and reloads."""
