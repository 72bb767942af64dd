"""Partitions by kind: those that the same members may have are interchangeable.

The allocator counts partitions of a kind at a member, and looks at single ones only where they
move. A kind is made of whole topics, or of the part of a topic that some members declare and others
do not; a partition that a member is barred from may be of a kind of its own.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple
from zlib import crc32

from coordinator.core.values.plans import Partition, PlanInput


class KindSegment(NamedTuple):
    """Partitions of a topic from `first` to before `end`, which are of one kind."""

    first: int
    end: int
    kind: int


class Kinds:
    """The kind of each declared partition, and the members that may have partitions of a kind.

    receivers: members that may be given partitions, in the order that decides ties.
    topics: numbers of the topics, in the order of their names.
    segments: by number of the topic. eligible: receivers by kind.
    """

    __slots__ = ("_barred", "_by_members", "_state", "eligible", "receivers", "segments", "topics")

    def __init__(self, state: PlanInput) -> None:
        members, topics = state.members, state.topics
        self._state = state
        self.receivers = tuple(
            sorted(
                (
                    number
                    for number, member in enumerate(members)
                    if member.receives and not member.leaves and member.capacity > 0
                ),
                key=lambda number: (crc32(members[number].name.encode()), members[number].name),
            )
        )
        self.topics = sorted(range(len(topics)), key=lambda number: topics[number].name)
        self.eligible: list[tuple[int, ...]] = []
        self._by_members: dict[tuple[int, ...], int] = {}
        self.segments: list[list[KindSegment]] = [[] for _ in topics]
        declarations = {members[number].declares for number in self.receivers}
        for number in self.topics:
            count, first = topics[number].count, 0
            ends = {min(declares[number], count) for declares in declarations}
            for end in sorted(ends | {count}):
                if end > first:
                    able = self.receivers
                    if end > min(ends, default=0):
                        able = tuple(m for m in able if members[m].declares[number] >= end)
                    self.segments[number].append(KindSegment(first, end, self._kind(able)))
                    first = end
        barred: dict[Partition, set[int]] = {}
        for number, partition, member in state.barred:
            if partition < topics[number].count:
                barred.setdefault((number, partition), set()).add(member)
        self._barred = {
            topic_partition: self._kind(
                tuple(
                    m
                    for m in self.eligible[self.segment(topic_partition).kind]
                    if m not in barred[topic_partition]
                )
            )
            for topic_partition in sorted(barred, key=self.order)
        }

    def order(self, partition: Partition) -> tuple[str, int]:
        """Key that sorts partitions by the names of their topics, whatever the input's order."""
        return self._state.topics[partition[0]].name, partition[1]

    def topic_name(self, partition: Partition) -> str:
        return self._state.topics[partition[0]].name

    def tie(self, partition: Partition) -> tuple[int, tuple[str, int]]:
        """Order among partitions that are equal otherwise, whatever the input's order."""
        order = self.order(partition)
        return crc32(f"{order[0]}:{order[1]}".encode()), order

    def segment(self, partition: Partition) -> KindSegment:
        """The segment of a declared partition, whether a member is barred from it or not."""
        segments = self.segments[partition[0]]
        return segments[bisect_right(segments, partition[1], key=lambda segment: segment.end)]

    def of(self, partition: Partition) -> int:
        kind = self._barred.get(partition)
        return self.segment(partition).kind if kind is None else kind

    def _kind(self, members: tuple[int, ...]) -> int:
        if members not in self._by_members:
            self._by_members[members] = len(self.eligible)
            self.eligible.append(members)
        return self._by_members[members]
