"""Which topics a consumer group reads, as far as its members' metadata tell.

Offsets of topics that are being read neither expire nor may be deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from coordinator.core.classic.group import ClassicGroup
from coordinator.core.classic.journal import AssignmentReader
from coordinator.core.group import CONSUMER_PROTOCOL_TYPE

READ_MAX = 50_000
"""Topics that are read when a generation begins, those of members that say different things added
up, in 50 ms. Of a group with more they are not known."""

TopicReader = Callable[[bytes], frozenset[str] | None]
"""Topics named in a member's metadata; None if it cannot be read. Injected."""


@dataclass(frozen=True, slots=True)
class PayloadReader:
    """What the core is told of consumers' payloads. Injected."""

    topics: TopicReader
    partitions: AssignmentReader


def subscribed_topics(group: ClassicGroup, read_topics: TopicReader) -> frozenset[str] | None:
    """The topics that any member reads; None if they are unknown.

    Source: Kafka `ClassicGroup.computeSubscribedTopics`.
    """
    if not group.members:
        return frozenset()
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE or group.protocol_name is None:
        return None
    name = group.protocol_name
    topics: frozenset[str] = frozenset()
    read = 0
    # Members mostly say the same: each text is read once.
    for metadata in {member.metadata_for(name) for member in group.members.values()}:
        more = read_topics(metadata)
        if more is None:
            return None
        read += len(more)
        if read > READ_MAX:
            return None
        # Most groups read one set of topics: they share it instead of having a copy each.
        topics = more if not topics else topics if more <= topics else topics | more
    return topics
