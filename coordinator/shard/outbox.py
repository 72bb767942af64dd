"""What goes into a shard's step besides commands, and what comes out of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from coordinator.core.commands import Command
from coordinator.core.errors import ErrorCode
from coordinator.core.events import Event
from coordinator.core.ids import CallId
from coordinator.core.pauses import Pause
from coordinator.core.records import Record
from coordinator.core.replies import Reply
from coordinator.shard.followers import FetchedEntries, FetchEntries, FollowersChanged


class AppendFailure(Enum):
    """The four ways in which the log can fail, and no fifth."""

    FENCED = "fenced"
    """Another owner has the shard: stop at once."""
    AMBIGUOUS = "ambiguous"
    """Written or not, nobody knows: the same sequence number is tried again."""
    UNAVAILABLE = "unavailable"
    """Not written: try again after a back-off, for as long as the writes' own time-out."""
    TOO_LARGE = "too_large"
    """Not written, and never will be in this size."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has come to a deadline.

    pauses: times in which the node did not hear its members, in order.
    """

    pauses: tuple[Pause, ...] = ()


@dataclass(frozen=True, slots=True)
class Appended:
    """The log has acknowledged the entry, whose records are `encoded` as it has them."""

    sequence: int
    encoded: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class AppendFailed:
    """`is_lasting`: UNAVAILABLE for a reason that waiting does not change, such as a full disk:
    the writes are refused at once."""

    sequence: int
    failure: AppendFailure
    is_lasting: bool = False


@dataclass(frozen=True, slots=True)
class Activate:
    """Bring some more of the groups that were loaded to life: some milliseconds of work."""


@dataclass(frozen=True, slots=True)
class Unload:
    """Give the shard up: answer every parked call with `error` and accept no more."""

    error: ErrorCode = ErrorCode.NOT_COORDINATOR


Input = (
    Command | FetchEntries | FollowersChanged | Tick | Appended | AppendFailed | Activate | Unload
)


@dataclass(frozen=True, slots=True)
class Append:
    """The next entry of the log. At most one is under way for each shard.

    `attempt` counts from 1; a higher one repeats the same entry after AMBIGUOUS. After
    UNAVAILABLE, when nothing was written, the number is used again, for whatever then waits.
    """

    sequence: int
    base_offset: int
    records: tuple[Record, ...]
    attempt: int = 1


@dataclass(slots=True)
class Outbox:
    """Everything one step asks of the world outside, in the order of handling.

    1. `append` goes to the log. 2. `replies` go to their callers, each call once, and 3. `fetched`
    to followers. 4. Who is `in_sync` is told to the controller, and 5. `events` go to those who
    watch. 6. If it has `unloaded`, the shard is not stepped again. 7. Else come back with Tick at
    `next_deadline_ms` (None: no deadline is known).
    """

    append: Append | None = None
    replies: list[tuple[CallId, Reply]] = field(default_factory=list)
    fetched: list[tuple[CallId, FetchedEntries]] = field(default_factory=list)
    """The answers to followers."""
    in_sync: frozenset[int] | None = None
    """Who is in sync, if that has changed."""
    events: list[Event] = field(default_factory=list)
    unloaded: bool = False
    next_deadline_ms: int | None = None
