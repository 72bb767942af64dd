"""Partitions that nobody works on, as values: whose they were, and when that member stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum

from coordinator.core.ids import NO_TIME

Partition = tuple[str, int]
PartitionReader = Callable[[bytes], Iterable[Partition] | None]
"""Injected parser of partitions; returns None if it cannot parse them."""


@dataclass(frozen=True, slots=True)
class PartitionReaders:
    """Parsers of the partitions in an assignment, and of those that a member's metadata claim."""

    assigned: PartitionReader
    owned: PartitionReader


class StopKnownBy(Enum):
    """Evidence of when a member stopped to work on a partition. The values are codes."""

    LAST_HEARD = "last_heard"
    """It died or was paused between the time it was last heard and its next heartbeat."""
    INTERVAL_UNKNOWN = "last_heard_interval_unknown"
    """The same, but it sent too few heartbeats to measure their interval: a third of its session
    timeout stands in for it."""
    NOT_HEARD = "not_heard_since_take_over"
    """Nothing was heard of it since this node took the group over: the earliest time is unknown."""
    LEFT = "left"
    """It left the group."""
    REMOVED = "removed"
    """It was alive when it was removed, and hears of that with its next heartbeat."""
    REJOINED = "rejoined"
    """It was told of the rebalance, and joined again without the partition."""
    TAKEN_AWAY = "taken_away"
    """An assignment took the partition away, and it joined again without it."""


@dataclass(slots=True, eq=False)
class Rest:
    """A partition that nobody works on. `owner` is the last owner's instance id or member id.

    It stopped between `earliest_ms` (-1: unknown) and `latest_ms` (-1: it may still work).
    """

    owner: str
    member_id: str
    client_id: str
    earliest_ms: int
    latest_ms: int
    known_by: StopKnownBy

    @property
    def is_open(self) -> bool:
        """True while the owner may still work on it."""
        return self.latest_ms == NO_TIME


@dataclass(slots=True, eq=False)
class Rests:
    """All rests of a group. `round`: of the cooperative rebalance that they are part of, or 0."""

    of: dict[Partition, Rest] = field(default_factory=dict)
    round: int = 0

    @property
    def are_taken_away(self) -> bool:
        """True if a cooperative rebalance has taken any away, which the next round hands out."""
        return any(rest.known_by is StopKnownBy.TAKEN_AWAY for rest in self.of.values())
