"""Errors that a member raises. Each says what the library has tried already."""

from __future__ import annotations

from collections.abc import Mapping

from coordinator.assignors import TopicPartition


class CoordinatorError(Exception):
    """Base of the errors below. `code`: name of the coordinator's error code; empty: it sent none.

    Conditions that a member recovers from by itself (a lost id, a rebalance, a moved coordinator)
    are never raised by `poll`.
    """

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(f"{code}: {message}" if code else message)
        self.code = code


class FatalError(CoordinatorError):
    """The group refuses this member: trying again with the same settings cannot help.

    Another process owns its instance id, its protocols are inconsistent with the group's, the group
    is full, a setting is out of bounds, or the coordinator refuses its credentials (`code`
    UNAUTHENTICATED), its access (PERMISSION_DENIED) or the size of its request (RESOURCE_EXHAUSTED;
    a coordinator that only has no room now is asked again). The member has stopped; its partitions
    were lost.
    """


class Unavailable(CoordinatorError):
    """No coordinator answered. Every bootstrap address was tried, with growing pauses, until
    the call's timeout. The call may or may not have taken effect."""


class CannotEmbed(CoordinatorError):
    """No node can be run for a store. The message has the reason, as the node told it."""


class NoNode(Unavailable):
    """No node of a store was there, or began to serve, in time."""


class NotReachable(Unavailable):
    """A node serves the store, and cannot be reached from this machine."""


class CommitFailed(CoordinatorError):
    """The commit was refused. Of one that is not atomic, some partitions may be stored.

    It was not tried again: what to do depends on who owns the partition now.
    """


class RebalanceInProgress(CommitFailed):
    """The group is between assignments. Commit again after the next `poll`."""


class StaleMember(CommitFailed):
    """The commit is for partitions that this member does not hold any more, or never did; or for a
    holding that ended before the partition was assigned to it again.

    Either the library refuses it before any call (the message begins with "nothing was sent"; an
    earlier attempt without an answer may have been stored), or the coordinator does.
    """


class FencedToken(StaleMember):
    """Partitions of a session group were given to other members: the token of the commit is an old
    one. `holders`: member id and name of the holder by partition; both are empty if nobody holds
    it, and the name if the holder has none."""

    def __init__(
        self, message: str, code: str, holders: Mapping[TopicPartition, tuple[str, str]]
    ) -> None:
        super().__init__(message, code)
        self.holders = dict(holders)


class OffsetMismatch(CommitFailed):
    """An expected offset was not the one stored. `found`: the stored offset by partition.

    Not raised for a commit that was repeated after a broken connection and finds its own offset
    stored: it has succeeded.
    """

    def __init__(self, message: str, code: str, committed: Mapping[TopicPartition, int]) -> None:
        super().__init__(message, code)
        self.found = dict(committed)


def reason_of(error: BaseException) -> str:
    """An error in one line, with its type: `ValueError: the text`."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
