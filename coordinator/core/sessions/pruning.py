"""Removal of what a group knows of partitions that nobody declares any more."""

from __future__ import annotations

from coordinator.core.sessions.group import SessionGroup
from coordinator.core.values.ids import TopicPartition


def give_back(group: SessionGroup) -> None:
    """Drop the rows of partitions that are not declared, held or reserved any more.

    Nothing may be in flight: a record on its way may name such a partition. Delays after an end
    without consent stay: who declares the partition next has to wait as well.
    """
    shrunk, group.declarations.shrunk = group.declarations.shrunk, set()
    for name in shrunk:
        topic = group.topics.get(name)
        if topic is not None and not topic.trim(group.count_of(name)):
            del group.topics[name]
    if not shrunk:
        return
    targets = group.planning.targets
    for partition in [partition for partition in targets if not _exists(group, partition)]:
        del targets[partition]
    for partition in [
        partition for partition in group.partition_states if not _exists(group, partition)
    ]:
        group.partition_states[partition].refusals = None
        group.drop_if_empty(partition)


def _exists(group: SessionGroup, partition: TopicPartition) -> bool:
    topic = group.topics.get(partition[0])
    return topic is not None and partition[1] < len(topic.holders)
