"""The progress of a running rebalance, from which the journal's record is made."""

from __future__ import annotations

from dataclasses import dataclass, field

from coordinator.core.events import MemberJoined, RebalanceStarted
from coordinator.core.ids import NO_TIME
from coordinator.core.records import GroupMetadata, RemovedMember


@dataclass(slots=True, eq=False)
class Trace:
    """A running rebalance. Epoch milliseconds; `synced_at_ms`: the leader's SyncGroup."""

    started: RebalanceStarted
    started_at_ms: int
    was_initial: bool
    before: GroupMetadata | None
    protocol: str = ""
    joined: dict[str, tuple[MemberJoined, int]] = field(default_factory=dict)
    joined_at_ms: int = NO_TIME
    synced: dict[str, int] = field(default_factory=dict)
    synced_at_ms: int = NO_TIME
    removed: list[tuple[RemovedMember, int]] = field(default_factory=list)
