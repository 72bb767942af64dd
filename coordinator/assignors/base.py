"""Inputs and results of assignors.

Four laws hold for every assignor, whatever else it promises:

1. Every partition of a topic that has a subscriber goes to exactly one subscriber. (The
   cooperative assignor may hold a partition back for one round, see `cooperative.py`.)
2. No member gets a partition of a topic that it did not subscribe to.
3. A topic without metadata is skipped; it is no error.
4. Every member is in the result, possibly with an empty list.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

from coordinator.assignors.partitions import TopicPartition

NO_GENERATION = -1
"""Generation of a member that has none: it is new, or its client is too old to send one."""


class RebalanceProtocol(IntEnum):
    """Treatment of a member's partitions during a rebalance. Source: KIP-429."""

    EAGER = 0
    """Gives all partitions up before it joins."""
    COOPERATIVE = 1
    """Keeps its partitions and gives up only those that the new assignment takes away."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """Subscription of one member, as the leader reads it.

    `consumer_protocol` reads and writes it as Kafka's bytes, except for `instance_id`, which
    travels beside those bytes in the JoinGroup response, and `unwanted`.
    """

    topics: tuple[str, ...]
    """Topics the member wants. Repeats count once; unknown topics are ignored."""
    owned_partitions: tuple[TopicPartition, ...] = ()
    """Partitions the member holds while it joins."""
    generation: int = NO_GENERATION
    """The generation in which it was given `owned_partitions`; -1 if it cannot tell."""
    user_data: bytes | None = None
    """The assignor's own bytes; the sticky assignors store the previous assignment in them."""
    rack: str | None = None
    """The member's rack (`client.rack`), named as in `ClusterMetadata.racks`."""
    instance_id: str | None = None
    """`group.instance.id` of a static member (KIP-345)."""
    unwanted: tuple[TopicPartition, ...] = ()
    """Partitions that somebody else had better take. Members of our library say so in their user
    data, which the caller has read."""


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """The topics of the cluster, as the leader sees them."""

    partitions: Mapping[str, int]
    """Topic to number of partitions. A topic that is not here has no metadata."""
    racks: Mapping[TopicPartition, frozenset[str]] = field(default_factory=dict)
    """Partition to the racks of its replicas. Empty switches rack preference off."""


class Assignor(Protocol):
    """Divides the partitions of a group's topics among its members."""

    @property
    def name(self) -> str:
        """The protocol name that members vote for in JoinGroup."""

    @property
    def protocols(self) -> tuple[RebalanceProtocol, ...]:
        """Rebalance protocols a member may follow under this assignor, best first.

        A group runs cooperatively only if its assignor and all of its members can.
        """

    def assign(
        self, view: ClusterMetadata, members: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        """Assign partitions to members.

        Args:
            view: the topics that exist.
            members: member id to subscription.
        Returns:
            Member id to its partitions, sorted by topic and partition, for every member.
        """


def in_member_order(members: Mapping[str, Subscription]) -> list[str]:
    """Member ids in the order in which assignors serve them.

    Static members come first, by instance id, so that a restart under a new member id does
    not change the order; dynamic members follow, by member id. Source: KIP-345.
    """

    def turn(member_id: str) -> tuple[bool, str, str]:
        instance_id = members[member_id].instance_id
        return (instance_id is None, instance_id or "", member_id)

    return sorted(members, key=turn)


def subscribers_by_topic(
    view: ClusterMetadata, members: Mapping[str, Subscription]
) -> dict[str, list[str]]:
    """Topic to its subscribers in member order; topics that have metadata, sorted by name."""
    subscribers: dict[str, list[str]] = {}
    for member_id in in_member_order(members):
        for topic in set(members[member_id].topics):
            if topic in view.partitions:
                subscribers.setdefault(topic, []).append(member_id)
    return dict(sorted(subscribers.items()))
