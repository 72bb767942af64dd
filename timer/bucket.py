"""One slot of a wheel: a circular list of tasks, and its expiration time.

The list has a root node which is never run: root.following is the oldest task,
root.preceding the youngest, and an empty bucket is a root that points at itself.
With a root there is no first-or-last case, so linking is four stores and
unlinking is two.

A bucket has no counter: the timer counts pending tasks, and the root shows whether
the bucket is empty.

Linking and unlinking of single tasks are written out in `Timer.add` and
`Timer.cancel`, where the numbers are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from timer.task import DETACHED, TimerTask

if TYPE_CHECKING:
    from timer.timer import Timer

# Earlier than every deadline. A bucket with this expiration is not queued.
NO_EXPIRATION_MS: Final = -(1 << 62)


class Bucket:
    """The tasks of one slot, in the order they came in.

    `expiration_ms` is the start of the tick the slot stands for now, while the
    bucket is queued, and `NO_EXPIRATION_MS` otherwise. `rank` orders buckets that
    expire together: the coarser the level, the smaller.

    Source: Kafka `TimerTaskList`.
    """

    __slots__ = ("expiration_ms", "rank", "root", "timer")

    def __init__(self, timer: Timer, rank: int) -> None:
        self.timer = timer
        self.rank = rank
        self.expiration_ms: int = NO_EXPIRATION_MS
        self.root = TimerTask()
        self.root.following = self.root
        self.root.preceding = self.root

    @property
    def is_empty(self) -> bool:
        """True if the bucket has no tasks."""
        return self.root.following is self.root

    def pop_first(self) -> TimerTask | None:
        """Take the oldest task out; None from an empty bucket."""
        root = self.root
        task = root.following
        if task is root:
            return None
        following = task.following
        root.following = following
        following.preceding = root
        task.following = DETACHED
        task.preceding = DETACHED
        task.bucket = None
        return task

    def take_all(self, other: Bucket) -> None:
        """Move all tasks of `other` to the end of this bucket, in O(1).

        The `bucket` of the tasks still is `other`, so this is only for two buckets of
        one timer that are both outside the queue.
        """
        assert self.timer is other.timer
        assert self.expiration_ms == other.expiration_ms == NO_EXPIRATION_MS
        theirs = other.root
        if theirs.following is theirs:
            return
        ours = self.root
        last = ours.preceding
        last.following = theirs.following
        theirs.following.preceding = last
        theirs.preceding.following = ours
        ours.preceding = theirs.preceding
        theirs.following = theirs
        theirs.preceding = theirs

    def __iter__(self) -> Iterator[TimerTask]:
        """Iterate over the tasks, oldest first. The bucket must not change meanwhile."""
        task = self.root.following
        while task is not self.root:
            yield task
            task = task.following
