"""Statistics of shards, groups and a node in its cluster, for metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from coordinator.core.sessions.group import SessionGroup
from coordinator.core.values.replies import LogEnd

BOUNDS_MS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000,
             300_000)  # fmt: skip
"""Upper bounds of the histogram of waits, inclusive."""


@dataclass(frozen=True, slots=True)
class WaitStats:
    """Histogram of the waits that have ended, in one purgatory."""

    counts: tuple[int, ...] = (0,) * (len(BOUNDS_MS) + 1)
    """Waits by `BOUNDS_MS`; the last one counts waits above the highest bound."""
    total_ms: int = 0
    expired: int = 0
    """Number of waits that ended by a time-out."""


PARTITION_STATES = ("held", "prepare", "drain", "forced", "copy", "reserved", "free")
"""States of partitions of session groups: the phases of hand-offs, and what is in none."""


@dataclass(frozen=True, slots=True)
class SessionStats:
    """Statistics of session groups. `partitions`: by `PARTITION_STATES`. `shortest_lease_ms`: told
    to a member; 0: there is none."""

    members: int = 0
    suspects: int = 0
    waiting: int = 0
    partitions: dict[str, int] = field(default_factory=dict)
    shortest_lease_ms: int = 0


@dataclass(frozen=True, slots=True)
class ShardStats:
    """Statistics of one shard at one moment."""

    groups: dict[str, int] = field(default_factory=dict)
    """Groups by state."""
    members: int = 0
    parked_joins: int = 0
    parked_syncs: int = 0
    timers_pending: int = 0
    watched: dict[str, int] = field(default_factory=dict)
    """Entries in the watch lists, by purgatory."""
    delayed: dict[str, int] = field(default_factory=dict)
    """Armed operations, by purgatory."""
    purged: dict[str, int] = field(default_factory=dict)
    """Entries dropped by purges since the start, by purgatory."""
    waits: dict[str, WaitStats] = field(default_factory=dict)
    """Waits of completed operations, by purgatory; sessions are not counted."""
    timer_lag_ms: int = 0
    """Delay of the last tick behind the deadline it was for."""
    pending_appends: int = 0
    high_watermark: int = 0
    end_offset: int = 0
    sessions: SessionStats = SessionStats()
    in_sync: int = 1
    """Number of nodes in sync, the leader included."""


@dataclass(frozen=True, slots=True)
class GroupStats:
    """Statistics of one group at one moment; offsets by (topic, partition)."""

    group_id: str
    members: int
    offsets: dict[tuple[str, int], int]
    log_ends: dict[tuple[str, int], LogEnd]


@dataclass(frozen=True, slots=True)
class ClusterStats:
    """A node in its cluster. `shards`: its own by state (leading, loading, following)."""

    shards: dict[str, int]
    configured_shards: int
    controller_epoch: int
    is_controller: bool
    undecided_s: float = 0.0
    session_timeout_s: float = 0.0
    store_lineage: int = 0


def shortest_lease_ms(groups: Iterable[SessionGroup]) -> int:
    """The shortest lease that a member was sent; 0: there is no member."""
    leases = (
        member.notified_lease_ms or member.lease_ms
        for group in groups
        for member in list(group.members.values())
    )
    return min(leases, default=0)


def session_stats(groups: Iterable[SessionGroup]) -> SessionStats:
    """Numbers over groups; linear in members and open hand-offs."""
    groups = list(groups)
    members = suspects = waiting = 0
    partitions: Counter[str] = Counter()
    for group in groups:
        live = list(group.members.values())
        members += len(live)
        suspects += sum(member.is_suspect for member in live)
        waiting += len(group.waiting)
        declared: dict[str, int] = {}
        for member in live:
            for topic, count in member.record.topics:
                declared[topic] = max(count, declared.get(topic, 0))
        partitions.update(_partitions(group, declared))
    return SessionStats(members, suspects, waiting, dict(partitions), shortest_lease_ms(groups))


def _partitions(group: SessionGroup, declared: Mapping[str, int]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for name, topic in list(group.topics.items()):
        phases = Counter(handoff.phase.value for handoff in list(topic.open.values()))
        reserved = len(topic.reserved)
        holders = topic.holders
        held = len(holders) - holders.count("")
        counts.update(phases)
        counts["reserved"] += reserved
        counts["held"] += held - phases.total() + phases["copy"]
        # Partitions that nobody declares any more are in the columns too.
        free = min(len(holders), declared.get(name, 0)) - held - reserved - phases["copy"]
        counts["free"] += max(0, free)
    return counts
