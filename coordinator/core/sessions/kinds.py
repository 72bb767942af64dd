"""Partitions by kind: those that the same members may have are interchangeable.

A search for a path from one member to another looks at kinds, of which there are few, and not at
partitions. A kind is made of whole topics, or of the part of a topic that more partitions are
declared of by some members than by others; a partition that a member is barred from is of a kind of
its own.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from zlib import crc32

from coordinator.core.session_values.plans import NOBODY, Partition, PlanInput


@dataclass(slots=True)
class Pool:
    """Partitions of one kind at one member, which balance may move.

    home: they are where they were; the last one moves first. free: they had no holder, or have to
    leave theirs. away: they were taken from the member that is named.
    """

    home: list[Partition] = field(default_factory=list)
    free: list[Partition] = field(default_factory=list)
    away: dict[Partition, int] = field(default_factory=dict)
    is_sorted: bool = False

    def __bool__(self) -> bool:
        return bool(self.home or self.free or self.away)

    def take(self, state: PlanInput, owner: int, taker: int) -> tuple[Partition, int]:
        """Take out of the pool of `owner` what `taker` gets with the fewest moves, and its home.

        One that goes home saves a move, and one that moves anyway costs none.
        """
        for place, origin in self.away.items():
            if origin == taker:
                del self.away[place]
                return place, origin
        if self.free:
            return self.free.pop(), NOBODY
        if self.away:
            return self.away.popitem()
        if not self.is_sorted:
            topics = state.topics
            self.home.sort(key=lambda p: crc32(f"{topics[p[0]].name}:{p[1]}".encode()))
            self.is_sorted = True
        return self.home.pop(), owner

    def put(self, place: Partition, origin: int, member: int) -> None:
        """Put in a partition that `member` takes."""
        if origin == member:
            self.home.append(place)
        elif origin == NOBODY:
            self.free.append(place)
        else:
            self.away[place] = origin


class Kinds:
    """The kind of each partition, and the members that may have partitions of a kind.

    eligible: members by kind.
    """

    __slots__ = ("_barred", "_bounds", "_by_mask", "_of_topic", "eligible")

    def __init__(self, state: PlanInput, receivers: Sequence[int]) -> None:
        self.eligible: list[list[int]] = []
        self._by_mask: dict[int, int] = {}
        self._bounds: list[list[int]] = []
        self._of_topic: list[list[int]] = []
        self._barred: dict[Partition, int] = {}
        members = state.members
        for number, topic in enumerate(state.topics):
            masks: dict[int, int] = {}
            for member in receivers:
                declared = min(members[member].declares[number], topic.count)
                masks[declared] = masks.get(declared, 0) | 1 << member
            bounds = sorted({*masks, topic.count} - {0})
            self._bounds.append(bounds)
            mask = 0
            kinds = []
            for bound in reversed(bounds):
                mask |= masks.get(bound, 0)
                kinds.append(self._kind(mask))
            self._of_topic.append(kinds[::-1])
        barred: dict[Partition, int] = {}
        for number, partition, member in state.barred:
            barred[number, partition] = barred.get((number, partition), 0) | 1 << member
        self._barred = {
            place: self._kind(self._mask(self.of(*place)) & ~mask)
            for place, mask in barred.items()
            if place[1] < state.topics[place[0]].count
        }

    def of(self, topic: int, partition: int) -> int:
        """The kind of a declared partition."""
        if self._barred and (kind := self._barred.get((topic, partition))) is not None:
            return kind
        return self._of_topic[topic][bisect_right(self._bounds[topic], partition)]

    def _mask(self, kind: int) -> int:
        return sum(1 << member for member in self.eligible[kind])

    def _kind(self, mask: int) -> int:
        if mask not in self._by_mask:
            self._by_mask[mask] = len(self.eligible)
            self.eligible.append([m for m in range(mask.bit_length()) if mask >> m & 1])
        return self._by_mask[mask]
