"""What the core is told of consumers' metadata: the topics in it, and nothing else."""

from __future__ import annotations

from coordinator.assignors.consumer_protocol import ConsumerProtocolError, subscribed_topics


def read_topics(metadata: bytes) -> frozenset[str] | None:
    """Topics named in a consumer's subscription; None if it is not one."""
    try:
        return subscribed_topics(metadata)
    except ConsumerProtocolError:
        return None
