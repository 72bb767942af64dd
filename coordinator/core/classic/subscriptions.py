"""Topics that a consumer group reads, from its members' metadata.

Offsets of topics that are being read neither expire nor may be deleted.
"""

from __future__ import annotations

from coordinator.core.classic.group import ClassicGroup
from coordinator.core.group import CONSUMER_PROTOCOL_TYPE
from coordinator.core.payloads import TopicReader

READ_MAX = 50_000
"""Topics parsed at the start of a generation, summed over different subscriptions, which takes
50 ms. For groups with more they are unknown."""


def subscribed_topics(group: ClassicGroup, read_topics: TopicReader) -> frozenset[str] | None:
    """Return the topics that any member reads; None if they are unknown.

    Source: Kafka `ClassicGroup.computeSubscribedTopics`.
    """
    if not group.members:
        return frozenset()
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE or group.protocol_name is None:
        return None
    name = group.protocol_name
    topics: frozenset[str] = frozenset()
    read = 0
    # Most members send equal metadata: each is parsed once.
    for metadata in {member.metadata_for(name) for member in group.members.values()}:
        more = read_topics(metadata)
        if more is None:
            return None
        read += len(more)
        if read > READ_MAX:
            return None
        # Groups with one set of topics share the parser's copy of it.
        topics = more if not topics else topics if more <= topics else topics | more
    return topics
