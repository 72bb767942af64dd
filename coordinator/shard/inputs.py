"""Inputs of a shard's step besides commands, and its effects."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from coordinator.core.pauses import Pause
from coordinator.core.values.commands import Command
from coordinator.core.values.effects import Effects
from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.ids import CallId
from coordinator.core.values.records import Record
from coordinator.shard.followers import FetchedEntries, FetchEntries, FollowersChanged


class AppendFailure(Enum):
    """The four kinds of failure of an append."""

    FENCED = "fenced"
    """Another owner has taken the shard over: stop at once."""
    AMBIGUOUS = "ambiguous"
    """Unknown whether it was written: retry under the same sequence number."""
    UNAVAILABLE = "unavailable"
    """Not written: retry after a back-off until the time-out of the writes."""
    TOO_LARGE = "too_large"
    """Not written: too large for the store; retrying does not help."""


@dataclass(frozen=True, slots=True)
class Tick:
    """A deadline has been reached.

    `pauses`: intervals in which the node did not process its members' calls, in order.
    """

    pauses: tuple[Pause, ...] = ()


@dataclass(frozen=True, slots=True)
class Appended:
    """The log has acknowledged an entry; `encoded` are its records as written."""

    sequence: int
    encoded: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class AppendFailed:
    """The log has refused an entry.

    `is_lasting`: UNAVAILABLE for a reason that retrying does not change, such as a full disk; the
    writes are refused at once.
    """

    sequence: int
    failure: AppendFailure
    is_lasting: bool = False


@dataclass(frozen=True, slots=True)
class Activate:
    """Activate some more of the loaded groups: some milliseconds of work."""


@dataclass(frozen=True, slots=True)
class Unload:
    """Give the shard up: answer every parked call with `error` and refuse later ones."""

    error: ErrorCode = ErrorCode.NOT_COORDINATOR


Input = (
    Command | FetchEntries | FollowersChanged | Tick | Appended | AppendFailed | Activate | Unload
)


@dataclass(frozen=True, slots=True)
class Append:
    """The next entry of the log. At most one append per shard is in flight.

    `attempt` counts from 1; a higher one repeats the same entry after AMBIGUOUS. After
    UNAVAILABLE, when nothing was written, `sequence` is used again for the next entry.
    """

    sequence: int
    base_offset: int
    records: tuple[Record, ...]
    attempt: int = 1


@dataclass(slots=True)
class ShardEffects(Effects):
    """Effects of one step, beside those of its rules.

    1. `append` goes to the log, and `computes` to whoever makes plans. 2. `replies` go to their
    callers, each call once, and 3. `fetched` to followers. 4. The new set of nodes `in_sync`
    (None: unchanged) goes to the controller, and 5. `events` to watchers. Streams in `wakes` have
    something to be sent (`Shard.take`), and those in `ended` are sent their last message. 6. If it
    has `unloaded`, the shard is not stepped again. 7. Else the next Tick is due at
    `next_deadline_ms` (None: no deadline).
    """

    append: Append | None = None
    fetched: list[tuple[CallId, FetchedEntries]] = field(default_factory=list)
    in_sync: frozenset[int] | None = None
    unloaded: bool = False
    next_deadline_ms: int | None = None

    def clear_internal(self) -> None:
        """Forget the effects of a command that the shard itself has taken."""
        self.writes.clear()
        self.defers.clear()
        self.checks.clear()
        self.opened.clear()
