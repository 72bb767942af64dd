"""What a driver asks of its host, and what the host tells it of how that went.

A job takes time: the host carries it out and tells the driver once that it is done, was refused
by the log, found damage, or broke. Everything else in `Effects` is carried out at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from coordinator.core.errors import ErrorCode
from coordinator.core.events import Event
from coordinator.core.ids import CallId, ShardId
from coordinator.core.records import Record
from coordinator.core.replies import Reply
from coordinator.shard.followers import FetchedEntries
from coordinator.shard.outbox import Append, AppendFailure, Input
from coordinator.shard.shard import Shard
from coordinator.shard.snapshots import SnapshotPolicy

Fence = Any  # The log's own token of the right to append; the driver only hands it on.
Loaded = Any  # What the log has read, as the log has it.


@dataclass(slots=True)
class StandbyShard:
    """A shard with everything up to an entry applied, not stepped yet."""

    shard: Shard
    sequence: int
    next_offset: int
    policy: SnapshotPolicy


# --- Jobs: compared by identity, so that the result of an earlier one is known to be late. ---


@dataclass(frozen=True, slots=True, eq=False)
class TakeOver:
    """Fence the shard in the log, in the leader epoch that was granted. Result: the fence."""

    shard_id: ShardId
    leader_epoch: int


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """Read the log after entry number `after`. Result: what was read."""

    fence: Fence
    after: int


@dataclass(frozen=True, slots=True, eq=False)
class Build:
    """Apply what was read to `standby`, or (None) to an empty shard. Result: a `StandbyShard`."""

    loaded: Loaded
    standby: StandbyShard | None


@dataclass(frozen=True, slots=True, eq=False)
class WriteEntry:
    """Encode an entry and write it. Result: its records as the log has them."""

    fence: Fence
    append: Append


@dataclass(frozen=True, slots=True, eq=False)
class WriteSnapshot:
    """Encode a snapshot and write it beside the service. Result: its size in bytes.

    `sequence` is of the last entry that it covers, `next_offset` that of the record after it.
    """

    fence: Fence
    sequence: int
    next_offset: int
    records: Iterable[Record]


Job = TakeOver | Load | Build | WriteEntry | WriteSnapshot


# --- Inputs beside those of a shard ---


@dataclass(frozen=True, slots=True)
class Start:
    """The shard has been granted: take it over, load it, serve.

    Args:
        leader_epoch: in which it was granted; without a controller it is always 0.
        standby: what a standby has gathered; only what is missing is read.
    """

    leader_epoch: int = 0
    standby: StandbyShard | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """The shard is given up for good: every parked call is answered with `error`."""

    error: ErrorCode


@dataclass(frozen=True, slots=True)
class Done:
    """A job has ended well. `result`: see the job."""

    job: Job
    result: Any  # Any: each job's own.


@dataclass(frozen=True, slots=True)
class LogFailed:
    """The log has refused a job, in one of its four ways.

    `is_lasting`: waiting does not change it. `words`: the log's own.
    """

    job: Job
    failure: AppendFailure
    is_lasting: bool = False
    words: str = ""


@dataclass(frozen=True, slots=True)
class FoundDamage:
    """What the log holds is not what was written."""

    job: Job
    error: Exception


@dataclass(frozen=True, slots=True)
class Broken:
    """Our bug: a job, or the execution of another effect, which is None, has raised."""

    error: Exception
    job: Job | None = None


DriverInput = Input | Start | Stop | Done | LogFailed | FoundDamage | Broken


# --- What comes out ---


@dataclass(frozen=True, slots=True)
class Trouble:
    """What does not work, in words, with the exception behind it if it is a bug."""

    words: str
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class Recovery:
    """What works again, in words."""

    words: str


@dataclass(slots=True)
class Effects:
    """What follows from one input, to be carried out in this order.

    1. `jobs` are begun. 2. `replies` go to their callers, each call once, and 3. `fetched` to
    followers. 4. Who is `in_sync` is told to the controller; 5. `events`, and 6. `told`, go to
    those who watch. 7. The driver is given a Tick at `wake_at_ms` (None: there is nothing to wake
    for). 8. If it `has_dormant_groups`, it is given Activate again and again, in between everything
    else, until its shard is active.
    """

    jobs: Sequence[Job] = ()
    replies: Sequence[tuple[CallId, Reply]] = ()
    fetched: Sequence[tuple[CallId, FetchedEntries]] = ()
    in_sync: frozenset[int] | None = None
    events: Sequence[Event] = ()
    told: Sequence[Trouble | Recovery] = ()
    wake_at_ms: int | None = None
    has_dormant_groups: bool = False
