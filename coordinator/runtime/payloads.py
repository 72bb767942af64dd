"""What the core is told of consumers' payloads: topics, and partitions; nothing else."""

from __future__ import annotations

from functools import lru_cache

from coordinator.assignors.consumer_protocol import (
    ConsumerProtocolError,
    decode_assignment,
    subscribed_topics,
)
from coordinator.core.subscriptions import PayloadReader

REMEMBERED_BYTES = 4_096
"""Longer payloads are read again each time: kept, thousands of them would fill the memory."""


def read_topics(metadata: bytes) -> frozenset[str] | None:
    """Topics named in a consumer's subscription; None if it is not one.

    Members of one group, and of many groups, say the same: they share the answer.
    """
    return (_topics if len(metadata) > REMEMBERED_BYTES else _remembered_topics)(metadata)


def read_partitions(assignment: bytes) -> tuple[tuple[str, int], ...] | None:
    """Partitions in a consumer's assignment; None if it is not one.

    What a generation was given is asked for again when the next one is compared with it.
    """
    if not assignment:
        return ()
    is_long = len(assignment) > REMEMBERED_BYTES
    return (_partitions if is_long else _remembered_partitions)(assignment)


def _topics(metadata: bytes) -> frozenset[str] | None:
    try:
        return subscribed_topics(metadata)
    except ConsumerProtocolError:
        return None


def _partitions(assignment: bytes) -> tuple[tuple[str, int], ...] | None:
    try:
        return tuple((p.topic, p.partition) for p in decode_assignment(assignment).partitions)
    except ConsumerProtocolError:
        return None


_remembered_topics = lru_cache(maxsize=1024)(_topics)
_remembered_partitions = lru_cache(maxsize=4096)(_partitions)
PAYLOADS = PayloadReader(read_topics, read_partitions)
