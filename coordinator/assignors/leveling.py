"""Evens out loads when not everybody may take everything, and knows when it is done.

Members hold partitions of topics; a member may take a partition only of a topic it wants. A
giver passes one partition to a taker, directly or through others: a gives b a partition of
one topic, b gives c a partition of another. Such a path lowers the load of its first member
by 1 and raises that of its last by 1. It is worth taking if the first has at least 2 more
than the last; then the sum of squared loads falls. If no path is worth taking, that sum is as
low as it can be, and the loads are as even as they can be: this is the theorem on optimal
semi-matchings, and it is why nothing here can be improved by a cleverer search.

It ends. Every turn of the loop either takes paths, and the sum of squares is a non-negative
integer that falls; or finds none, and sets at least one member aside for good. Whoever is
set aside cannot be the end of a path later: all who could reach the least loaded members have
been found, none of them has 2 more than the least, and nobody else can reach any of them.

Before the search, the heaviest members hand over directly to the lightest while that helps.
It is no more than a shortcut: a search finds one path for each member in need, at the price
of looking at everything; for 100 members joining 1,000 it took 6 s without the shortcut.

Cost of one turn: the members reached, their topics, and the holders of these. CallScheduler: the
height from the least loaded to the level, plus the number of different final levels.

Source: Harvey, Ladner, Lovász, Tamir, "Semi-matchings for bipartite graphs and load
balancing" (2006); partitions of a topic are interchangeable here, so topics
and not partitions are the nodes.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence, Set
from heapq import heapify, heappop, heappush

Holding = list[dict[int, list[int]]]
"""Dictionaries by topic: member to its partitions of the topic that may be moved; never empty."""

LevelingMove = Callable[[int, int, int], None]
"""Called with topic, giver, taker; moves one partition in the `Holding`."""


def level(
    loads: list[int], wanted: Sequence[Set[int]], holding: Holding, move: LevelingMove
) -> None:
    """Move partitions until no path is worth taking.

    Args:
        loads: for each member, how many partitions it has, movable or not. Changed.
        wanted: for each member, the topics it may take.
        holding: what may be moved. Changed, by `move`.
        move: performs one hand-over.
    """
    if max(loads) - min(loads) <= 1:
        return
    _hand_over_directly(loads, wanted, holding, move)
    active = set(range(len(loads)))
    while active:
        least = min(loads[member] for member in active)
        most = max(loads[member] for member in active)
        if most - least <= 1:
            return
        roots = sorted(member for member in active if loads[member] == least)
        reached, givers = _search(roots, least + 2, loads, wanted, holding)
        for giver in givers:
            loads[giver] -= 1
            while (step := reached[giver]) is not None:
                topic, taker = step
                move(topic, giver, taker)
                giver = taker
            loads[giver] += 1
        if not givers:
            active -= reached.keys()


def _hand_over_directly(
    loads: list[int], wanted: Sequence[Set[int]], holding: Holding, move: LevelingMove
) -> None:
    """Hand over from the heaviest to the lightest that wants any of its topics, while that helps.

    A giver that finds no taker is dropped, even if it would find one later; the search
    handles that. So every step lowers the sum of squares or shortens the heap.
    """
    held: list[set[int]] = [set() for _ in loads]
    for topic, holders in enumerate(holding):
        for member in holders:
            held[member].add(topic)
    lightest = sorted((load, member) for member, load in enumerate(loads))
    givers = [(-load, member) for load, member in lightest]
    heapify(givers)

    def add(member: int, count: int) -> None:
        del lightest[bisect_left(lightest, (loads[member], member))]
        loads[member] += count
        insort(lightest, (loads[member], member))
        heappush(givers, (-loads[member], member))

    while givers:
        negative_load, giver = heappop(givers)
        if -negative_load != loads[giver]:
            continue  # It has changed since; a newer entry exists.
        for load, taker in lightest:
            if load > loads[giver] - 2:
                break
            if common := held[giver] & wanted[taker]:
                # The one of which they differ most, so that nobody is left with all of a topic.
                _, topic = min((_beyond(holding[topic], taker, giver), topic) for topic in common)
                move(topic, giver, taker)
                held[taker].add(topic)
                if giver not in holding[topic]:
                    held[giver].remove(topic)
                add(giver, -1)
                add(taker, 1)
                break


def _beyond(holders: dict[int, list[int]], taker: int, giver: int) -> int:
    return len(holders.get(taker, ())) - len(holders[giver])


def _search(
    roots: list[int],
    enough: int,
    loads: list[int],
    wanted: Sequence[Set[int]],
    holding: Holding,
) -> tuple[dict[int, tuple[int, int] | None], list[int]]:
    """Shortest paths that end at `roots` and start at a load of at least `enough`.

    Returns:
        Every member reached with its first step (topic, taker), None for a root; and the
        members to start from: at most one for each root, so that the paths do not touch.
    """
    reached: dict[int, tuple[int, int] | None] = dict.fromkeys(roots)
    root_of = {root: root for root in roots}
    unseen = {topic for topic, holders in enumerate(holding) if holders}
    heaviest: dict[int, int] = {}
    front = roots
    while front and not heaviest:
        next_front: list[int] = []
        for taker in front:
            topics = sorted(unseen & wanted[taker])
            unseen.difference_update(topics)
            for topic in topics:
                for giver in holding[topic]:
                    if giver not in reached:
                        reached[giver] = (topic, taker)
                        root = root_of[giver] = root_of[taker]
                        next_front.append(giver)
                        load = loads[giver]
                        if load >= enough and (
                            root not in heaviest or load > loads[heaviest[root]]
                        ):
                            heaviest[root] = giver
        front = next_front
    return reached, list(heaviest.values())
