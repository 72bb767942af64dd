"""A rebalance that is running, as far as it has come; what the journal writes is made of it."""

from __future__ import annotations

from coordinator.core.events import MemberJoined, RebalanceStarted
from coordinator.core.ids import NO_TIME
from coordinator.core.records import GroupMetadata, RemovedMember


class Trace:
    """A rebalance that is running."""

    __slots__ = (
        "before",
        "joined",
        "joined_at_ms",
        "protocol",
        "removed",
        "started",
        "started_at_ms",
        "synced",
        "synced_at_ms",
        "was_initial",
    )

    def __init__(
        self,
        started: RebalanceStarted,
        now_ms: int,
        *,
        was_initial: bool,
        before: GroupMetadata | None,
    ) -> None:
        self.started = started
        self.started_at_ms = now_ms
        self.was_initial = was_initial
        self.before = before
        self.protocol = ""
        self.joined: dict[str, tuple[MemberJoined, int]] = {}
        self.joined_at_ms = NO_TIME
        self.synced: dict[str, int] = {}
        self.synced_at_ms = NO_TIME
        """When the leader handed the assignment in."""
        self.removed: list[tuple[RemovedMember, int]] = []
