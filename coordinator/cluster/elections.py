"""Leader elections of a shard: four strategies.

A shard has replicas, an ordered list of nodes of which the first is preferred, and the
in-sync ones among them. All are node numbers. The log is in a shared store, so any node may
lead; one that is in sync has the shard's state in memory and need not load it.

Source: Kafka `PartitionLeaderElectionAlgorithms` and `Election` (offline, reassign, preferred,
controlled shutdown).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Elected:
    """The new leader, and who is in sync with it."""

    leader: int
    in_sync: tuple[int, ...]


def offline(
    replicas: Sequence[int], in_sync: Collection[int], live: Collection[int]
) -> Elected | None:
    """Elect the first live replica that is in sync, else the first live one: the leader has gone.

    A replica that is out of sync costs the time of a load, no data: the store has the log.
    """
    elected = reassignment(replicas, in_sync, live)
    if elected is not None:
        return elected
    return next((Elected(node, (node,)) for node in replicas if node in live), None)


def reassignment(
    replicas: Sequence[int], in_sync: Collection[int], live: Collection[int]
) -> Elected | None:
    """Elect the first new replica that is live and in sync: the replicas have changed."""
    for node in replicas:
        if node in live and node in in_sync:
            return Elected(node, _those(replicas, in_sync, live))
    return None


def preferred(
    replicas: Sequence[int], in_sync: Collection[int], live: Collection[int]
) -> Elected | None:
    """Elect the preferred leader, the first replica; None unless it is live and in sync."""
    return reassignment(replicas[:1], in_sync, live) and Elected(
        replicas[0], _those(replicas, in_sync, live)
    )


def controlled_shutdown(
    replicas: Sequence[int],
    in_sync: Collection[int],
    live: Collection[int],
    stopping: Collection[int],
) -> Elected | None:
    """Elect the first live, in-sync replica that is not stopping: the leader wants to stop."""
    staying = [node for node in live if node not in stopping]
    return reassignment(replicas, in_sync, staying)


def _those(
    replicas: Sequence[int], in_sync: Collection[int], live: Collection[int]
) -> tuple[int, ...]:
    """The replicas that are in sync and live, in their order."""
    return tuple(node for node in replicas if node in in_sync and node in live)
