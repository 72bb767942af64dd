"""Ownership claims of members, and which of them an assignor may believe.

A member says which partitions it holds and since which generation. Members that missed a
rebalance say things that are no longer true, so:

1. Only the newest generation among the members is believed. An older one, or none where
   others have one, is stale, and stale claims are void.
2. If two members of the newest generation claim one partition, one of them must be wrong and
   nobody can tell which: both claims are void.

A void claim is no reason to *keep* a partition where it is. It may still be true that the
member is reading it, which is why the cooperative assignor looks at void claims too.

Source: KIP-341, KIP-429, KIP-792.
"""

from collections.abc import Mapping
from contextlib import suppress

from coordinator.assignors.base import NO_GENERATION, Subscription
from coordinator.assignors.consumer_protocol import (
    ConsumerProtocolError,
    PreviousAssignment,
    decode_generation,
    decode_previous_assignment,
)
from coordinator.assignors.partitions import TopicPartition


def remembered(subscription: Subscription) -> PreviousAssignment:
    """Previous assignment of a member that gave everything up before it joined (eager).

    It is in the user data. If there is none, or it is not a previous assignment (another
    assignor's bytes, a broken client), `owned_partitions` and `generation` count: a member
    must not be able to stop the group with its user data.
    """
    if subscription.user_data is not None:
        with suppress(ConsumerProtocolError):
            return decode_previous_assignment(subscription.user_data)
    return PreviousAssignment(subscription.owned_partitions, subscription.generation)


def held(subscription: Subscription) -> PreviousAssignment:
    """Assignment of a member that still holds its partitions (cooperative).

    Before version 2 of the subscription, its generation is in the user data.
    """
    generation = subscription.generation
    if generation == NO_GENERATION and subscription.user_data is not None:
        with suppress(ConsumerProtocolError):
            generation = decode_generation(subscription.user_data)
    return PreviousAssignment(subscription.owned_partitions, generation)


def believed_owners(pasts: Mapping[str, PreviousAssignment]) -> dict[TopicPartition, str]:
    """Owner of each partition that has exactly one valid claim."""
    newest = max((past.generation for past in pasts.values()), default=NO_GENERATION)
    owners: dict[TopicPartition, str] = {}
    disputed: set[TopicPartition] = set()
    for member_id, past in pasts.items():
        if past.generation == newest:
            for partition in past.partitions:
                if owners.setdefault(partition, member_id) != member_id:
                    disputed.add(partition)
    for partition in disputed:
        del owners[partition]
    return owners
