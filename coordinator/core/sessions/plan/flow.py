"""A flow of least cost: how many partitions of each kind each member has in the end.

Nodes are kinds, members and a balance. A member has `low` partitions at least and `high` at most;
what it has above `low` comes over the balance, so that all members together have what there is:

    kind ──► member    it gets a partition of the kind: 0, or -1 if it takes back one of its own
    member ──► kind    it gives one away: 1 for one of its own, 0 for one that it has just got
    member ──► balance ──► member    one has one more, the other one less: 0

Everything begins where it is, which costs nothing. Kinds with partitions that look for a member,
and members above `high`, have too much; members below `low` have too little. As long as both exist,
partitions go from the one to the other along paths of least cost, all paths of one length in one
pass. Such a flow is always one of least cost for where it has got to (successive shortest paths),
so at the end the fewest partitions have moved.

If a path is missing, not all members can be within their bounds. Kinds and members that are reached
from those with too much then have too many partitions among them; or those from which the ones with
too little are reached have too few. These are divided on their own, with bounds of their own, and
the others on theirs.

Capacities of arcs to and from the balance make loads floors and ceilings of fair shares (`loads`).
With equal capacities the sum of squared loads is then the smallest there is, since parts that are
divided on their own are above or below the others by whole partitions.

Source: R. Ahuja, T. Magnanti, J. Orlin, "Network Flows" (1993), chapter 9, on successive shortest
paths and the primal-dual algorithm.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from math import inf

from coordinator.core.sessions.plan.constraints import Demand
from coordinator.core.sessions.plan.loads import FairShare, LoadBounds, bounds_of
from coordinator.core.values.plans import NOBODY, MoveReason, Obstacle

Changes = list[dict[int, int]]
"""Partitions that members are to have more, by kind; below 0: fewer."""


def allocate(demand: Demand) -> tuple[Changes, list[Obstacle]]:
    """Return how many partitions of each kind members are to have more, or fewer; and obstacles.

    What is above the maximum of a member, and nobody has room for, stays where it is.
    """
    allocation = _Allocation(demand)
    return allocation.changes, allocation.obstacles


class _Allocation:
    """The parts of a group that are divided on their own; at first, one part is all of it.

    totals: partitions by kind, without those that stay with members that do not receive.
    urgent: of these, those that nobody holds, or that their holders may keep in no case.
    wishes: by kind, for each free partition the member that had it last.
    receivers: members that may get partitions. members: these, and those that receive none and have
        more than their `max_partitions`, until it is clear what they give.
    """

    def __init__(self, demand: Demand) -> None:
        self.demand = demand
        self.changes: Changes = [{} for _ in demand.homes]
        self.obstacles: list[Obstacle] = []
        self.urgent = [sum(map(len, free.values())) for free in demand.free]
        self.wishes = [_wishes(demand, kind) for kind in range(len(demand.free))]
        waiting = [0] * len(self.urgent)
        for partition, (_, reason) in demand.forced.items():
            counts = waiting if reason is MoveReason.NOT_ALLOWED else self.urgent
            counts[demand.kinds.of(partition)] += 1
        self.receivers = set(demand.kinds.receivers)
        givers = [
            number
            for number, member in enumerate(demand.state.members)
            if member.max_partitions is not None
            and number not in self.receivers
            and demand.load(number) > member.max_partitions
        ]
        givers.sort(key=lambda number: demand.state.members[number].name)
        self.members = self.receivers.union(givers)
        self.totals = [
            urgent + late + sum(count for m, count in home.items() if m in self.members)
            for urgent, late, home in zip(self.urgent, waiting, demand.homes, strict=True)
        ]
        kinds = [kind for kind, able in enumerate(demand.kinds.eligible) if able]
        parts = [_Part(self, kinds, [*demand.kinds.receivers, *givers])]
        while parts:
            part = parts.pop()
            within = part.solve()
            if within is None:
                self._note(part, part.members)
                for member, kind, count in part.outside:
                    self.changes[kind][member] = -count
            else:
                parts += self._split(part, within)

    def share(self, member: int) -> FairShare:
        """The bounds of a member's load."""
        shared, least = self.demand.state.members[member], self.demand.fixed[member]
        most = inf if shared.max_partitions is None else max(least, shared.max_partitions)
        if member in self.receivers:
            return FairShare(shared.capacity, least, most)
        return FairShare(0.0, int(most), most)

    def _note(self, part: _Part, members: Iterable[int]) -> None:
        for member in members:
            home, held = part.home[member], part.held[member]
            if held is not home:
                for node, count in held.items():
                    if count != home.get(node, 0):
                        kind = node - part.first_kind
                        self.changes[kind][member] = count - home.get(node, 0)

    def _split(self, part: _Part, within: set[int]) -> list[_Part]:
        """Divide a part in two: its kinds and members in `within`, and the others."""
        settled = [
            m for m in part.members if m not in self.receivers and part.load[m] <= part.high[m]
        ]
        self._note(part, settled)
        self.members.difference_update(settled)
        for member in settled:
            for node, count in part.held[member].items():
                self.totals[node - part.first_kind] -= count
        first = part.first_kind
        parts = [
            _Part(
                self,
                [kind for kind in part.kinds if (first + kind in within) is is_within],
                [
                    member
                    for member in part.members
                    if member in self.members and (member in within) is is_within
                ],
            )
            for is_within in (True, False)
        ]
        if not part.is_full:
            above, others = (self.receivers.intersection(one_part.members) for one_part in parts)
            if above and others:
                both = tuple(sorted(above)), tuple(sorted(others))
                self.obstacles.append(Obstacle(*(both if part.has_too_much else both[::-1])))
        return parts


def _wishes(demand: Demand, kind: int) -> list[int]:
    previous = demand.state.previous
    if not previous:
        return []
    able = set(demand.kinds.eligible[kind])
    partitions = ((number, p) for number, free in demand.free[kind].items() for p in free)
    return [
        member for partition in partitions if (member := previous.get(partition, NOBODY)) in able
    ]


class _Part:
    """Kinds and members that are divided on their own.

    Nodes are members by their number, kinds from `first_kind` on, and the balance.
    home: partitions where they are, by member and kind. held: where they are to be, the same
        dictionary until that changes. away: by kind, members that have fewer than at home.
    outside: partitions of members that are in other parts: member, kind and number.
    excess: by kind, partitions that look for a member. others: more of these, which may wait.
    owed: what the balance has to give to members within their bounds; below 0: to take from them.
    has_too_much: what `solve` has returned has too many partitions for its members, not too few.
    """

    def __init__(self, whole: _Allocation, kinds: Sequence[int], members: Sequence[int]) -> None:
        demand, inside = whole.demand, set(members)
        self.kinds, self.members, self.wishes = kinds, members, whole.wishes
        self.first_kind = first = len(demand.state.members)
        self.balance = first + len(whole.totals)
        self.eligible = {first + kind: demand.kinds.eligible[kind] for kind in kinds}
        if not whole.receivers <= inside:
            for node, eligible in self.eligible.items():
                self.eligible[node] = tuple(member for member in eligible if member in inside)
        self.home: dict[int, dict[int, int]] = {member: {} for member in members}
        self.load = {member: demand.fixed[member] for member in members}
        self.outside: list[tuple[int, int, int]] = []
        self.excess: dict[int, int] = {}
        self.others: dict[int, int] = {}
        for kind in kinds:
            node, others = first + kind, whole.totals[kind] - whole.urgent[kind]
            for member, count in demand.homes[kind].items():
                if member in inside:
                    self.home[member][node] = count
                    self.load[member] += count
                    others -= count
                elif member in whole.members and count:
                    self.outside.append((member, kind, count))
            self.excess[node], self.others[node] = whole.urgent[kind], others
        self.held = self.home.copy()
        self.away: dict[int, set[int]] = {node: set() for node in self.excess}
        shares = {member: whole.share(member) for member in members}
        counts = Counter(shares.values())
        total = sum(map(sum, (self.load.values(), self.excess.values(), self.others.values())))
        self.is_full = total >= sum(share.most * count for share, count in counts.items())
        bounds = bounds_of(counts, total)
        if demand.state.weights and not self.is_full:  # Loads are balanced afterwards (`weighing`).
            bounds = {share: LoadBounds(0, int(min(share.most, total))) for share in counts}
        self.low = {member: bounds[share].low for member, share in shares.items()}
        self.high = {member: bounds[share].high for member, share in shares.items()}
        self.owed = 0
        if not self.is_full:
            self.owed = total - sum(self._within(*item) for item in self.load.items())

    def solve(self) -> set[int] | None:
        """Route surplus to members below their bounds; None: all within, or no capacity left.

        Returns nodes that are to be divided on their own otherwise.
        """
        if self.is_full:
            self._place()
            self._route(self._kinds_above)
        for kind, count in self.others.items():
            self.excess[kind] += count
        self._place()
        reached = self._route(lambda: [*self._kinds_above(), *self._members_above()])
        within = reached
        self.has_too_much = not (self.is_full or self.balance in reached or not reached)
        if not self.has_too_much:
            below = [member for member in self.members if self.load[member] < self.low[member]]
            within = self._leading_to(below) if below else set()
        return within if within and not within >= {*self.members, *self.eligible} else None

    # --- Placing ---

    def _place(self) -> None:
        """Assign unassigned partitions to members with capacity: no other path costs less.

        What a member had last goes back to it. Of other kinds each member takes some, so that all
        topics are spread.
        """
        kinds = sorted(self._kinds_above(), key=lambda kind: (len(self.eligible[kind]), kind))
        for kind in kinds:
            for member in self.wishes[kind - self.first_kind]:
                if member in self.load:
                    self._give(kind, member, 1)
        left = dict.fromkeys(self.members, 0)
        for kind in kinds:
            for member in self.eligible[kind]:
                left[member] += 1
        for kind in kinds:
            for member in self.eligible[kind]:
                capacity = self.low[member] - self.load[member]
                if capacity > 0:
                    self._give(kind, member, -(-capacity // left[member]))
                left[member] -= 1
        for kind in kinds:
            for member in self.eligible[kind]:
                if not self.excess[kind]:
                    break
                self._give(kind, member, self.excess[kind])

    def _give(self, kind: int, member: int, most: int) -> None:
        load, low = self.load[member], self.low[member]
        capacity = low - load if load < low else min(self.high[member] - load, self.owed)
        count = min(self.excess[kind], most, capacity)
        if count > 0:
            self._change(member, kind, count)
            self.excess[kind] -= count

    def _change(self, member: int, kind: int, count: int) -> None:
        held, load = self.held[member], self.load[member]
        if held is self.home[member]:
            held = self.held[member] = held.copy()
        held[kind] = held.get(kind, 0) + count
        if held[kind] < self.home[member].get(kind, 0):
            self.away[kind].add(member)
        else:
            self.away[kind].discard(member)
        self.load[member] = load + count
        self.owed += self._within(member, load) - self._within(member, load + count)

    def _within(self, member: int, load: int) -> int:
        """Return the part of a load that is within the bounds, or the lower one."""
        return min(max(load, self.low[member]), self.high[member])

    # --- Paths ---

    def _kinds_above(self) -> list[int]:
        return [kind for kind, excess in self.excess.items() if excess]

    def _members_above(self) -> list[int]:
        above = [member for member, load in self.load.items() if load > self.high[member]]
        return [*above, self.balance] if self.owed < 0 else above

    def _route(self, sources_now: Callable[[], list[int]]) -> set[int]:
        """Push surplus along shortest augmenting paths; return nodes reachable from the rest."""
        while sources := sources_now():
            distances = self._distances(sources)
            if not self._augment(sources, distances):
                return {node for node, distance in enumerate(distances) if distance < inf}
        return set()

    def _distances(self, sources: Iterable[int]) -> list[float]:
        """Moves on the shortest path to each node."""
        distances = [inf] * (self.balance + 1)
        for source in sources:
            distances[source] = 0
        queue = deque(sources)
        while queue:
            node = queue.popleft()
            here = distances[node]
            for following, cost in self._arcs(node):
                if here + cost < distances[following]:
                    distances[following] = here + cost
                    if cost > 0:
                        queue.append(following)
                    else:
                        queue.appendleft(following)
        return distances

    def _arcs(self, node: int) -> list[tuple[int, int]]:
        """Nodes to which a partition can go from one, with what that costs."""
        low, high, load = self.low, self.high, self.load
        if node == self.balance:
            return [(member, 0) for member in self.members if load[member] > low[member]]
        if node < self.first_kind:
            home = self.home[node]
            held = self.held[node].items()
            arcs = [(kind, int(count <= home.get(kind, 0))) for kind, count in held if count]
            return [*arcs, (self.balance, 0)] if load[node] < high[node] else arcs
        eligible: Sequence[int] = self.eligible[node]
        if self.is_full:
            eligible = [member for member in eligible if load[member] <= high[member]]
        away = self.away[node]
        return [(member, -1 if member in away else 0) for member in eligible]

    def _room(self, node: int, following: int, distances: Sequence[float]) -> float:
        """Partitions that a shortest path can take over an arc; 0: none, or the arc is on none."""
        load, first = self.load, self.first_kind
        capacity: float
        if node == self.balance:
            cost, capacity = 0, min(load[following], self.high[following]) - self.low[following]
        elif following == self.balance:
            cost, capacity = 0, self.high[node] - load[node]
        elif node >= first:
            away = self.home[following].get(node, 0) - self.held[following].get(node, 0)
            cost, capacity = (-1, away) if away > 0 else (0, inf)
        else:
            held = self.held[node].get(following, 0)
            guests = held - self.home[node].get(following, 0)
            cost, capacity = (0, guests) if guests > 0 else (1, held)
        return capacity if distances[following] == distances[node] + cost else 0

    def _augment(self, sources: Iterable[int], distances: Sequence[float]) -> bool:
        """Move partitions along shortest paths until each path meets a full arc; True: some did."""
        arcs: dict[int, list[int]] = {}
        has_moved = False
        for source in sources:
            if distances[source] == 0:
                while (excess := self._above(source)) > 0:
                    path = self._path(source, distances, arcs)
                    if not path:
                        break
                    steps = list(pairwise(path))
                    rooms = (self._room(*step, distances) for step in steps)
                    self._walk(steps, int(min(excess, self._below(path[-1]), *rooms)))
                    has_moved = True
        return has_moved

    def _path(
        self, source: int, distances: Sequence[float], arcs: dict[int, list[int]]
    ) -> list[int]:
        """A shortest path to a node with too little; empty: there is none.

        arcs: by node, the arcs that have not been found in vain.
        """
        path, on_path = [source], {source}
        while path:
            node = path[-1]
            if self._below(node) > 0:
                return path
            if node not in arcs:
                arcs[node] = [following for following, _ in reversed(self._arcs(node))]
            ahead = arcs[node]
            while ahead and (ahead[-1] in on_path or self._room(node, ahead[-1], distances) <= 0):
                ahead.pop()
            if ahead:
                path.append(ahead[-1])
                on_path.add(ahead[-1])
            else:
                on_path.remove(path.pop())
                if path:
                    arcs[path[-1]].pop()
        return path

    def _above(self, node: int) -> int:
        """Partitions that a node has too many."""
        if node == self.balance:
            return -self.owed
        return self.excess[node] if node >= self.first_kind else self.load[node] - self.high[node]

    def _below(self, node: int) -> int:
        """Partitions that a node has too few."""
        if node == self.balance:
            return self.owed
        return 0 if node >= self.first_kind else self.low[node] - self.load[node]

    def _walk(self, steps: Sequence[tuple[int, int]], count: int) -> None:
        """Move partitions along a path."""
        source = steps[0][0]
        if source in self.excess:
            self.excess[source] -= count
        for node, following in steps:
            if self.balance not in (node, following):
                if node >= self.first_kind:
                    self._change(following, node, count)
                else:
                    self._change(node, following, -count)

    def _leading_to(self, members: Sequence[int]) -> set[int]:
        """Kinds and members from which paths lead to the given ones, but those over the balance."""
        before: dict[int, list[int]] = {}
        for node in (*self.members, *self.eligible):
            for following, _ in self._arcs(node):
                before.setdefault(following, []).append(node)
        reached, stack = set(members), list(members)
        while stack:
            new = set(before.get(stack.pop(), ())) - reached
            reached |= new
            stack += new
        return reached
