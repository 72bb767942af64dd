"""Members that may have a partition, and its next successor when one falls out.

What is on its way to the log counts as there: choices that are made before the first of them is
durable know of each other.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Set as AbstractSet
from functools import cached_property
from zlib import crc32

from coordinator.core.sessions.group import SessionGroup
from coordinator.core.sessions.member import SessionMember
from coordinator.core.values.ids import TopicPartition

MOST_CHOICES = 20
"""Successors that are chosen one by one in a step. Each costs a look at all members and hand-offs;
what is beyond that has no successor until the next plan, which looks at everything once."""


def may_have(group: SessionGroup, partition: TopicPartition, member_id: str) -> bool:
    """True if a member may be, or stay, the successor of a partition."""
    member = group.members.get(member_id)
    if member is None or member.is_ended or member.is_leaving:
        return False
    if group.partition_state(partition).is_backed_off_of(member.name):
        return False
    return partition[1] < member.declares(partition[0])


def may_get(group: SessionGroup, partition: TopicPartition, member_id: str) -> bool:
    """True if a member may be given a partition now."""
    return may_have(group, partition, member_id) and group.members[member_id].receives


class Loads:
    """Numbers of partitions that count at members: held without a successor, or on their way.

    Of the moment of the first question; what is decided afterwards is to be added.
    """

    def __init__(self, group: SessionGroup) -> None:
        self._group = group

    def load_of(self, member_id: str) -> int:
        """Number of partitions that count at a member."""
        return self._group.count_held_by(member_id) + self._on_their_way[member_id]

    def capacity_of(self, member: SessionMember) -> int:
        """Number of partitions that a member may have beside those that count."""
        most = member.record.max_partitions
        return sys.maxsize if most is None else most - self.load_of(member.member_id)

    def add(self, partition: TopicPartition, successor: str) -> None:
        """Count one more partition that begins its way to a member."""
        if "_on_their_way" in self.__dict__:
            self._on_their_way[successor] += 1
            self._on_their_way[self._group.holder(partition)] -= 1

    @cached_property
    def _on_their_way(self) -> Counter[str]:
        """Partitions on their way to each member, minus those on their way from it."""
        group, counts = self._group, Counter[str]()
        receivers = {partition: handoff.successor for partition, handoff in group.open_handoffs()}
        for partition, state in group.partition_states.items():
            if state.pending_successor is not None:
                receivers[partition] = state.pending_successor
        for partition, successor in receivers.items():
            if successor:
                counts[successor] += 1
                counts[group.holder(partition)] -= 1
        return counts


def choose(group: SessionGroup, partition: TopicPartition, but: AbstractSet[str]) -> str:
    """The member with the lowest load by capacity that may get a partition; empty: nobody.

    Nobody gets one that was refused three times in a row, for a while.
    """
    if group.partition_state(partition).is_backed_off or group.choices >= MOST_CHOICES:
        return ""
    group.choices += 1
    loads = Loads(group)

    def rank(member: SessionMember) -> tuple[float, int]:
        tie_break = crc32(f"{partition[0]}:{partition[1]}:{member.name}".encode())
        return (2 * loads.load_of(member.member_id) + 1) / member.record.capacity, tie_break

    candidates = (
        member
        for member_id, member in group.members.items()
        if member_id not in but
        and may_get(group, partition, member_id)
        and loads.capacity_of(member) > 0
    )
    best = min(candidates, key=rank, default=None)
    return "" if best is None else best.member_id
