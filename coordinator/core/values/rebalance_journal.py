"""The journal of a classic group: rebalances, and what they cost. Records of the log."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from coordinator.core.values.ids import NO_TIME

OUTAGE_MIN_MS = 5_000
"""The journal has no shorter outages: a node that starts anew, or a fail-over, takes as long."""
OUTAGE_MAX_MS = 600_000
"""Time without a record that is taken for an outage at most, and else for an idle group."""


def is_outage(away_ms: int) -> bool:
    """True if a group without a record for so long had no coordinator, which is to be recorded."""
    return OUTAGE_MIN_MS <= away_ms <= OUTAGE_MAX_MS


@dataclass(frozen=True, slots=True)
class RebalanceMember:
    """A member that joined a rebalance. Times are epoch milliseconds; -1: not synced.

    `client_software` is empty if unknown.
    """

    member_id: str
    client_id: str
    client_host: str
    is_new: bool
    session_timeout_ms: int
    joined_at_ms: int
    synced_at_ms: int = NO_TIME
    client_software: str = ""


@dataclass(frozen=True, slots=True)
class RemovedMember:
    """A member that was removed or left during a rebalance; `cause` in words, with its reason.

    `code` is that cause as a code.
    `last_seen_ms` is -1 if it was not seen since a fail-over; `heartbeat_interval_ms` is
    measured, -1 if it sent too few heartbeats.
    """

    member_id: str
    client_id: str
    client_host: str
    cause: str
    code: str = ""
    removed_at_ms: int = 0
    last_seen_ms: int = 0
    heartbeat_interval_ms: int = 0
    client_software: str = ""


class StopKnownBy(Enum):
    """Evidence of when a member stopped to work on a partition. The values are codes."""

    LAST_SEEN = "last_seen"
    """It died or was paused between the time it was last seen and its next heartbeat."""
    INTERVAL_UNKNOWN = "last_seen_interval_unknown"
    """The same, but it sent too few heartbeats to measure their interval: a third of its session
    timeout stands in for it."""
    NOT_SEEN = "not_seen_since_take_over"
    """It was not seen since this node took the group over: the earliest time is unknown."""
    LEFT = "left"
    """It left the group."""
    REMOVED = "removed"
    """It was alive when it was removed, and learns of that with its next heartbeat."""
    REJOINED = "rejoined"
    """It was notified of the rebalance, and joined again without the partition."""
    GAVE_UP = "gave_up"
    """It gave the partition back, or left, by itself: its program or a handler got no further."""
    TAKEN_AWAY = "taken_away"
    """An assignment took the partition away, and it joined again without it."""
    NO_COORDINATOR = "no_coordinator"
    """It could not commit while the group had no coordinator, and goes on."""
    SAID = "said_by_member"
    """It says since when its commits had no answer, or that its session ended before."""
    SILENT = "silent"
    """It was not seen for less than its session, and goes on."""


@dataclass(frozen=True, slots=True)
class StoppedPartition:
    """A partition that a member stopped to work on `ago_ms` ago, as it says itself."""

    topic: str
    partition: int
    ago_ms: int


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """Partitions of a topic, from `first` to `last`, both included."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class PartitionMove:
    """Partitions of a topic that nobody worked on for a while, or that went to another member.

    Their former owner stopped between `stopped_earliest_ms` (-1: unknown) and `stopped_latest_ms`
    (-1: it may not have stopped), which is known by `known_by`, a code. The assignment that gives
    them to a member was durable at `resumed_at_ms`, and unless `is_fetched` that member had not
    asked for it yet. Without `has_moved` it is the same member. Of many ranges only the first are
    there; `partition_count` counts all partitions.
    """

    topic: str
    from_member_id: str
    from_client_id: str
    to_member_id: str
    to_client_id: str
    has_moved: bool
    known_by: str
    stopped_earliest_ms: int
    stopped_latest_ms: int
    resumed_at_ms: int
    is_fetched: bool = True
    partition_count: int = 0
    partitions: tuple[PartitionRange, ...] = ()

    @property
    def unowned_ms_min(self) -> int:
        """Shortest time in which nobody can have worked on them."""
        if self.stopped_latest_ms == NO_TIME:
            return 0
        return max(0, self.resumed_at_ms - self.stopped_latest_ms)

    @property
    def unowned_ms_max(self) -> int:
        """Longest time in which nobody can have worked on them; -1: unknown."""
        if self.stopped_earliest_ms == NO_TIME:
            return NO_TIME
        return max(0, self.resumed_at_ms - self.stopped_earliest_ms)


RETURNED = "static member returned"
"""Cause of the record of a static member that went on without a rebalance."""

OUTAGE_ENDED = "coordinator returned"
"""Cause of the record of an outage after which all members went on without a rebalance."""

SEEN_AGAIN = "member heard again"
"""Cause of the record of a member that was silent for less than its session, and went on."""


@dataclass(frozen=True, slots=True)
class RebalanceRecord:
    """One rebalance, from its cause to its end, for the journal; or a return without one.

    `outcome` is completed, interrupted (by the next one) or failed. `member_id`, `client_id`,
    `client_host` and `reason` describe the member that caused it. Times are epoch milliseconds, -1
    if that point was not reached: `joined_at_ms` the end of the join phase, `synced_at_ms` the
    leader's SyncGroup, `ended_at_ms` when the assignment was durable. `was_initial`: the first
    rebalance of an empty group, with the initial delay. `protocol` is the selected one.

    `members` are in the order in which they joined; of many only the last ones, and of `removed`
    the first of `removed_count`. `partitions_moved` is -1 if assignments cannot be parsed.

    `unowned_*` are about partitions that nobody worked on until this rebalance gave them to
    somebody: the time since their owners are known to have worked, and what of it
    is certain (`*_at_least`), since an owner may have worked on for a while. `moves` lists them,
    but for `partitions_left_out`. A cooperative rebalance takes partitions away in one round
    (`partitions_taken_away`) and hands them out in the next; `cooperative_round` is its number, or
    0 if it is none of several.

    `taken_over_at_ms`, of a rebalance that began within a session of it: when this node took the
    group over, and `silent_since_ms`: the newest record in its log then; 0: none.
    `store_went_back`: the store had lost commits that were acknowledged then.
    """

    group_id: str
    cause: str
    outcome: str
    member_id: str
    client_id: str
    client_host: str
    reason: str
    generation_before: int
    generation_after: int
    protocol: str
    was_initial: bool
    started_at_ms: int
    joined_at_ms: int
    synced_at_ms: int
    ended_at_ms: int
    leader: str
    member_count: int
    members: tuple[RebalanceMember, ...] = ()
    removed: tuple[RemovedMember, ...] = ()
    partitions_moved: int = -1
    unowned_partitions: int = 0
    unowned_ms_max: int = 0
    unowned_ms_total: int = 0
    unowned_ms_max_at_least: int = 0
    unowned_ms_total_at_least: int = 0
    moves: tuple[PartitionMove, ...] = ()
    partitions_left_out: int = 0
    partitions_taken_away: int = 0
    cooperative_round: int = 0
    removed_count: int = 0
    taken_over_at_ms: int = 0
    silent_since_ms: int = 0
    store_went_back: bool = False

    @property
    def is_return(self) -> bool:
        """True of a static member that returned, an outage, or a member that was silent, without a
        rebalance: no generation began."""
        return self.cause in (RETURNED, OUTAGE_ENDED, SEEN_AGAIN)


JOURNAL_LENGTH = 20
"""Number of rebalances that a group's journal keeps."""
