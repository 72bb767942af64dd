"""The numbers of a shard for those who watch."""

from __future__ import annotations

from dataclasses import dataclass, field

from coordinator.shard.waits import WaitStats


@dataclass(frozen=True, slots=True)
class ShardStats:
    """Numbers for those who watch, taken when asked for."""

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
    """How long operations waited, by purgatory; heartbeats are not counted: they beat."""
    timer_lag_ms: int = 0
    """How late the timer was told the time when last something was due."""
    pending_appends: int = 0
    high_watermark: int = 0
    end_offset: int = 0
    in_sync: int = 1
    """Nodes, the leader among them."""


@dataclass(frozen=True, slots=True)
class GroupStats:
    """Numbers of one group, taken when asked for; offsets by (topic, partition)."""

    group_id: str
    members: int
    offsets: dict[tuple[str, int], int]
    log_ends: dict[tuple[str, int], int]
