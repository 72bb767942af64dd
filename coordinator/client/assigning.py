"""Subscriptions and assignments: encoded by a member when it joins, and by its leader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from coordinator.assignors import (
    ClusterView,
    Subscription,
    TopicPartition,
    by_name,
)
from coordinator.assignors.consumer_protocol import (
    Assignment,
    PreviousAssignment,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_previous_assignment,
    encode_subscription,
)
from coordinator.client.calls import JoinedMember

_GIVES_BACK = b"gives back"
"""User data of an assignment that takes partitions away from its own member. Nobody has them until
the member has joined again. If a new process took the member's place meanwhile, it would not notice
that they are missing; the mark tells it to join again."""


def subscriptions(
    assignors: Sequence[str], held: Subscription, previous: PreviousAssignment
) -> tuple[tuple[str, bytes], ...]:
    """Encode a member's subscription for each assignor.

    An eager member owns nothing when it joins: its previous assignment is sticky's user data.
    """
    metadata = encode_subscription(held)
    sticky = encode_subscription(replace(held, user_data=encode_previous_assignment(previous)))
    return tuple((name, sticky if name == "sticky" else metadata) for name in assignors)


def share_out(
    assignor: str, topics: Mapping[str, int], members: Sequence[JoinedMember]
) -> tuple[tuple[str, bytes], ...]:
    """Compute and encode the assignment of every member; done by the leader."""
    subscribed = {
        m.member_id: replace(decode_subscription(m.metadata), instance_id=m.instance_id)
        for m in members
    }
    shares = by_name(assignor).assign(ClusterView(partitions=dict(topics)), subscribed)
    return tuple(
        (member_id, encode_assignment(_assignment(subscribed[member_id], partitions)))
        for member_id, partitions in shares.items()
    )


def read_assignment(assignment: bytes) -> tuple[frozenset[TopicPartition], bool]:
    """Decode an assignment: its partitions, and whether it takes some away from its own member."""
    if not assignment:
        return frozenset(), False
    read = decode_assignment(assignment)
    return frozenset(read.partitions), read.user_data == _GIVES_BACK


def _assignment(member: Subscription, partitions: Sequence[TopicPartition]) -> Assignment:
    gives_back = not set(member.owned_partitions).issubset(partitions)
    return Assignment(tuple(partitions), user_data=_GIVES_BACK if gives_back else None)
