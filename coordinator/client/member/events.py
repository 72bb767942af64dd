"""Events of a rebalance, as `poll` returns them. None is without partitions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from coordinator.assignors import TopicPartition


@dataclass(frozen=True, slots=True, repr=False)
class Assigned:
    """These partitions are this member's from now on. With an eager assignor they are all it has;
    with a cooperative one only the new ones (`member.assignment` has all). A rebalance that gives
    the member nothing, or with a cooperative assignor nothing new, gives no event."""

    partitions: frozenset[TopicPartition]
    generation: int

    def __repr__(self) -> str:
        return f"Assigned({spelled(self.partitions)}, generation {self.generation})"


@dataclass(frozen=True, slots=True, repr=False)
class Revoking:
    """These partitions are to be given back. Finish and commit, then call `poll` again: it gives
    them back. After `deadline_ms` (epoch milliseconds; half of `rebalance_timeout_ms` after the
    member heard of it) they are given back regardless, and `Lost` follows; if no `poll` came before
    the deadline, `Lost` replaces this event."""

    partitions: frozenset[TopicPartition]
    deadline_ms: int

    def __repr__(self) -> str:
        return f"Revoking({spelled(self.partitions)}, deadline_ms {self.deadline_ms})"


@dataclass(frozen=True, slots=True, repr=False)
class Lost:
    """These partitions belong to another member already, or may. Stop: commits are refused."""

    partitions: frozenset[TopicPartition]
    reason: str

    def __repr__(self) -> str:
        return f"Lost({spelled(self.partitions)}, {self.reason})"


@dataclass(frozen=True, slots=True, repr=False)
class Stopping:
    """The member has stopped and will not join again."""

    reason: str

    def __repr__(self) -> str:
        return f"Stopping({self.reason})"


RebalanceEvent = Assigned | Revoking | Lost | Stopping


def handed_out_or_lost(events: Iterable[RebalanceEvent]) -> frozenset[TopicPartition]:
    """Partitions that another member may have had since the last poll: read their offsets anew."""
    found = [event.partitions for event in events if isinstance(event, Assigned | Lost)]
    return frozenset[TopicPartition]().union(*found)


def spelled(partitions: Iterable[TopicPartition]) -> str:
    """Partitions in a few words, sorted: `invoices[0-5,7], refunds[2]`."""
    return ", ".join(
        f"{topic}[{_ranges([partition.partition for partition in each])}]"
        for topic, each in groupby(sorted(partitions), key=lambda partition: partition.topic)
    )


def _ranges(numbers: list[int]) -> str:
    """Sorted numbers, with successive ones as ranges: `0-5,7`."""
    runs = [
        [number for _, number in run]
        for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])
    ]
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
