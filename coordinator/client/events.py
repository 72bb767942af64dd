"""What happens to a member's partitions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from coordinator.assignors import TopicPartition


@dataclass(frozen=True, slots=True)
class Assigned:
    """These partitions are this member's from now on; with an eager assignor, all it has. With a
    cooperative one, those that are new: `member.assignment` is all. A round that changes nothing
    is not told."""

    partitions: frozenset[TopicPartition]
    generation: int


@dataclass(frozen=True, slots=True)
class Revoking:
    """These partitions are to be given back. Finish and commit, then call `poll` again: that is
    the signal. After `deadline_ms` (epoch milliseconds) they are given back regardless: what
    follows is `Lost`, and instead of this if nobody has polled until then."""

    partitions: frozenset[TopicPartition]
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class Lost:
    """These partitions are somebody else's already, or may be. Stop: commits are refused."""

    partitions: frozenset[TopicPartition]
    reason: str


@dataclass(frozen=True, slots=True)
class Stopping:
    """The member has stopped and will not join again."""

    reason: str


RebalanceEvent = Assigned | Revoking | Lost | Stopping


def handed_out_or_lost(events: Iterable[RebalanceEvent]) -> frozenset[TopicPartition]:
    """Partitions that may have been away since the last poll: they begin where they stand now."""
    found = [event.partitions for event in events if isinstance(event, Assigned | Lost)]
    return frozenset[TopicPartition]().union(*found)
