"""The allocator: who should hold which partition. A pure function of values.

    constraints ──► demand ──► flow ──► allocator ──► Plan
    what has to go,  counts by   how many of    which ones
    what is free     kind        each kind

1. Constraints (`constraints`): a partition that its holder may not keep has to go, a pinned one is
   assigned, one with an open hand-off stays. All others are counted by kind and holder
   (`partition_kinds`).
2. Loads (`loads`): each member that receives is to have the floor or the ceiling of its fair share.
3. A flow of least cost (`flow`) says how many partitions of each kind each member is to have, so
   that the fewest move. Its size is that of the kinds and members, not that of the partitions.
4. Here, single partitions are chosen: of a member that gives some, those of topics of which it has
   most beyond its fair part, then by hash; topic by topic, in ranges, for members that get some.
5. If partitions have weights, the flow meets the constraints alone, and what moves is chosen again
   with what each partition weighs (`weighing`).

Ties are decided by hashes of names, never by the order of the input.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from heapq import heapify, heappop, heapreplace
from itertools import groupby
from operator import itemgetter

from coordinator.core.sessions.holdings import ranges_of
from coordinator.core.sessions.plan.constraints import Demand, demand_of
from coordinator.core.sessions.plan.flow import Changes, allocate
from coordinator.core.sessions.plan.weighing import Weighing
from coordinator.core.values.plans import (
    FREE,
    NOBODY,
    Move,
    MoveReason,
    Obstacle,
    Partition,
    Plan,
    PlanInput,
    Range,
    Unplaced,
)

Grants = dict[int, dict[int, list[int]]]
"""Partitions by member and topic."""


def plan(state: PlanInput) -> Plan:
    """Return the moves to a balanced assignment; none if it is balanced and allowed already."""
    demand = demand_of(state)
    while True:
        choice = _Choice(demand, *allocate(demand))
        if not choice.staying:
            return choice.plan()
        # These count at their holders after all.
        for partition in choice.staying:
            demand.fixed[demand.forced.pop(partition)[0]] += 1


class _Choice:
    """The choice of partitions that move, so that each member gets its number of each kind.

    gains: by kind, how many more each member is to have, in the order that decides ties. losses: by
    kind, how many fewer.
    staying: partitions that their holders may not keep, and nobody else has room for.
    """

    def __init__(self, demand: Demand, changes: Changes, obstacles: Iterable[Obstacle]) -> None:
        self.demand, self.kinds, self.obstacles = demand, demand.kinds, tuple(obstacles)
        order = {member: rank for rank, member in enumerate(demand.kinds.receivers)}
        self.gains = [
            dict(sorted(gains, key=lambda gain: order[gain[0]]))
            for gains in ([item for item in by.items() if item[1] > 0] for by in changes)
        ]
        self.losses = [
            {member: -count for member, count in by_member.items() if count < 0}
            for by_member in changes
        ]
        self.grants: Grants = {}
        self.targets: dict[Partition, int] = {}
        self.shed = self._shed()
        self.unplaced = dict(demand.unplaced)
        self._match()
        self.staying = [
            partition
            for partition, (_, reason) in demand.forced.items()
            if reason is MoveReason.NOT_ALLOWED and partition not in self.targets
        ]

    def plan(self) -> Plan:
        """Return the moves and grants."""
        if self.demand.state.weights:
            self._weigh()
        for partition, member in self.demand.granted:
            self._grant(partition, member)
        moves = list(self.demand.moves)
        for partition, (holder, reason) in (self.demand.forced | self.shed).items():
            moves.append(Move(*partition, holder, self.targets.get(partition, NOBODY), reason))
        ranges = {
            member: {topic: _ranges(partitions) for topic, partitions in by_topic.items()}
            for member, by_topic in self.grants.items()
        }
        return Plan(ranges, tuple(moves), self.unplaced, self.obstacles)

    # --- From members that give some ---

    def _shed(self) -> dict[Partition, tuple[int, MoveReason]]:
        """Partitions that leave members, with these and the reasons: above a maximum first."""
        demand, members = self.demand, self.demand.state.members
        held: dict[tuple[int, int], list[Partition]] = {}
        for partition in self._candidates():
            kind, holder = self.kinds.of(partition), demand.holder(partition)
            if holder in self.losses[kind] and partition not in demand.forced:
                held.setdefault((holder, kind), []).append(partition)
        chosen: dict[int, list[Partition]] = {}
        for partitions in held.values():
            partitions.sort(key=self.kinds.tie)
        taken: list[Counter[int]] = [Counter() for _ in self.losses]
        for holder, kind in sorted(held, key=lambda key: (members[key[0]].name, key[1])):
            shed_here = self._evenly(
                kind, held[holder, kind], self.losses[kind][holder], taken[kind]
            )
            chosen.setdefault(holder, []).extend(shed_here)
        shed: dict[bool, dict[Partition, tuple[int, MoveReason]]] = {False: {}, True: {}}
        for holder in sorted(chosen, key=lambda member: members[member].name):
            most = members[holder].max_partitions
            above = 0 if most is None else demand.load(holder) - most
            for rank, partition in enumerate(sorted(chosen[holder], key=self.kinds.tie)):
                reason = MoveReason.ABOVE_MAXIMUM if rank < above else MoveReason.BALANCE
                shed[rank >= above][partition] = holder, reason
        return shed[False] | shed[True]

    def _evenly(
        self, kind: int, partitions: list[Partition], count: int, taken: Counter[int]
    ) -> list[Partition]:
        """Choose what a member gives of a kind: of the topic of which it has most beyond those who
        take, one by one. So each topic is spread evenly, at no more moves.

        Args:
            partitions: what it has, in the order that decides ties. taken: by topic, chosen for the
                same takers before; it is added to.
        """
        by_topic: dict[int, list[Partition]] = {}
        for partition in reversed(partitions):
            by_topic.setdefault(partition[0], []).append(partition)
        if len(by_topic) == 1:
            return partitions[:count]
        takers = len(self.gains[kind])

        def rank(topic: int) -> tuple[int, tuple[int, tuple[str, int]], int]:
            left = by_topic[topic]
            return taken[topic] - len(left) * takers, self.kinds.tie(left[-1]), topic

        chosen: list[Partition] = []
        heap = [rank(topic) for topic in by_topic]
        heapify(heap)
        while len(chosen) < count:
            topic = heap[0][-1]
            chosen.append(by_topic[topic].pop())
            taken[topic] += 1
            if by_topic[topic]:
                heapreplace(heap, rank(topic))
            else:
                heappop(heap)
        return chosen

    def _candidates(self) -> Iterable[Partition]:
        """Partitions of members that give some of their kind, and perhaps others."""
        singles = self.demand.singles
        for number in self.kinds.topics:
            at = self.demand.state.topics[number].at
            for first, end, kind in self.kinds.segments[number]:
                if losses := self.losses[kind]:
                    for partition in [p for p, m in enumerate(at[first:end], first) if m in losses]:
                        if (number, partition) not in singles:
                            yield number, partition
        yield from self.demand.movable

    # --- To members that get some ---

    def _match(self) -> None:
        """Find a member for each partition that looks for one, as far as members are to get some.

        Those that others give find one in any case; those that may stay with their holders until
        there is room come last.
        """
        urgent: list[list[Partition]] = [[] for _ in self.gains]
        shed: list[list[Partition]] = [[] for _ in self.gains]
        waiting: list[list[Partition]] = [[] for _ in self.gains]
        for topic_partition, (_, reason) in self.demand.forced.items():
            lists = waiting if reason is MoveReason.NOT_ALLOWED else urgent
            lists[self.kinds.of(topic_partition)].append(topic_partition)
        for topic_partition in self.shed:
            shed[self.kinds.of(topic_partition)].append(topic_partition)
        for kind, free_slots in enumerate(self.gains):
            spare = sum(free_slots.values()) - len(shed[kind])
            free = self._give_back(kind, free_slots, spare)
            spare = sum(free_slots.values()) - len(shed[kind])
            players = deque(free_slots)
            for topic, partitions in free.items():
                self._sort_by_fewest(topic, players)
                dealt = self._deal(topic, partitions[:spare], players, free_slots)
                spare -= dealt
                rest = ((topic, partition) for partition in partitions[dealt:])
                self.unplaced |= dict.fromkeys(rest, self._why(kind))
            for topic_partitions in (urgent[kind][:spare], shed[kind], waiting[kind]):
                # Topic by topic: those who take get an equal part of each.
                in_order = sorted(topic_partitions, key=self.kinds.topic_name)
                for topic, of_topic in groupby(in_order, key=itemgetter(0)):
                    self._sort_by_fewest(topic, players)
                    for topic_partition in of_topic:
                        self._seat(topic_partition, players, free_slots)

    def _give_back(self, kind: int, free_slots: dict[int, int], most: int) -> dict[int, list[int]]:
        """Grant up to `most` free partitions to the members that had them last; returns others."""
        previous = self.demand.state.previous
        if not previous:
            return self.demand.free[kind]
        rest: dict[int, list[int]] = {}
        for topic, partitions in self.demand.free[kind].items():
            for partition in partitions:
                member = previous.get((topic, partition), NOBODY)
                if most and free_slots.get(member):
                    self._grant((topic, partition), member)
                    _take_seat(member, free_slots)
                    most -= 1
                else:
                    rest.setdefault(topic, []).append(partition)
        return rest

    def _deal(
        self, topic: int, partitions: list[int], players: deque[int], free_slots: dict[int, int]
    ) -> int:
        """Deal out a topic's partitions in ranges; returns how many have found a member.

        Whoever is next goes on with the next topic, so that each topic is spread over all.
        """
        position = 0
        while position < len(partitions) and players:
            left = len(partitions) - position
            rounds = min(left // len(players), *(free_slots[member] for member in players)) or 1
            for member in list(players)[:left]:
                run = partitions[position : position + rounds]
                self.grants.setdefault(member, {}).setdefault(topic, []).extend(run)
                free_slots[member] -= rounds
                position += rounds
            players.rotate(-min(left, len(players)))
            if not all(free_slots[member] for member in players):
                left_over = [member for member in players if free_slots[member]]
                players.clear()
                players.extend(left_over)
        return position

    def _sort_by_fewest(self, topic: int, players: deque[int]) -> None:
        """Sort members by how few partitions of a topic they have."""
        if len(self.kinds.topics) > 1 and len(players) > 1:
            counts = Counter(self.demand.state.topics[topic].at)
            if len(counts) > 1 or FREE not in counts:
                in_order = sorted(players, key=counts.__getitem__)
                players.clear()
                players.extend(in_order)

    def _seat(self, partition: Partition, players: deque[int], free_slots: dict[int, int]) -> None:
        """Move a held partition to the next member in turn, if there is one."""
        if players:
            member = players.popleft()
            self.targets[partition] = member
            free_slots[member] -= 1
            if free_slots[member]:
                players.append(member)

    def _grant(self, partition: Partition, member: int) -> None:
        self.grants.setdefault(member, {}).setdefault(partition[0], []).append(partition[1])

    # --- By weight ---

    def _weigh(self) -> None:
        """Re-choose targets by weight; move more partitions where that balances loads."""
        granted = {
            (topic, partition): member
            for member, by_topic in self.grants.items()
            for topic, partitions in by_topic.items()
            for partition in partitions
        }
        weighing = Weighing(self.demand, granted | self.targets, self.shed)
        balanced = weighing.balance()
        self.obstacles = tuple(weighing.obstacles())
        self.shed = {
            topic_partition: moved
            for topic_partition, moved in self.shed.items()
            if topic_partition in balanced
        }
        self.grants, self.targets = {}, {}
        for topic_partition, member in balanced.items():
            holder = self.demand.holder(topic_partition)
            if holder == FREE:
                self._grant(topic_partition, member)
                continue
            self.targets[topic_partition] = member
            if topic_partition not in self.demand.forced:
                self.shed.setdefault(topic_partition, (holder, MoveReason.BALANCE))

    def _why(self, kind: int) -> Unplaced:
        """Reason that free partitions of a kind cannot be assigned."""
        if not self.kinds.receivers:
            return Unplaced.NOBODY_RECEIVES
        return Unplaced.CAPACITY if self.kinds.eligible[kind] else Unplaced.NOT_ALLOWED


def _take_seat(member: int, free_slots: dict[int, int]) -> None:
    free_slots[member] -= 1
    if not free_slots[member]:
        del free_slots[member]


def _ranges(partitions: list[int]) -> tuple[Range, ...]:
    partitions.sort()
    if partitions[-1] - partitions[0] == len(partitions) - 1:
        return ((partitions[0], partitions[-1]),)
    return ranges_of(partitions)
