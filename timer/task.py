"""A timer task, which is also the node of the bucket's linked list.

A timer with tens of thousands of tasks must cancel any of them without a search. So
the task *is* the list node: it knows its two neighbours and its bucket, and removing
it touches only those. No wrapper object is made per task.

`deadline_ms` is the true deadline. It may be later than the bucket's expiration, because
moving a deadline to a later time only stores the number (see `Timer.rearm`); the timer
compares the two when the bucket expires. It is never earlier.

Weakness: a task can be pending in one timer at a time only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from timer.bucket import Bucket


class TimerTask:
    """A task to run at a deadline; override `run`.

    `deadline_ms` is in the milliseconds of the timer's owner, and 0 until the task is
    first added. `bucket`, `following` and `preceding` belong to the
    timer: read them in a debugger, write them nowhere.

    Source: Kafka `TimerTask` and `TimerTaskEntry`, here one object.
    """

    __slots__ = ("bucket", "deadline_ms", "following", "preceding")

    deadline_ms: int
    bucket: Bucket | None
    following: TimerTask
    preceding: TimerTask

    def __init__(self) -> None:
        self.deadline_ms = 0
        self.bucket = None
        # Not None, so that the hot paths need no check, and not `self`, so that a
        # finished task is no reference cycle and is freed without the collector.
        self.following = DETACHED
        self.preceding = DETACHED

    def run(self) -> None:
        """Do the work. Called once per arming, by `Timer.advance_to`, when the task is due.

        The task is no longer pending by then and may be added again from here.

        Raises:
            NotImplementedError: the subclass did not override it.
        """
        raise NotImplementedError

    @property
    def is_pending(self) -> bool:
        """True from `add` until the task runs or is cancelled."""
        return self.bucket is not None


class _Nowhere(TimerTask):
    __slots__ = ()

    def __init__(self) -> None:
        # No links: they could only point at DETACHED, which does not exist yet.
        pass


# Links of a task outside every bucket point here. They are only compared or
# overwritten, never followed.
DETACHED: Final[TimerTask] = _Nowhere()
