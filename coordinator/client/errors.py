"""What a member can raise. Each says what the library has tried already."""

from __future__ import annotations

from collections.abc import Mapping

from coordinator.assignors import TopicPartition


class CoordinatorError(Exception):
    """Any of the errors below. `code` is the name of the coordinator's error code, if it sent one.

    Codes that a member can mend by itself (a lost id, a rebalance, a moved coordinator)
    are mended and never raised by `poll`.
    """

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(f"{code}: {message}" if code else message)
        self.code = code


class FatalError(CoordinatorError):
    """The group will not have this member: trying again with the same settings cannot help.

    Another process owns its instance id, its protocols do not fit, the group is full, a
    setting is out of bounds, the coordinator does not know who it is (`code` UNAUTHENTICATED), does
    not let it in (PERMISSION_DENIED) or takes nothing of that size (RESOURCE_EXHAUSTED; where it
    only has no room now, the member waits). The member has stopped; its partitions were lost.
    """


class Unavailable(CoordinatorError):
    """No coordinator answered. Every bootstrap address was tried, with growing pauses, until
    the time for the call was over. It may or may not have taken effect."""


class CommitFailed(CoordinatorError):
    """The commit was refused and nothing of it is stored, but for partitions of a request that
    was not atomic. It was not tried again: what to do depends on who owns the partition now.
    """


class RebalanceInProgress(CommitFailed):
    """The group is between assignments. Commit again after the next `poll`."""


class StaleMember(CommitFailed):
    """The commit is for partitions that this member does not hold any more, or never did; if it
    holds them again, the commit belongs to the time before.

    The library says so before any call (the message begins with "nothing was sent"; an attempt
    before it, which nobody answered, may have been stored), or the coordinator does.
    """


class OffsetMismatch(CommitFailed):
    """An expected offset was not the one stored. `found` holds what is stored instead.

    A commit that was repeated after a broken connection and finds its own offset stored
    counts as done and does not raise.
    """

    def __init__(self, message: str, code: str, found: Mapping[TopicPartition, int]) -> None:
        super().__init__(message, code)
        self.found = dict(found)
