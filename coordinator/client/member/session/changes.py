"""Changes of what a session member holds, in the order in which it hears of them."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.assignors import TopicPartition

NO_OFFSET = -1


@dataclass(frozen=True, slots=True)
class Granted:
    """The partition is this member's from now on, under `token`. `offset`: committed, as of when
    the coordinator told so; -1: none. `paused`: an operator wants nobody to work on it now."""

    partition: TopicPartition
    token: int
    offset: int = NO_OFFSET
    paused: bool = False


@dataclass(frozen=True, slots=True)
class Warming:
    """The partition will be this member's: make ready, and call `ready`. `position`: where the
    holder before has stopped, in mode copy; -1: unknown."""

    partition: TopicPartition
    handoff_id: int
    offset: int = NO_OFFSET
    position: int = NO_OFFSET


@dataclass(frozen=True, slots=True)
class Draining:
    """Take in nothing more, finish, commit, and call `released`, by `deadline_ms` (epoch
    milliseconds of the member's clock); then it is lost. None: there is no limit."""

    partition: TopicPartition
    token: int
    deadline_ms: int | None


@dataclass(frozen=True, slots=True)
class Lost:
    """The partition belongs to another member, or may: stop at once, without drain and commit, and
    call `released` when nothing of it runs any more. One that was only warming is dropped
    (`was_warming`; its token is 0), and needs no call."""

    partition: TopicPartition
    token: int
    reason: str
    was_warming: bool = False


@dataclass(frozen=True, slots=True)
class Suspended:
    """The coordinator has not been heard for too long: no effect may leave the process."""

    partition: TopicPartition
    token: int


@dataclass(frozen=True, slots=True)
class Resumed:
    """The partition is this member's still, under the same token."""

    partition: TopicPartition
    token: int


@dataclass(frozen=True, slots=True)
class Stopping:
    """The member has stopped and will not attach again."""

    reason: str


Change = Granted | Warming | Draining | Lost | Suspended | Resumed | Stopping
"""One change; `SessionMember.changes` yields them."""
