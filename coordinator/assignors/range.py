"""Range: each topic is cut into consecutive runs, one run per subscriber.

With n partitions and m subscribers, the first n mod m subscribers in member order take
ceil(n / m) partitions, the others floor(n / m). Two members, two topics of three partitions:

    C0: t0-0 t0-1   t1-0 t1-1
    C1: t0-2        t1-2

What it is for: topics with equal subscribers and equal partition counts are cut at the same
places, so that the same member reads partition p of each ("co-partitioned"), which joins need.
What it costs: it is balanced per topic, not overall. The first members take the longer run
of *every* topic, here 4 against 2.

With racks (KIP-881) the length of everyone's run stays, but which partitions a member takes
may change so that a replica is near. Co-partitioned topics move together: partition p of all
of them goes to a member for whom the most of them are near.

Cost: linear in subscriptions plus partitions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coordinator.assignors.base import (
    ClusterMetadata,
    RebalanceProtocol,
    Subscription,
    subscribers_by_topic,
)
from coordinator.assignors.partitions import TopicPartition
from coordinator.assignors.racks import place_near
from coordinator.assignors.unwanted import give_elsewhere


@dataclass(frozen=True, slots=True)
class RangeAssignor:
    """Per-topic balance and co-partitioning. Source: Kafka `RangeAssignor`, KIP-881."""

    name: str = "range"
    protocols: tuple[RebalanceProtocol, ...] = (RebalanceProtocol.EAGER,)

    def assign(
        self, view: ClusterMetadata, members: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        assignment: dict[str, list[TopicPartition]] = {member_id: [] for member_id in members}
        co_partitioned: dict[tuple[tuple[str, ...], int], list[str]] = {}
        for topic, subscribers in subscribers_by_topic(view, members).items():
            key = (tuple(subscribers), view.partitions[topic])
            co_partitioned.setdefault(key, []).append(topic)

        for (subscribers_of_group, count), topics in co_partitioned.items():
            takers = _runs(count, len(subscribers_of_group))
            if view.racks:
                racks = [members[member_id].rack for member_id in subscribers_of_group]
                takers = place_near(_near(view, topics, count, racks), takers, racks)
            for topic in topics:
                for partition, taker in enumerate(takers):
                    member_id = subscribers_of_group[taker]
                    assignment[member_id].append(TopicPartition(topic, partition))
        for partitions in assignment.values():
            partitions.sort()
        return give_elsewhere(assignment, members)


def _runs(partition_count: int, subscriber_count: int) -> list[int]:
    """Index of the subscriber of each partition, run by run."""
    shorter, longer_runs = divmod(partition_count, subscriber_count)
    takers: list[int] = []
    for subscriber in range(min(subscriber_count, partition_count)):
        takers += [subscriber] * (shorter + (subscriber < longer_runs))
    return takers


def _near(
    view: ClusterMetadata, topics: Sequence[str], count: int, racks: Sequence[str | None]
) -> list[frozenset[str]]:
    """Best racks of each partition number: those of members near the most of `topics`."""
    wanted = sorted({rack for rack in racks if rack is not None})
    near: list[frozenset[str]] = []
    for partition in range(count):
        replicas = [view.racks.get(TopicPartition(topic, partition), ()) for topic in topics]
        score = {rack: sum(rack in racks_ for racks_ in replicas) for rack in wanted}
        best = max(score.values(), default=0)
        near.append(frozenset(r for r in wanted if best > 0 and score[r] == best))
    return near
