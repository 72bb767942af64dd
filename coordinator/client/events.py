"""What happens to a member's partitions."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.assignors import TopicPartition


@dataclass(frozen=True, slots=True)
class Assigned:
    """These partitions are this member's from now on; with an eager assignor, all it has."""

    partitions: frozenset[TopicPartition]
    generation: int


@dataclass(frozen=True, slots=True)
class Revoking:
    """These partitions are to be given back. Finish and commit, then call `poll` again: that is
    the signal. After `deadline_ms` (epoch milliseconds) they are given back regardless."""

    partitions: frozenset[TopicPartition]
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class Lost:
    """These partitions are somebody else's already, or may be. Stop, and do not commit."""

    partitions: frozenset[TopicPartition]
    reason: str


@dataclass(frozen=True, slots=True)
class Stopping:
    """The member has stopped and will not join again."""

    reason: str


RebalanceEvent = Assigned | Revoking | Lost | Stopping
