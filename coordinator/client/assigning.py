"""Subscriptions and assignments: what a member says when it joins, what its leader hands out."""

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
"""User data of an assignment that takes partitions from whoever it is for. They are with nobody
until it has joined again, and it may be another process by then, that does not miss them."""


def subscriptions(
    assignors: Sequence[str], held: Subscription, previous: PreviousAssignment
) -> tuple[tuple[str, bytes], ...]:
    """A member's bytes for each assignor.

    An eager member holds nothing when it joins: what it had travels as sticky's user data.
    """
    metadata = encode_subscription(held)
    sticky = encode_subscription(replace(held, user_data=encode_previous_assignment(previous)))
    return tuple((name, sticky if name == "sticky" else metadata) for name in assignors)


def share_out(
    assignor: str, topics: Mapping[str, int], members: Sequence[JoinedMember]
) -> tuple[tuple[str, bytes], ...]:
    """Everyone's assignment, as its leader computes it."""
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
    """The partitions of an assignment, and whether it takes some from whoever it is for."""
    if not assignment:
        return frozenset(), False
    read = decode_assignment(assignment)
    return frozenset(read.partitions), read.user_data == _GIVES_BACK


def _assignment(member: Subscription, partitions: Sequence[TopicPartition]) -> Assignment:
    gives_back = not set(member.owned_partitions).issubset(partitions)
    return Assignment(tuple(partitions), user_data=_GIVES_BACK if gives_back else None)
