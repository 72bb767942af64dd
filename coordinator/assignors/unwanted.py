"""Partitions that a member had rather not have, given to somebody else if there is somebody.

A worker names a partition whose handler failed, or has not ended, for a while after it has given
the partition up. Without this the sticky assignors would hand it back at once, since the member has
room for it, and range always would.

It is a wish, weaker than that every partition has an owner, and stronger than balance: whoever
takes the partition may have one more than its share until the wish has passed. A partition does
not move twice for it: if balance takes an unwanted partition from an owner that may keep it, the
owner gives another one in exchange.
"""

from collections.abc import Mapping

from coordinator.assignors.base import Subscription, in_member_order
from coordinator.assignors.partitions import TopicPartition

Shares = dict[str, list[TopicPartition]]


def give_elsewhere(
    shares: Shares,
    members: Mapping[str, Subscription],
    owners: Mapping[TopicPartition, str] | None = None,
) -> Shares:
    """Move unwanted partitions to other subscribers of their topics; in place.

    Args:
        shares: member id to its partitions.
        members: member id to subscription; same keys.
        owners: member id of each partition that is held now, if the assignor keeps owners.
    """
    unwanted = {m: frozenset(members[m].unwanted) for m in shares if members[m].unwanted}
    if not unwanted:
        return shares
    in_order = in_member_order(members)
    for member_id in (m for m in in_order if m in unwanted):
        for partition in sorted(unwanted[member_id].intersection(shares[member_id])):
            takers = [
                other for other in in_order
                if partition.topic in members[other].topics
                and partition not in unwanted.get(other, ())
            ]  # fmt: skip
            if takers:
                owner = (owners or {}).get(partition, "")
                taker = owner if owner in takers else min(takers, key=lambda m: len(shares[m]))
                _move(shares, partition, member_id, taker)
                if taker == owner:
                    _give_in_exchange(shares, members, taker, member_id)
    return shares


def _give_in_exchange(
    shares: Shares, members: Mapping[str, Subscription], giver: str, taker: str
) -> None:
    """Restore the balance between two members with another partition, if one fits."""
    if len(shares[giver]) > len(shares[taker]) + 1:
        wished = members[taker]
        for partition in reversed(shares[giver]):
            if partition.topic in wished.topics and partition not in wished.unwanted:
                _move(shares, partition, giver, taker)
                return


def _move(shares: Shares, partition: TopicPartition, giver: str, taker: str) -> None:
    shares[giver].remove(partition)
    shares[taker].append(partition)
    shares[taker].sort()
