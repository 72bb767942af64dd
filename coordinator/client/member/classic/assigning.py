"""Subscriptions and assignments: encoded by a member when it joins, and by its leader."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from coordinator.assignors import (
    ClusterMetadata,
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
    encode_generation,
    encode_previous_assignment,
    encode_subscription,
)
from coordinator.client.member.calls import GenerationMember
from coordinator.client.member.classic.declarations import (
    Declaration,
    differences,
    encode_declaration,
    largest_counts,
    read_declarations,
)

_GIVES_BACK = b"gives back"
"""User data of an assignment that takes partitions away from its own member. Nobody has them until
the member has joined again. If a new process took the member's place meanwhile, it would not notice
that they are missing; the mark tells it to join again."""
_COUNTS = b"topics "
"""Prefix of the user data of other assignments: before a digest of the counts that the leader knew
from this member, and one of those that it has divided."""
_DIGEST_BYTES = 8


def subscriptions(
    assignors: Sequence[str],
    held: Subscription,
    previous: PreviousAssignment,
    topics: Mapping[str, int],
) -> tuple[tuple[str, bytes], ...]:
    """Encode a member's subscription for each assignor.

    An eager member owns nothing when it joins: its previous assignment is sticky's user data.

    Args:
        topics: counts of the subscribed topics, and perhaps of others.
    """
    counts = [topics[topic] for topic in sorted(set(held.topics))]
    end = encode_declaration(counts, held.unwanted)
    own = {
        "sticky": encode_previous_assignment(previous),
        "cooperative-sticky": encode_generation(held.generation),
    }
    return tuple(
        (name, encode_subscription(replace(held, user_data=own.get(name, b"") + end)))
        for name in assignors
    )


@dataclass(frozen=True, slots=True)
class Division:
    """Work of a leader: encoded assignments by member id, and what people should know of it."""

    assignments: tuple[tuple[str, bytes], ...] = ()
    warnings: tuple[str, ...] = ()


def share_out(
    assignor: str, leader_id: str, topics: Mapping[str, int], members: Sequence[GenerationMember]
) -> Division:
    """Compute and encode the assignment of every member; done by the leader.

    Args:
        topics: counts of the leader, which may have changed since it joined.
    """
    subscribed = {
        m.member_id: replace(decode_subscription(m.metadata), instance_id=m.instance_id)
        for m in members
    }
    declared = read_declarations(subscribed)
    before = declared.get(leader_id)
    if before is None or before.counts != topics:
        declared[leader_id] = Declaration(topics, before.unwanted if before else ())
    counts = largest_counts(declared.values())
    for member_id, declaration in declared.items():
        if declaration.unwanted:
            subscribed[member_id] = replace(subscribed[member_id], unwanted=declaration.unwanted)
    shares = by_name(assignor).assign(ClusterMetadata(partitions=counts), subscribed)
    divided = {id(one): _digests(one.counts, counts) for one in declared.values()}
    name = {m.member_id: m.instance_id or m.member_id for m in members}
    return Division(
        tuple(
            (
                m,
                encode_assignment(
                    _assignment(subscribed[m], share, divided.get(id(declared.get(m))))
                ),
            )
            for m, share in shares.items()
        ),
        tuple(
            differences(
                {name[m]: one for m, one in declared.items()},
                {name[m]: one.topics for m, one in subscribed.items() if m not in declared},
            )
        ),
    )


@dataclass(frozen=True, slots=True)
class ReadAssignment:
    """A decoded assignment. `gives_back`: it takes partitions away from its own member."""

    partitions: frozenset[TopicPartition] = frozenset()
    gives_back: bool = False
    _divided: bytes = b""

    def knows(self, topics: Mapping[str, int]) -> bool:
        """False if a leader that knew these counts might have divided others than it did.

        True if the leader was told of them, or has divided them; and if neither is known.
        """
        digest, divided = _digest(topics), self._divided
        return not divided or digest in (divided[:_DIGEST_BYTES], divided[_DIGEST_BYTES:])


def read_assignment(assignment: bytes) -> ReadAssignment:
    """Decode an assignment."""
    if not assignment:
        return ReadAssignment()
    read = decode_assignment(assignment)
    data = read.user_data or b""
    divided = data.removeprefix(_COUNTS) if data.startswith(_COUNTS) else b""
    return ReadAssignment(frozenset(read.partitions), data == _GIVES_BACK, divided)


def _assignment(
    member: Subscription, partitions: Iterable[TopicPartition], divided: bytes | None
) -> Assignment:
    kept = tuple(partitions)
    gives_back = not set(member.owned_partitions).issubset(kept)
    return Assignment(kept, user_data=_GIVES_BACK if gives_back else divided)


def _digests(declared: Mapping[str, int], counts: Mapping[str, int]) -> bytes:
    """Digests of what a member has declared, and of what was divided of its topics."""
    return _COUNTS + _digest(declared) + _digest({topic: counts[topic] for topic in declared})


def _digest(topics: Mapping[str, int]) -> bytes:
    """Digest of `name\\0count\\0` in the order of names, which members of all versions compute."""
    text = "".join(f"{topic}\0{count}\0" for topic, count in sorted(topics.items()))
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()[:_DIGEST_BYTES]
