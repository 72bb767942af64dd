"""What the core is told of consumers' metadata: the topics in it, and nothing else."""

from __future__ import annotations

from functools import lru_cache

from coordinator.assignors.consumer_protocol import ConsumerProtocolError, subscribed_topics


@lru_cache(maxsize=1024)
def read_topics(metadata: bytes) -> frozenset[str] | None:
    """Topics named in a consumer's subscription; None if it is not one.

    Members of one group, and of many groups, say the same: they share the answer.
    """
    try:
        return subscribed_topics(metadata)
    except ConsumerProtocolError:
        return None
