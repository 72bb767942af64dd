"""Which topics a consumer group reads, as far as its members' metadata tell.

Offsets of topics that are being read neither expire nor may be deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from coordinator.core.group import Group
from coordinator.core.journal import AssignmentReader

CONSUMER_PROTOCOL_TYPE = "consumer"

TopicReader = Callable[[bytes], frozenset[str] | None]
"""Topics named in a member's metadata; None if it cannot be read. Injected."""


@dataclass(frozen=True, slots=True)
class PayloadReader:
    """What the core is told of consumers' payloads. Injected."""

    topics: TopicReader
    partitions: AssignmentReader


def subscribed_topics(group: Group, read_topics: TopicReader) -> frozenset[str] | None:
    """The topics that any member reads; None if they are unknown.

    Source: Kafka `ClassicGroup.computeSubscribedTopics`.
    """
    if not group.members:
        return frozenset()
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE or group.protocol_name is None:
        return None
    name = group.protocol_name
    # Members mostly say the same: each text is read once.
    said = {member.metadata_for(name) for member in group.members.values()}
    read = set(map(read_topics, said))
    topics = read.pop()
    # Most groups read one set of topics: they share it instead of having a copy each.
    for more in read:
        if topics is None or more is None:
            return None
        topics |= more
    return topics


def is_subscribed(group: Group, topic: str) -> bool:
    """True if a member reads `topic`; of a consumer group that cannot be read, assume it."""
    if group.subscribed_topics is None:
        return group.protocol_type == CONSUMER_PROTOCOL_TYPE
    return topic in group.subscribed_topics
