"""Consumers' payloads: topics and partitions are read for the core, assignments are written."""

from __future__ import annotations

from functools import lru_cache

from coordinator.assignors import TopicPartition
from coordinator.assignors.consumer_protocol import (
    Assignment,
    ConsumerProtocolError,
    decode_assignment,
    encode_assignment,
    owned_partitions,
    subscribed_topics,
)
from coordinator.core.journal.last_work import OWNED_MAX
from coordinator.core.payloads import PayloadReader
from coordinator.core.values.replies import DescribedMember

TOPICS_MAX = 10_000
"""Greatest number of topics read from one subscription, in 10 ms. A subscription that names more
counts as unreadable: its offsets are kept."""
REMEMBERED_BYTES = 4_096
"""Size above which payloads are not cached: thousands of them would fill the memory."""


def read_topics(metadata: bytes) -> frozenset[str] | None:
    """Topics named in a consumer's subscription; None if it is not one, or names too many.

    Cached: members of one group, and of many groups, have equal subscriptions.
    """
    read = _remembered_topics if len(metadata) <= REMEMBERED_BYTES else _topics
    return read(metadata)


def read_partitions(assignment: bytes) -> tuple[tuple[str, int], ...] | None:
    """Partitions in a consumer's assignment; None if it is not one, or holds too many.

    Cached: a generation's assignments are read again when the next one is compared with it.
    """
    read = _remembered_partitions if len(assignment) <= REMEMBERED_BYTES else _partitions
    return read(assignment)


def read_owned(metadata: bytes) -> tuple[tuple[str, int], ...] | None:
    """Partitions that a consumer's metadata say it holds; None if they cannot be read.

    Not cached: members hold different partitions.
    """
    try:
        owned = owned_partitions(metadata, OWNED_MAX)
    except ConsumerProtocolError:
        return None
    return tuple((p.topic, p.partition) for p in owned)


def assignment_of(member: DescribedMember) -> bytes:
    """A member's assignment; of a session group, what it holds in the format of consumers."""
    if not member.holds:
        return member.assignment
    held = tuple(TopicPartition(topic, partition) for topic, partition in member.holds)
    return encode_assignment(Assignment(held))


def _topics(metadata: bytes) -> frozenset[str] | None:
    try:
        return subscribed_topics(metadata, TOPICS_MAX)
    except ConsumerProtocolError:
        return None


def _partitions(assignment: bytes) -> tuple[tuple[str, int], ...] | None:
    if not assignment:
        return ()
    try:
        assigned = decode_assignment(assignment, OWNED_MAX).partitions
    except ConsumerProtocolError:
        return None
    return tuple((p.topic, p.partition) for p in assigned)


_remembered_topics = lru_cache(maxsize=1024)(_topics)
_remembered_partitions = lru_cache(maxsize=4096)(_partitions)

PAYLOADS = PayloadReader(read_topics, read_partitions, read_owned)
