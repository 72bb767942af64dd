"""Balance by weight: where single partitions go, so that no member's load is above its bound.

A bound is the fair share by capacity and a tolerance, or the heaviest partition if that is more.
The flow has met the constraints before (`flow`, without bounds of loads): here its choices change
places, and partitions move for balance.

1. What looks for a member goes heaviest first to the lowest load per capacity; what a member had
   last goes back to it, within its bound.
2. As long as a load is above its bound, the hottest member gives a partition to the coldest one
   that may have it, or swaps one for a lighter one. Each step lowers what is above the bounds in
   all, or else the sum of squares.
3. Few partitions are searched for a way with fewer moves, or for one into the bounds at all, as far
   as `LOOKS` go.

Which partitions stay free if members have not room for all is decided before, without weights.
Weights are whole numbers here: sums do not depend on the order of the input.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from itertools import islice
from math import frexp, fsum, inf, ldexp

from coordinator.core.sessions.plan.constraints import Demand
from coordinator.core.sessions.plan.loads import EPSILON
from coordinator.core.values.plans import NOBODY, Obstacle, Partition

TOLERANCE = 0.1
"""Part of its fair share that a member may have above it."""
SEARCHED, LOOKS = 40, 16_000
"""Most partitions that are searched for fewer moves, and looks at members at most: some 10 ms."""
TRIED = 4
"""Coldest members that are tried for each partition of one that is hot."""
BITS = 40
"""Bits of the heaviest weight as a whole number."""


class Weighing:
    """Partitions at members that receive.

    members: these, in the order that decides ties. items: partitions that may go elsewhere,
        heaviest first.
    weights, homes, able, at: by item, its weight; its holder, or NOBODY if it has to leave that in
        any case; the members that may have it; its member now.
    load, count: by member, weight and number of its partitions. held: those of them in `items`.
    bound, most: by member, the greatest load and number.
    """

    def __init__(
        self, demand: Demand, placed: Mapping[Partition, int], shed: Collection[Partition]
    ) -> None:
        """Start from the result of the flow.

        Args:
            placed: partitions that look for a member, with one that has room.
            shed: of these, those that their holders may keep if others go for them.
        """
        members = demand.state.members
        self.demand, self.members = demand, demand.kinds.receivers
        fixed, homes = _sorted_in(demand, placed, shed)
        given_weights = demand.state.weights
        scale = (
            BITS - frexp(max((given_weights.get(p, 1.0) for p in (*fixed, *homes)), default=1.0))[1]
        )
        weights = {p: int(ldexp(given_weights.get(p, 1.0), scale)) for p in (*fixed, *homes)}
        self.items = sorted(
            homes, key=lambda partition: (-weights[partition], demand.kinds.tie(partition))
        )
        self.weights = [weights[partition] for partition in self.items]
        self.homes = [homes[partition] for partition in self.items]
        able = [frozenset(eligible) for eligible in demand.kinds.eligible]
        self.able = [able[demand.kinds.of(partition)] for partition in self.items]
        self.at = [NOBODY] * len(self.items)
        self.load = dict.fromkeys(self.members, 0)
        self.count = dict.fromkeys(self.members, 0)
        self.held: dict[int, set[int]] = {member: set() for member in self.members}
        for partition, member in fixed.items():
            self.load[member] += weights[partition]
            self.count[member] += 1
        self._put_all(map(placed.get, self.items, self.homes))
        capacity = fsum(members[member].capacity for member in self.members)
        level = (1 + TOLERANCE) * sum(weights.values()) * (1 + EPSILON)
        heaviest = max(weights.values(), default=0)
        self.bound = {
            m: max(int(level * members[m].capacity / capacity), heaviest) for m in self.members
        }
        most = {member: members[member].max_partitions for member in self.members}
        self.most = {member: inf if count is None else count for member, count in most.items()}

    def balance(self) -> dict[Partition, int]:
        """Return the members of partitions that are at other ones than before, or had none."""
        self._place()
        self._relieve()
        if len(self.items) <= SEARCHED:
            self._search()
        return {
            partition: member
            for partition, member, home in zip(self.items, self.at, self.homes, strict=True)
            if member != home
        }

    def obstacles(self) -> list[Obstacle]:
        """Obstacles that keep members above their bounds."""
        above: dict[tuple[tuple[int, ...], Partition | None], list[int]] = {}
        for member in sorted(self._over(), key=lambda m: self.demand.state.members[m].name):
            others = [m for m in self.members if self.load[m] <= self.bound[m]]
            partition = None
            for item in sorted(self.held[member], reverse=True):
                takers = [
                    m
                    for m in self.members
                    if m != member and m in self.able[item] and self.count[m] < self.most[m]
                ]
                if takers:
                    others, partition = takers, self.items[item]
                    break
            above.setdefault((tuple(sorted(others)), partition), []).append(member)
        return [
            Obstacle(tuple(sorted(above_items)), *reason) for reason, above_items in above.items()
        ]

    def _put(self, item: int, member: int) -> None:
        before, weight = self.at[item], self.weights[item]
        if before != NOBODY:
            self.load[before] -= weight
            self.count[before] -= 1
            self.held[before].remove(item)
        if member != NOBODY:
            self.load[member] += weight
            self.count[member] += 1
            self.held[member].add(item)
        self.at[item] = member

    def _put_all(self, at: Iterable[int]) -> None:
        for item, member in enumerate(at):
            self._put(item, member)

    def _over(self) -> list[int]:
        return [m for m in self.members if self.load[m] > self.bound[m]]

    # --- Steps ---

    def _place(self) -> None:
        """Assign unassigned partitions by weight; where capacity runs out, as the flow has done."""
        loose = [(item, self.at[item]) for item, home in enumerate(self.homes) if home == NOBODY]
        previous = self.demand.state.previous
        coldest: dict[frozenset[int], list[tuple[float, int, int]]] = {}
        rank = {member: position for position, member in enumerate(self.members)}
        for item, _ in loose:
            self._put(item, NOBODY)
        for item, _ in loose:
            able, last = self.able[item], previous.get(self.items[item], NOBODY)
            if last in able and self.count[last] < self.most[last]:
                if self.load[last] + self.weights[item] <= self.bound[last]:
                    self._put(item, last)
                    continue
            if able not in coldest:
                coldest[able] = [(self._level(m), rank[m], m) for m in able]
                heapify(coldest[able])
            heap = coldest[able]
            while heap:
                level, _, member = heap[0]
                if self.count[member] >= self.most[member]:
                    heappop(heap)
                elif level < self._level(member):
                    heapreplace(heap, (self._level(member), rank[member], member))
                else:
                    self._put(item, member)
                    break
            else:
                for loose_item, member in loose:
                    self._put(loose_item, member)
                return

    def _level(self, member: int) -> float:
        return self.load[member] / self.demand.state.members[member].capacity

    def _relieve(self) -> None:
        """Take steps that help while a load is above its bound, those of the hottest first."""
        stuck: set[int] = set()
        while hot := [member for member in self._over() if member not in stuck]:
            hottest = max(hot, key=lambda member: self.load[member] / self.bound[member])
            step = min(self._steps(hottest), default=None)
            if step is None:
                stuck.add(hottest)
            else:
                stuck.clear()
                *_, member, given, taken = step
                self._put(given, NOBODY)
                if taken != NOBODY:
                    self._put(taken, hottest)
                self._put(given, member)

    def _steps(self, hot: int) -> Iterator[tuple[int, ...]]:
        """Steps that make a member less hot, the better the smaller.

        What is above the bounds is to fall most, then with the fewest moves, of the least weight.
        """
        cold = [m for m in self.members if m != hot and self.count[m] <= self.most[m]]
        cold.sort(key=lambda member: self.load[member] - self.bound[member])
        with_room = [member for member in cold if self.count[member] < self.most[member]]
        solved = False
        for position, member, given in self._pairs(hot, with_room):
            step = self._step(hot, member, given, NOBODY)
            if step is not None:
                solved = solved or step[0] == self.bound[hot] - self.load[hot]
                yield (*step, position, member, given, NOBODY)
        if solved or self.count[hot] > self.most[hot]:
            return
        for position, member, given in self._pairs(hot, cold):
            for taken in self.held[member]:
                if hot in self.able[taken]:
                    step = self._step(hot, member, given, taken)
                    if step is not None:
                        yield (*step, position, member, given, taken)

    def _pairs(self, hot: int, cold: Sequence[int]) -> Iterator[tuple[int, int, int]]:
        """Partitions of a member with the coldest ones that may have each, and their positions."""
        for given_item in self.held[hot]:
            able = self.able[given_item]
            those = (pair for pair in enumerate(cold) if pair[1] in able)
            for position, member in islice(those, TRIED):
                yield position, member, given_item

    def _step(self, hot: int, cold: int, given: int, taken: int) -> tuple[int, int, int] | None:
        """Change of what is above the bounds, of the moves, and the weight; None: of no use."""
        weight = self.weights[given] - (0 if taken == NOBODY else self.weights[taken])
        loads, bounds = (self.load[hot], self.load[cold]), (self.bound[hot], self.bound[cold])
        after = loads[0] - weight, loads[1] + weight
        above = _above(after, bounds) - _above(loads, bounds)
        if (
            weight <= 0
            or above > 0
            or (above == 0 and _heat(after, bounds) >= _heat(loads, bounds))
        ):
            return None
        return above, self._costs(given, hot, cold) + self._costs(taken, cold, hot), weight

    def _costs(self, item: int, source: int, target: int) -> int:
        """Moves that a step of a partition adds to those from its home."""
        home = NOBODY if item == NOBODY else self.homes[item]
        return 0 if home == NOBODY else (target != home) - (source != home)

    # --- Search ---

    def _search(self) -> None:
        """Look for fewer moves, or for any that bring all loads within their bounds.

        If none are found from the homes, they are looked for from where all is now, as the next
        plan would.
        """
        now, is_over = self.at.copy(), bool(self._over())
        moved = [home not in (NOBODY, at) for home, at in zip(self.homes, now, strict=True)]
        most = len(self.items) if is_over else sum(moved) - 1
        for begin in (self.homes, now) if is_over else (self.homes,):
            self.begin = begin
            self._put_all(begin)
            loose = [item for item, member in enumerate(begin) if member == NOBODY]
            self.looks = LOOKS
            for moves in range(most + 1):
                if self._reaches(moves, loose, dict.fromkeys(self.members, 0)):
                    return
            if self.looks >= 0:
                break  # There are none.
        self._put_all(now)

    def _reaches(self, moves: int, loose: Sequence[int], first: dict[int, int]) -> bool:
        """True if so many moves bring all loads within their bounds; they are done then.

        first: by member, the first item that may go: those before it are to stay.
        """
        self.looks -= len(self.members)
        if self.looks < 0:
            return False
        out = {m: count for m in self.members if (count := self._fewest_out(m, first[m]))}
        if sum(out.values()) > moves:
            return False
        if loose:
            item, *rest = loose
            return any(self._tries(item, m, moves, rest, first) for m in self._by_heat(item))
        for hot in out:
            return any(
                self._tries(item, member, moves - 1, (), first | {hot: item + 1})
                for item in sorted(self.held[hot])
                if item >= first[hot] and self.begin[item] == hot
                for member in self._by_heat(item)
                if member != hot
            )
        return True

    def _tries(
        self, item: int, member: int, moves: int, loose: Sequence[int], first: dict[int, int]
    ) -> bool:
        before = self.at[item]
        self._put(item, member)
        if self._reaches(moves, loose, first):
            return True
        self._put(item, before)
        return False

    def _fewest_out(self, member: int, first: int) -> float:
        """Moves after which a member can be within its bound."""
        load = self.load[member] - self.bound[member]
        count, moves = self.count[member] - self.most[member], 0
        if load <= 0 and count <= 0:
            return 0
        for item in sorted(self.held[member]):
            if item >= first and self.begin[item] == member:
                load, count, moves = load - self.weights[item], count - 1, moves + 1
                if load <= 0 and count <= 0:
                    return moves
        return inf

    def _by_heat(self, item: int) -> list[int]:
        """Members that may have a partition: the one that had it last, then the coldest."""
        last = self.demand.state.previous.get(self.items[item], NOBODY)
        able = [member for member in self.members if member in self.able[item]]
        return sorted(able, key=lambda m: (m != last, self.load[m] - self.bound[m]))


def _above(loads: tuple[int, int], bounds: tuple[int, int]) -> int:
    return max(0, loads[0] - bounds[0]) + max(0, loads[1] - bounds[1])


def _heat(loads: tuple[int, int], bounds: tuple[int, int]) -> int:
    """Sum of squared loads by bounds, a²/x + b²/y, times both bounds: in whole numbers."""
    return loads[0] * loads[0] * bounds[1] + loads[1] * loads[1] * bounds[0]


def _sorted_in(
    demand: Demand, placed: Mapping[Partition, int], shed: Collection[Partition]
) -> tuple[dict[Partition, int], dict[Partition, int]]:
    """Two maps: partitions that stay, to their members; others, to their homes (`Weighing`)."""
    receivers, movable = set(demand.kinds.receivers), set(demand.movable)
    settled = dict(demand.granted) | {(m.topic, m.partition): m.target for m in demand.moves}
    fixed: dict[Partition, int] = {}
    homes: dict[Partition, int] = {}
    for number, topic in enumerate(demand.state.topics):
        for partition, holder in enumerate(topic.at[: topic.count]):
            topic_partition = number, partition
            member = settled.get(topic_partition, holder)
            if topic_partition in placed:
                homes[topic_partition] = (
                    holder if topic_partition in shed and holder in receivers else NOBODY
                )
            elif topic_partition in demand.forced or member not in receivers:
                continue
            elif demand.state.is_frozen or (
                topic_partition in demand.singles and topic_partition not in movable
            ):
                fixed[topic_partition] = member
            else:
                homes[topic_partition] = member
    return fixed, homes
