"""Events of session groups, beside those of the journal; those of records once durable."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.core.session_values.records import EndCause


@dataclass(frozen=True, slots=True)
class _SessionEvent:
    """`name`: the place that is stable across restarts; empty: none."""

    group_id: str
    member_id: str
    name: str
    client_id: str
    client_host: str


@dataclass(frozen=True, slots=True)
class SessionMemberJoined(_SessionEvent):
    """A member was admitted; a member that comes back on another stream was not."""

    lease_ms: int


@dataclass(frozen=True, slots=True)
class SessionMemberEnded(_SessionEvent):
    """A session has ended. `last_seen_ms`: epoch; -1: not since this node took the group over."""

    cause: EndCause
    partitions: int
    last_seen_ms: int


@dataclass(frozen=True, slots=True)
class SessionMemberSuspect(_SessionEvent):
    """A member's stream has ended; it keeps what it has until its lease ends."""

    partitions: int


@dataclass(frozen=True, slots=True)
class SessionMemberFlaps(_SessionEvent):
    """A member, or others from its address, come and go many times a second, and are asked to wait.
    At most once a minute for each name, or process and address."""

    times: int


@dataclass(frozen=True, slots=True)
class SessionPolicyChanged:
    """An operator, or a first member, has chosen a policy; `settings`: those without defaults."""

    group_id: str
    settings: str


@dataclass(frozen=True, slots=True)
class SessionCommitFenced:
    """A commit for partitions that its member does not hold under the tokens that it gave."""

    group_id: str
    member_id: str
    partitions: int


@dataclass(frozen=True, slots=True)
class PartitionRefused:
    """Three in a row would not have a partition: nobody is asked for `wait_ms`."""

    group_id: str
    topic: str
    partition: int
    wait_ms: int


SessionEvent = (
    SessionMemberJoined
    | SessionMemberEnded
    | SessionMemberSuspect
    | SessionMemberFlaps
    | SessionPolicyChanged
    | SessionCommitFenced
    | PartitionRefused
)
