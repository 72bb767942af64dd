"""Second half of a plan for members that may not all have the same partitions.

The sum of squared loads, by capacity, is to be as small as it can be, and of all assignments for
which it is, one with the fewest moves:

1. Partitions that look for a holder are placed, those that the fewest may have first.
2. The coldest members take from the hottest that hold what they may have.
3. A partition moves along a path: a gives one to b, and b another one to c. A path is taken while
   one lowers the sum. If the hottest member has none, neither has any member that it can reach, and
   nothing that others do changes that: these are done.
4. A cycle, of which the sum stays the same, is taken while one saves moves. It goes over a
   partition that was taken from its home, so there is little to look at.

Without such paths and cycles the result is optimal: this is a flow of least cost.

Source: Harvey, Ladner, Lovász, Tamir, "Semi-matchings for bipartite graphs and load balancing"
(2006); M. Klein, "A primal method for minimal cost flows" (1967).
"""

from __future__ import annotations

from collections import Counter, deque
from heapq import heapify, heappop, heappush
from math import inf
from typing import NamedTuple
from zlib import crc32

from coordinator.core.session_values.plans import (
    NOBODY,
    MoveReason,
    Partition,
    Plan,
    Unplaced,
)
from coordinator.core.sessions.balance import Grants, Placed, finished, nobody
from coordinator.core.sessions.hard_rules import Work, above_maximum
from coordinator.core.sessions.kinds import Kinds, Pool

EPSILON = 1e-9


class Step(NamedTuple):
    """`giver` gives one partition of `kind` to the member that the step leads to."""

    giver: int
    kind: int


def uneven(work: Work) -> Plan:
    """Plan for members that may not all have the same partitions."""
    if not work.receivers():
        return nobody(work)
    return _Uneven(work).plan()


class _Uneven:
    def __init__(self, work: Work) -> None:
        self.work = work
        self.state = work.state
        self.members = work.state.members
        self.loads = work.loads
        self.receivers = set(work.receivers())
        self.surplus = above_maximum(work)
        self.kinds = Kinds(work.state, sorted(self.receivers))
        self.order = [crc32(member.name.encode()) for member in self.members]
        self.pools: dict[int, dict[int, Pool]] = {
            member: {} for member in self.receivers | set(self.surplus)
        }
        self.done: set[int] = set()

    def plan(self) -> Plan:
        work = self.work
        settled = {place for place, _ in work.settled}
        self._gather(settled)
        # A partition that its holder may not keep counts there until another has room for it.
        not_allowed = [
            place
            for place, (_, reason) in work.forced.items()
            if place not in settled and reason is MoveReason.NOT_ALLOWED
        ]
        for place in not_allowed:
            self.loads[work.forced[place][0]] += 1
        looking = [(number, p) for number, free in work.orphans.items() for p in free]
        placed_later = settled.union(not_allowed)
        looking += [place for place in work.forced if place not in placed_later]
        stuck = self._place(looking)
        self._level()
        self._balance()
        for place in not_allowed:
            self._replace(place)
        for place in stuck:
            self._make_room(place)
        if stuck or not_allowed:
            self.done.clear()
            self._balance()
        self._save_moves()
        return self._result()

    def _gather(self, settled: set[Partition]) -> None:
        """Put partitions that balance may move into the pools of their holders."""
        forced, pins = self.work.forced, self.state.pins
        is_fixed = bool(forced or pins or settled)
        for number, topic in enumerate(self.state.topics):
            kinds = [self.kinds.of(number, p) for p in range(topic.count)]
            moving = topic.moving
            for partition, holder in enumerate(topic.at[: topic.count]):
                pools = self.pools.get(holder)
                if pools is None or partition in moving:
                    continue
                place = number, partition
                if is_fixed and (place in forced or place in pins):
                    continue
                kind = kinds[partition]
                pool = pools.get(kind)
                if pool is None:
                    pool = pools[kind] = Pool()
                pool.home.append(place)

    # --- Prices ---

    def _price(self, member: int) -> float:
        """Cost that one partition more adds to the sum; infinite: it may have no more."""
        most = self.members[member].max_partitions
        if member not in self.receivers or (most is not None and self.loads[member] >= most):
            return inf
        return (2 * self.loads[member] + 1) / self.members[member].capacity

    def _refund(self, member: int) -> float:
        """Cost that one partition less takes off the sum; infinite: above its maximum."""
        if member == NOBODY:
            return inf
        most = self.members[member].max_partitions
        if most is not None and self.loads[member] > most:
            return inf
        if member not in self.receivers:
            return -inf
        return (2 * self.loads[member] - 1) / self.members[member].capacity

    def _put(self, place: Partition, origin: int, kind: int, member: int) -> None:
        self.pools[member].setdefault(kind, Pool()).put(place, origin, member)

    def _give(self, step: Step, taker: int) -> None:
        place, origin = self.pools[step.giver][step.kind].take(self.state, step.giver, taker)
        self._put(place, origin, step.kind, taker)

    # --- 1. Placing ---

    def _place(self, places: list[Partition]) -> list[Partition]:
        """Place partitions that look for a holder; returns those for which everybody is full."""
        by_kind: dict[int, list[Partition]] = {}
        for place in places:
            by_kind.setdefault(self.kinds.of(*place), []).append(place)
        stuck: list[Partition] = []
        eligible = self.kinds.eligible
        for kind in sorted(by_kind, key=lambda kind: (len(eligible[kind]), by_kind[kind][0])):
            prices = [(self._price(m), self.order[m], m) for m in eligible[kind]]
            heapify(prices)
            able = set(eligible[kind])
            for place in self._previous_first(by_kind[kind]):
                while prices and prices[0][0] != self._price(prices[0][2]):
                    member = heappop(prices)[2]
                    heappush(prices, (self._price(member), self.order[member], member))
                if not prices or prices[0][0] == inf:
                    stuck.append(place)
                    continue
                last = self.state.previous.get(place, NOBODY)
                goes_back = last in able and self._price(last) <= prices[0][0]
                taker = last if goes_back else prices[0][2]
                self._put(place, NOBODY, kind, taker)
                self.loads[taker] += 1
        return stuck

    def _replace(self, place: Partition) -> None:
        """Take from its holder what it may not keep, if there is room for it elsewhere."""
        holder = self.work.forced[place][0]
        self.loads[holder] -= 1
        if self._place([place]) and not self._make_room(place):
            del self.work.forced[place]
            self.loads[holder] += 1

    def _previous_first(self, places: list[Partition]) -> list[Partition]:
        """Sort partitions of members that had them last to the front, one of each member in turn.

        So each gets as many of its own back as it may have, and none waits for another's.
        """
        previous = self.state.previous
        if not previous:
            return places
        counts: Counter[int] = Counter()
        turns: dict[Partition, float] = {}
        for place in places:
            member = previous.get(place, NOBODY)
            turns[place] = inf if member == NOBODY else counts[member]
            counts[member] += 1
        return sorted(places, key=lambda place: turns[place])

    # --- 2. From the hottest to the coldest ---

    def _level(self) -> None:
        holders: dict[int, list[tuple[float, int, int]]] = {}
        kinds_of: dict[int, list[int]] = {}
        for member, pools in self.pools.items():
            for kind in pools:
                entry = (-self._refund(member), self.order[member], member)
                holders.setdefault(kind, []).append(entry)
        for kind, heap in holders.items():
            heapify(heap)
            for member in self.kinds.eligible[kind]:
                kinds_of.setdefault(member, []).append(kind)
        takers = [(self._price(m), self.order[m], m) for m in kinds_of]
        heapify(takers)
        while takers:
            price, _, taker = heappop(takers)
            if price == inf:
                continue
            step = self._hottest(holders, kinds_of[taker], taker)
            if step is None or self._refund(step.giver) <= price + EPSILON:
                continue
            self._give(step, taker)
            self.loads[step.giver] -= 1
            self.loads[taker] += 1
            for member in (step.giver, taker):
                for kind, pool in self.pools[member].items():
                    if pool and kind in holders:
                        entry = (-self._refund(member), self.order[member], member)
                        heappush(holders[kind], entry)
            heappush(takers, (self._price(taker), self.order[taker], taker))

    def _hottest(
        self, holders: dict[int, list[tuple[float, int, int]]], kinds: list[int], taker: int
    ) -> Step | None:
        """The hottest member of which `taker` may have something."""
        best: tuple[float, int, int, int] | None = None
        for kind in kinds:
            heap = holders[kind]
            while heap and (
                -heap[0][0] != self._refund(heap[0][2]) or not self.pools[heap[0][2]].get(kind)
            ):
                heappop(heap)  # It has changed since; a newer entry exists.
            if heap and heap[0][2] != taker and (best is None or (*heap[0], kind) < best):
                best = (*heap[0], kind)
        return None if best is None else Step(best[2], best[3])

    # --- 3. Paths ---

    def _balance(self) -> None:
        """Take paths while the sum falls, from the hottest members first."""
        givers = [(-self._refund(member), self.order[member], member) for member in self.pools]
        heapify(givers)
        while givers:
            refund, _, giver = heappop(givers)
            if -refund != self._refund(giver) or giver in self.done:
                continue  # It has changed since; a newer entry exists.
            steps, end = self._search(giver)
            if end == NOBODY:
                self.done |= {giver, *steps}
                continue
            self._walk(steps, giver, end)
            self.loads[giver] -= 1
            self.loads[end] += 1
            for member in (giver, end):
                heappush(givers, (-self._refund(member), self.order[member], member))

    def _walk(self, steps: dict[int, Step], giver: int, end: int) -> None:
        path = []
        while end != giver:
            path.append((steps[end], end))
            end = steps[end].giver
        for step, taker in reversed(path):
            self._give(step, taker)

    def _search(self, giver: int) -> tuple[dict[int, Step], int]:
        """The members that can be reached from one, and the best end of a path; NOBODY: none is."""
        refund = self._refund(giver)
        cost = {giver: 0}
        steps: dict[int, Step] = {}
        kind_cost: dict[int, int] = {}
        front = deque([giver])
        while front:
            member = front.popleft()
            for kind, pool in self.pools[member].items():
                if not pool:
                    continue
                via = Step(member, kind)
                for origin in pool.away.values():
                    self._reach(origin, cost[member] - 1, via, cost, steps, front, giver)
                price = cost[member] + (not pool.free and not pool.away)
                if price < kind_cost.get(kind, price + 1):
                    kind_cost[kind] = price
                    for taker in self.kinds.eligible[kind]:
                        if price < cost.get(taker, price + 1):
                            self._reach(taker, price, via, cost, steps, front, giver)
        ends = [m for m in steps if self._price(m) < refund - EPSILON]
        if not ends:
            return steps, NOBODY
        return steps, min(ends, key=lambda m: (cost[m], self._price(m), self.order[m]))

    def _reach(
        self,
        taker: int,
        price: int,
        via: Step,
        cost: dict[int, int],
        steps: dict[int, Step],
        front: deque[int],
        giver: int,
    ) -> None:
        if taker not in self.receivers or taker in self.done or taker in (giver, via.giver):
            return
        if taker in cost and (price >= cost[taker] or _leads_to(steps, via.giver, taker)):
            return
        if self._refund(taker) == inf:
            return  # A member above its maximum gets nothing.
        cost[taker], steps[taker] = price, via
        front.append(taker)

    def _make_room(self, place: Partition) -> bool:
        """Place a partition for which all are full, if one of them can pass another one on."""
        kind = self.kinds.of(*place)
        self.done.clear()
        self.pools[NOBODY] = {kind: Pool(free=[place])}
        steps, end = self._search(NOBODY)
        if end != NOBODY:
            self._walk(steps, NOBODY, end)
            self.loads[end] += 1
        del self.pools[NOBODY]
        return end != NOBODY

    # --- 4. Cycles ---

    def _save_moves(self) -> None:
        """Take cycles that save moves and leave the sum as it is."""
        while (cycle := _Cycles(self).find()) is not None:
            for step, taker in cycle.gifts:
                self._give(step, taker)
            for member in cycle.ends:
                self.loads[member] += 1
            for member in cycle.givers:
                self.loads[member] -= 1

    # --- The result ---

    def _result(self) -> Plan:
        work = self.work
        at: Placed = {}
        taken: dict[int, list[Partition]] = {}
        for member, pools in self.pools.items():
            for pool in pools.values():
                at.update(dict.fromkeys(pool.free, member))
                at.update(dict.fromkeys(pool.away, member))
                for place, origin in pool.away.items():
                    taken.setdefault(origin, []).append(place)
        grants: Grants = {}
        for number, free in work.orphans.items():
            for place in ((number, p) for p in free):
                if place in at:
                    grants.setdefault(at.pop(place), {}).setdefault(number, []).append(place[1])
                else:
                    work.unplaced[place] = self._why(place)
        shed: list[tuple[Partition, MoveReason]] = []
        for origin, places in sorted(taken.items()):
            places.sort()
            above = self.surplus.get(origin, 0)
            shed += [(place, MoveReason.ABOVE_MAXIMUM) for place in places[:above]]
            shed += [(place, MoveReason.BALANCE) for place in places[above:]]
        shed.sort(key=lambda each: each[1] is MoveReason.BALANCE)
        return finished(work, grants, at, shed)

    def _why(self, place: Partition) -> Unplaced:
        if self.kinds.eligible[self.kinds.of(*place)]:
            return Unplaced.CAPACITY
        return Unplaced.NOT_ALLOWED


def _leads_to(steps: dict[int, Step], member: int, via: int) -> bool:
    """True if the path to `member` goes over `via`."""
    while member != via and member in steps:
        member = steps[member].giver
    return member == via


class _Cycle(NamedTuple):
    """Gifts with their takers, and members that have one more, and one fewer, after them."""

    gifts: list[tuple[Step, int]]
    ends: list[int]
    givers: list[int]


Node = tuple[str, float]
"""("give", member): it gives something; ("got", member): it has got something, which it passes on
or keeps; ("kind", k): a partition of it is given; ("price", p): one member keeps one for p, another
gives one up for as much."""


class _Cycles:
    """A search for a cycle that saves moves: Bellman and Ford's, from what has been moved."""

    def __init__(self, plan: _Uneven) -> None:
        self.plan = plan
        self.cost: dict[Node, int] = {}
        self.back: dict[Node, tuple[Node, Step | None]] = {}
        self.by_refund: dict[float, list[int]] = {}
        for member in plan.pools:
            if any(plan.pools[member].values()):
                self.by_refund.setdefault(plan._refund(member), []).append(member)

    def find(self) -> _Cycle | None:
        """A cycle; None: there is none."""
        front: deque[Node] = deque()
        for member, pools in self.plan.pools.items():
            if any(pool.away for pool in pools.values()):
                front += [("give", member), ("got", member)]
        while front:
            node = front.popleft()
            for following, cost, step in self._edges(node):
                reached = self.cost.get(node, 0) + cost
                if reached < self.cost.get(following, 0):
                    if self._is_behind(node, following):
                        self.back[following] = node, step
                        return self._cycle(following)
                    self.cost[following] = reached
                    self.back[following] = node, step
                    front.append(following)
        return None

    def _edges(self, node: Node) -> list[tuple[Node, int, Step | None]]:
        what, number = node
        plan = self.plan
        if what == "kind":
            return [(("got", m), 0, None) for m in plan.kinds.eligible[int(number)]]
        if what == "price":
            return [(("give", m), 0, None) for m in self.by_refund.get(number, ())]
        member = int(number)
        edges: list[tuple[Node, int, Step | None]] = []
        for kind, pool in plan.pools[member].items():
            if pool:
                step = Step(member, kind)
                edges += [(("got", o), -1, step) for o in pool.away.values() if o in plan.pools]
                edges.append((("kind", kind), int(not pool.free and not pool.away), step))
        if what == "got" and plan._price(member) < inf:
            edges.append((("price", plan._price(member)), 0, None))
        return edges

    def _is_behind(self, node: Node, other: Node) -> bool:
        while node != other and node in self.back:
            node = self.back[node][0]
        return node == other

    def _cycle(self, node: Node) -> _Cycle:
        path = []
        at = node
        while True:
            before, step = self.back[at]
            path.append((before, at, step))
            at = before
            if at == node:
                break
        path.reverse()
        gifts: list[tuple[Step, int]] = []
        ends: list[int] = []
        givers: list[int] = []
        given: Step | None = None
        # It may begin behind a gift to a kind: turn it so that it does not.
        while path[0][0][0] == "kind":
            path.append(path.pop(0))
        for before, after, step in path:
            given = step if step is not None else given
            if after[0] == "got":
                assert given is not None
                gifts.append((given, int(after[1])))
            if after[0] == "price":
                ends.append(int(before[1]))
            if before[0] == "price":
                givers.append(int(after[1]))
        return _Cycle(gifts, ends, givers)
