"""What the core is told of consumers' payloads: topics, and partitions; nothing else."""

from __future__ import annotations

from functools import lru_cache

from coordinator.assignors.consumer_protocol import (
    ConsumerProtocolError,
    decode_assignment,
    subscribed_topics,
)
from coordinator.core.subscriptions import PayloadReader


@lru_cache(maxsize=1024)
def read_topics(metadata: bytes) -> frozenset[str] | None:
    """Topics named in a consumer's subscription; None if it is not one.

    Members of one group, and of many groups, say the same: they share the answer.
    """
    try:
        return subscribed_topics(metadata)
    except ConsumerProtocolError:
        return None


@lru_cache(maxsize=4096)
def read_partitions(assignment: bytes) -> tuple[tuple[str, int], ...] | None:
    """Partitions in a consumer's assignment; None if it is not one.

    What a generation was given is asked for again when the next one is compared with it.
    """
    if not assignment:
        return ()
    try:
        return tuple((p.topic, p.partition) for p in decode_assignment(assignment).partitions)
    except ConsumerProtocolError:
        return None


PAYLOADS = PayloadReader(read_topics, read_partitions)
