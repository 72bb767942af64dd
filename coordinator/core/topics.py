"""Partition counts of topics, as groups report them and operators set them.

The coordinator stores no rows, so there is no log to ask how many partitions a topic has. A group
reports it by its durable assignment, by the log ends that members report and by committed offsets:
one more than the highest partition; members of session groups declare it. Counts that operators set
are offsets of a reserved group, in partition 0 of the topic: they are written, fenced, replicated
and loaded as offsets are.

`reported_topics` is a scan, not an index: nothing on the way of commits and heartbeats keeps count,
and a topic that no group knows any more is gone with the next scan.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field

from coordinator.core.classic.group import ClassicGroup
from coordinator.core.group import Group
from coordinator.core.limits import SET_TOPIC
from coordinator.core.payloads import PartitionReader
from coordinator.core.sessions.group import SessionGroup
from coordinator.core.values.ids import TOPICS_GROUP
from coordinator.core.values.records import GroupMetadata

SET_PARTITION = 0
"""Partition of the reserved group's offsets that are counts of topics."""
PARTITIONS_MAX = 10_000
"""Most partitions of a topic. A group cannot report more: one commit of a partition far beyond
would make every answer to Metadata enormous."""

_NAME = re.compile(rf"[a-zA-Z0-9._-]{{1,{SET_TOPIC.characters}}}")
Counts = dict[str, int]
Remembered = dict[str, tuple[GroupMetadata, Counts]]
"""Counts of assignments by group, with the record that they were read from."""


def has_legal_name(topic: str) -> bool:
    """True if Kafka allows a topic of this name. Source: Kafka `Topic.validate`."""
    return _NAME.fullmatch(topic) is not None and topic not in (".", "..")


@dataclass(slots=True)
class ReportedTopics:
    """Topics of one shard: counts that are set, and those that groups report."""

    set: Counts = field(default_factory=dict)
    counts: Counts = field(default_factory=dict)
    groups: dict[str, list[Group]] = field(default_factory=dict)
    """The groups that know a topic."""
    assigned: Remembered = field(default_factory=dict)


def reported_topics(
    groups: Iterable[ClassicGroup | SessionGroup], read: PartitionReader, before: ReportedTopics
) -> Generator[None, None, ReportedTopics]:
    """Gather the topics of a shard's groups; yields after each group.

    Args:
        read: parser of an assignment's partitions.
        before: the last result; assignments that have not changed are not parsed again.
    """
    reported = ReportedTopics()
    for group in groups:
        yield
        if group.group_id == TOPICS_GROUP:
            reported.set = {topic: stored.offset for (topic, _), stored in group.offsets.items()}
            continue
        if isinstance(group, ClassicGroup):
            counts = _assigned_counts(group, read, before.assigned, reported.assigned)
        else:
            declared = group.declared().items()
            counts = {name: min(count, PARTITIONS_MAX) for name, count in declared if count}
        counts = _counted([*group.offsets, *(group.log_ends or ())], counts)
        for topic, count in counts.items():
            reported.counts[topic] = max(count, reported.counts.get(topic, 0))
            reported.groups.setdefault(topic, []).append(group)
    return reported


def log_end(groups: Iterable[Group], partition: tuple[str, int]) -> tuple[int, int]:
    """Return the largest reported end of a partition's log, and the largest committed offset.

    -1: none was reported, or none is committed.
    """
    end, committed = -1, -1
    for group in groups:
        if group.log_ends and (known := group.log_ends.get(partition)) is not None:
            end = max(end, known.offset)
        if (stored := group.offsets.get(partition)) is not None:
            committed = max(committed, stored.offset)
    return end, committed


def _assigned_counts(
    group: ClassicGroup, read: PartitionReader, before: Remembered, after: Remembered
) -> Counts:
    record = group.committed
    if record is None or not record.members:
        return {}
    known = before.get(group.group_id)
    if known is None or known[0] is not record:
        counts: Counts = {}
        for member in record.members:
            counts = _counted(read(member.assignment) or (), counts)
        known = (record, counts)
    after[group.group_id] = known
    return dict(known[1])


def _counted(partitions: Iterable[tuple[str, int]], counts: Counts) -> Counts:
    """Raise the counts of topics to hold these partitions."""
    for topic, partition in partitions:
        if counts.get(topic, 0) <= partition < PARTITIONS_MAX:
            counts[topic] = partition + 1
    return counts
