"""Declarations of a member in its subscription: counts of its topics, and partitions to keep away.

Kafka's subscription has names of topics and no counts, since Kafka's leaders ask a broker. Here
every member declares them, and the leader divides the largest. A member also names partitions that
somebody else had better take: it has released them, or an earlier handler of them has not ended.

They stand at the end of the user data, behind the bytes of the assignor that Kafka's clients read:

    the assignor's own bytes | an `Assignment` | its size int32 | mark

whose partitions are the unwanted ones, and whose user data are the counts, an int32 for each topic
of the subscription, in the order of their names. Leaders of other libraries read none of it.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import itemgetter

from coordinator.assignors import Subscription, TopicPartition
from coordinator.assignors.consumer_protocol import (
    Assignment,
    ConsumerProtocolError,
    decode_assignment,
    encode_assignment,
)

UNWANTED_MAX = 100
"""Most unwanted partitions that a member names, so that its subscription stays small."""
PARTITIONS_MAX = 1_000_000
"""Most partitions that a leader takes from another member's declaration: one that declares more
would keep every leader busy for minutes, and is as one that declares nothing."""

_MARK = b"coordinator"
_SIZE = struct.Struct(">i")
_NAMED_MAX = 3
"""Most counts that a sentence has of a topic, and most members that it names for each."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """Declaration of one member. `counts`: topic to number of partitions."""

    counts: Mapping[str, int]
    unwanted: tuple[TopicPartition, ...] = ()


def encode_declaration(counts: Sequence[int], unwanted: Collection[TopicPartition]) -> bytes:
    """Encode the end of a member's user data.

    Args:
        counts: of the topics of its subscription, in the order of their names.
    """
    named = tuple(sorted(unwanted)[:UNWANTED_MAX])
    encoded = encode_assignment(Assignment(named, struct.pack(f">{len(counts)}i", *counts)))
    return encoded + _SIZE.pack(len(encoded)) + _MARK


def read_declarations(members: Mapping[str, Subscription]) -> dict[str, Declaration]:
    """Decode the declarations of members; of those that have none, or a malformed one, nothing.

    Members that declare the same share one object: of 1,000 members with 1,000 topics each, it is
    read once.
    """
    known: dict[tuple[tuple[str, ...], bytes], Declaration | None] = {}
    declared: dict[str, Declaration] = {}
    for member_id, member in members.items():
        key = member.topics, _end_of(member.user_data or b"")
        if key not in known:
            known[key] = _decode(*key)
        if (declaration := known[key]) is not None:
            declared[member_id] = declaration
    return declared


def _end_of(data: bytes) -> bytes:
    """The declaration at the end of user data; empty: there is none."""
    ends = len(data) - len(_MARK) - _SIZE.size
    if ends < 0 or not data.endswith(_MARK):
        return b""
    return data[max(0, ends - _SIZE.unpack_from(data, ends)[0]) : ends]


def _decode(topics: tuple[str, ...], declaration: bytes) -> Declaration | None:
    with suppress(ConsumerProtocolError):
        read = decode_assignment(declaration, UNWANTED_MAX) if declaration else Assignment(())
        names, packed = sorted(set(topics)), read.user_data
        if packed is not None and len(packed) == 4 * len(names):
            counts = struct.unpack(f">{len(names)}i", packed)
            if min(counts, default=0) >= 0 and sum(counts) <= PARTITIONS_MAX:
                return Declaration(dict(zip(names, counts, strict=True)), read.partitions)
    return None


def largest_counts(declarations: Iterable[Declaration]) -> dict[str, int]:
    """Counts that a leader divides: of each topic the largest that a member declares."""
    counts: dict[str, int] = {}
    for one in {id(one): one for one in declarations}.values():
        for topic, count in one.counts.items():
            counts[topic] = max(count, counts.get(topic, 0))
    return counts


def differences(
    declarations: Mapping[str, Declaration], undeclared: Mapping[str, Collection[str]] | None
) -> list[str]:
    """Sentences on topics that members count differently, and on those that nobody counts.

    Args:
        declarations: by member, under the name that a person knows.
        undeclared: topics of the members without a declaration. None: the leader is of another
            library, so it is unknown what is assigned.
    """
    alike: dict[int, tuple[Declaration, list[str]]] = {}
    for name, one in sorted(declarations.items(), key=itemgetter(0)):
        alike.setdefault(id(one), (one, []))[1].append(name)
    counted: dict[str, dict[int, list[str]]] = {}
    for one, names in alike.values():
        for topic, count in one.counts.items():
            counted.setdefault(topic, {}).setdefault(count, []).extend(names)
    sentences = []
    for topic, names_by_count in sorted(counted.items()):
        if len(names_by_count) > 1:
            by_count = sorted(names_by_count.items())
            counts = listed([f"{count} by {listed(names)}" for count, names in by_count])
            assigned = "" if undeclared is None else f"; {max(names_by_count)} are assigned"
            sentences.append(
                f"members declare different numbers of partitions of {topic}: {counts}{assigned}"
            )
    unknown: dict[str, list[str]] = {}
    for name, topics in sorted((undeclared or {}).items()):
        for topic in set(topics) - counted.keys():
            unknown.setdefault(topic, []).append(name)
    sentences += [
        f"no member declares the number of partitions of {topic}, so none is assigned; "
        f"subscribed: {listed(names)}"
        for topic, names in sorted(unknown.items())
    ]
    return sentences


def listed(names: Sequence[str]) -> str:
    """The first of some names, and how many more there are."""
    more = len(names) - _NAMED_MAX
    return ", ".join(names[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
