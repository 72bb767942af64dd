"""Round robin: all partitions of all topics are dealt to the members in a circle.

Partitions go in the order of topic and number. A member that did not subscribe to the topic
is passed over, and the circle goes on after whoever took the last partition. With t0 of 1,
t1 of 2 and t2 of 3 partitions:

    C0 {t0}          t0-0
    C1 {t0, t1}      t1-0
    C2 {t0, t1, t2}  t1-1  t2-0  t2-1  t2-2

Equal subscriptions give shares that differ by at most 1. Unequal ones may be badly skewed, as
above: a pass over a member is never made up for. Use `sticky` there.

Cost: subscriptions plus partitions times the logarithm of the number of members; the search
for the next subscriber is a bisection, not a walk.
"""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

from coordinator.assignors.base import (
    ClusterMetadata,
    RebalanceProtocol,
    Subscription,
    in_member_order,
    subscribers_by_topic,
)
from coordinator.assignors.partitions import TopicPartition
from coordinator.assignors.unwanted import give_elsewhere


@dataclass(frozen=True, slots=True)
class RoundRobinAssignor:
    """Even shares if subscriptions are equal. Source: Kafka `RoundRobinAssignor`."""

    name: str = "roundrobin"
    protocols: tuple[RebalanceProtocol, ...] = (RebalanceProtocol.EAGER,)

    def assign(
        self, view: ClusterMetadata, members: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        assignment: dict[str, list[TopicPartition]] = {member_id: [] for member_id in members}
        order = in_member_order(members)
        seat_of = {member_id: seat for seat, member_id in enumerate(order)}
        next_seat = 0
        for topic, subscribers in subscribers_by_topic(view, members).items():
            seats = [seat_of[member_id] for member_id in subscribers]
            for partition in range(view.partitions[topic]):
                turn = bisect_left(seats, next_seat)
                seat = seats[turn] if turn < len(seats) else seats[0]
                assignment[order[seat]].append(TopicPartition(topic, partition))
                next_seat = seat + 1
        return give_elsewhere(assignment, members)
