"""Effects that a driver returns to its host, and inputs by which the host reports their results.

A job takes time: the host carries it out and tells the driver once that it is done, was refused
by the log, found damage, or broke. Everything else in `HostEffects` is carried out at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from coordinator.core.values.effects import ComputePlan
from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.ids import CallId, ShardId
from coordinator.core.values.records import Record
from coordinator.shard.inputs import Append, AppendFailure, Input, ShardEffects
from coordinator.shard.shard import Shard
from coordinator.shard.snapshots import SnapshotPolicy

Mark = tuple[int, int, int, int, int, frozenset[int] | None]
Fence = Any  # The log's fencing token, with its `fence_epoch`; else opaque to the driver.
Loaded = Any  # The result of a read of the log; opaque to the driver.


@dataclass(slots=True)
class StandbyShard:
    """A shard with all entries up to `sequence` applied, which has not been stepped yet."""

    shard: Shard
    sequence: int
    next_offset: int
    policy: SnapshotPolicy


# --- Jobs: compared by identity, so that late results of earlier jobs are recognised ---


@dataclass(frozen=True, slots=True, eq=False)
class TakeOver:
    """Fence the shard in the log under the granted leader epoch. Result: the fencing token."""

    shard_id: ShardId
    leader_epoch: int


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """Read the log after entry number `after`. Result: `Loaded`."""

    fence: Fence
    after: int


@dataclass(frozen=True, slots=True, eq=False)
class Build:
    """Apply `loaded` to `standby`, or to an empty shard if None. Result: a `StandbyShard`."""

    loaded: Loaded
    standby: StandbyShard | None


@dataclass(frozen=True, slots=True, eq=False)
class WriteEntry:
    """Encode an entry and append it to the log. Result: its encoded records."""

    fence: Fence
    append: Append


@dataclass(frozen=True, slots=True, eq=False)
class WriteSnapshot:
    """Encode a snapshot and write it in the background. Result: its size in bytes.

    `sequence` numbers the last entry that it covers; `next_offset` is the offset after it.
    """

    fence: Fence
    sequence: int
    next_offset: int
    records: Iterable[Record]


@dataclass(frozen=True, slots=True, eq=False)
class Compute:
    """Compute a plan away from the loop, which serves heartbeats meanwhile. Result: a `Plan`.

    The host may do it in any process, any number of times; a `Broken` is told to the group.
    """

    ask: ComputePlan


Job = TakeOver | Load | Build | WriteEntry | WriteSnapshot | Compute


# --- Inputs beside those of a shard ---


@dataclass(frozen=True, slots=True)
class Start:
    """The shard has been granted: take it over, load it, serve.

    Args:
        leader_epoch: the epoch of the grant; always 0 without a controller.
        standby: a warm copy of the shard; only later entries are read.
    """

    leader_epoch: int = 0
    standby: StandbyShard | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """Release the shard: every parked call is answered with `error`, and it is not loaded again."""

    error: ErrorCode


@dataclass(frozen=True, slots=True)
class Done:
    """A job has succeeded. Each job says what its `result` is."""

    job: Job
    result: Any  # Any: each job's own.


@dataclass(frozen=True, slots=True)
class LogFailed:
    """The log has refused a job.

    `is_lasting`: retrying does not help. `reason`: the log's error message.
    """

    job: Job
    failure: AppendFailure
    is_lasting: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True)
class FoundDamage:
    """The content of the log is damaged (checksum, format or order)."""

    job: Job
    error: Exception


@dataclass(frozen=True, slots=True)
class Broken:
    """Internal error: `job`, or (None) the execution of another effect, has raised."""

    error: Exception
    job: Job | None = None


DriverInput = Input | Start | Stop | Done | LogFailed | FoundDamage | Broken


# --- What comes out ---


@dataclass(frozen=True, slots=True)
class Problem:
    """Log line about a failure; with the exception if it is an internal error."""

    reason: str
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class Recovery:
    """Log line about the end of a failure."""

    reason: str


@dataclass(slots=True)
class HostEffects(ShardEffects):
    """Actions that follow from one input, to be carried out in this order.

    1. `jobs` are begun. 2. `replies` go to their callers, each call once, and 3. `fetched` to
    followers; streams of session members in `wakes` are sent what there is, and those in `ended`
    their last message. 4. The set of nodes `in_sync` goes to the controller; 5. `events` go to
    watchers, 6. `notices` to the log. 7. The driver is given a Tick at `wake_at_ms` (None: no
    deadline). 8. If it `has_dormant_groups`, the driver is given Activate repeatedly, with lower
    priority than other inputs, until all groups are active. The driver has taken the others.
    """

    jobs: list[Job] = field(default_factory=list)
    notices: list[Problem | Recovery] = field(default_factory=list)
    wake_at_ms: int | None = None
    has_dormant_groups: bool = False

    def mark(self) -> Mark:
        """How far the effects have come, for `cut`."""
        return (
            len(self.replies),
            len(self.fetched),
            len(self.wakes),
            len(self.ended),
            len(self.events),
            self.in_sync,
        )

    def cut(self, mark: Mark) -> list[CallId]:
        """Take back what a step that has raised added after the mark.

        Returns:
            The streams that it has ended. They are in no table any more, and have to end.
        """
        replies, fetched, wakes, ended, events, self.in_sync = mark
        del self.replies[replies:], self.fetched[fetched:], self.wakes[wakes:]
        cut_streams = [stream_id for stream_id, _ in self.ended[ended:]]
        del self.ended[ended:], self.events[events:]
        self.computes.clear()
        self.append, self.unloaded = None, False
        self.clear_internal()
        return cut_streams


NOTHING = HostEffects().mark()
