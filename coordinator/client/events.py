"""Events of a rebalance, as `poll` returns them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from coordinator.assignors import TopicPartition


@dataclass(frozen=True, slots=True)
class Assigned:
    """These partitions are this member's from now on. With an eager assignor they are all it has;
    with a cooperative one only the new ones (`member.assignment` has all), and a rebalance that
    changes nothing for the member gives no event."""

    partitions: frozenset[TopicPartition]
    generation: int


@dataclass(frozen=True, slots=True)
class Revoking:
    """These partitions are to be given back. Finish and commit, then call `poll` again: it gives
    them back. After `deadline_ms` (epoch milliseconds) they are given back regardless, and `Lost`
    follows; if no `poll` came before the deadline, `Lost` replaces this event."""

    partitions: frozenset[TopicPartition]
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class Lost:
    """These partitions belong to another member already, or may. Stop: commits are refused."""

    partitions: frozenset[TopicPartition]
    reason: str


@dataclass(frozen=True, slots=True)
class Stopping:
    """The member has stopped and will not join again."""

    reason: str


RebalanceEvent = Assigned | Revoking | Lost | Stopping


def handed_out_or_lost(events: Iterable[RebalanceEvent]) -> frozenset[TopicPartition]:
    """Partitions that another member may have had since the last poll: read their offsets anew."""
    found = [event.partitions for event in events if isinstance(event, Assigned | Lost)]
    return frozenset[TopicPartition]().union(*found)
