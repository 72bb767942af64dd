"""Subscriptions and assignments: encoded by a member when it joins, and by its leader."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

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
_COUNTS = b"topics "
"""Prefix of the user data of other assignments: before a digest of what the leader has divided."""


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
    divided = _digest(topics)
    return tuple(
        (member_id, encode_assignment(_assignment(subscribed[member_id], partitions, divided)))
        for member_id, partitions in shares.items()
    )


@dataclass(frozen=True, slots=True)
class ReadAssignment:
    """A decoded assignment. `gives_back`: it takes partitions away from its own member."""

    partitions: frozenset[TopicPartition] = frozenset()
    gives_back: bool = False
    _divided: bytes = b""

    def is_of(self, topics: Mapping[str, int]) -> bool:
        """False if its leader had other numbers of partitions; True also if that is not known."""
        return self._divided in (b"", _digest(topics))


def read_assignment(assignment: bytes) -> ReadAssignment:
    """Decode an assignment."""
    if not assignment:
        return ReadAssignment()
    read = decode_assignment(assignment)
    data = read.user_data or b""
    divided = data if data.startswith(_COUNTS) else b""
    return ReadAssignment(frozenset(read.partitions), data == _GIVES_BACK, divided)


def _assignment(
    member: Subscription, partitions: Iterable[TopicPartition], divided: bytes
) -> Assignment:
    kept = tuple(partitions)
    gives_back = not set(member.owned_partitions).issubset(kept)
    return Assignment(kept, user_data=_GIVES_BACK if gives_back else divided)


def _digest(topics: Mapping[str, int]) -> bytes:
    told = repr(sorted(topics.items())).encode(errors="surrogatepass")
    return _COUNTS + hashlib.blake2b(told, digest_size=8).digest()
