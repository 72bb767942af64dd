"""Statistics of shards and groups, for metrics."""

from __future__ import annotations

from dataclasses import dataclass, field

from coordinator.shard.waits import WaitStats


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
    in_sync: int = 1
    """Number of nodes in sync, the leader included."""


@dataclass(frozen=True, slots=True)
class GroupStats:
    """Statistics of one group at one moment; offsets by (topic, partition)."""

    group_id: str
    members: int
    offsets: dict[tuple[str, int], int]
    log_ends: dict[tuple[str, int], int]
