"""Rack-aware placement: puts partitions near a replica without changing any member's count.

The caller has already decided the slots: who takes how many. What is left free is which
partition goes into which slot, and that is a matching problem. Partitions whose replicas lie
in the same racks are interchangeable, and so are slots in one rack; so the matching is a flow
from a few classes to a few racks, and its cost hardly depends on the number of partitions.
The flow starts from where the partitions would go without racks and is only ever augmented:
hence never fewer near partitions than without rack preference, and the most there can be.

Source: KIP-881 for what to want; Ford and Fulkerson's augmenting paths for how.
"""

from collections import Counter, deque
from collections.abc import Sequence
from itertools import pairwise

Class = frozenset[str]


def place_near(
    near: Sequence[frozenset[str]], slots: Sequence[int], rack_of: Sequence[str | None]
) -> list[int]:
    """Assign items to slot owners so that as many items as possible are near their owner.

    Args:
        near: for each item, the racks in which it is near.
        slots: for each item, the owner who would take it if racks did not matter. How often
            an owner occurs here is how many items it takes; that is kept.
        rack_of: for each owner that occurs in `slots`, its rack, or None.
    Returns:
        For each item, its owner. Items stay with the owner in `slots` where that costs
        nothing.
    """
    free_by_rack = Counter(rack for owner in slots if (rack := rack_of[owner]) is not None)
    known = frozenset(free_by_rack)
    classes = [racks & known for racks in near]
    flow = _most_near(classes, slots, rack_of, free_by_rack)

    owners: list[int | None] = [None] * len(slots)
    free = Counter(slots)
    for item, owner in enumerate(slots):
        rack = rack_of[owner]
        if rack is not None and flow[classes[item], rack] > 0:
            flow[classes[item], rack] -= 1
            owners[item] = owner
            free[owner] -= 1

    waiting: dict[str | None, deque[int]] = {}
    for owner, count in free.items():
        waiting.setdefault(rack_of[owner], deque()).extend([owner] * count)
    for item, racks in enumerate(classes):
        if owners[item] is None:
            for rack in sorted(racks):
                if flow[racks, rack] > 0:
                    flow[racks, rack] -= 1
                    owners[item] = waiting[rack].popleft()
                    break

    left = Counter(slots)
    left.subtract(Counter(owner for owner in owners if owner is not None))
    rest = iter([owner for owner, count in left.items() for _ in range(count)])
    return [next(rest) if owner is None else owner for owner in owners]


def _most_near(
    classes: Sequence[Class],
    slots: Sequence[int],
    rack_of: Sequence[str | None],
    free_by_rack: Counter[str],
) -> Counter[tuple[Class, str]]:
    """Number of items of each class in each rack: a maximum flow that starts from `slots`."""
    flow: Counter[tuple[Class, str]] = Counter()
    unplaced = Counter(classes)
    spare = free_by_rack.copy()
    for racks, owner in zip(classes, slots, strict=True):
        rack = rack_of[owner]
        if rack is not None and rack in racks:
            flow[racks, rack] += 1
            unplaced[racks] -= 1
            spare[rack] -= 1
    order = sorted(unplaced, key=sorted)
    for start in order:
        while unplaced[start] > 0:
            path = _augmenting_path(start, order, flow, spare)
            if path is None:
                break
            # Along the path a class enters a rack and the next class leaves it.
            leaving = [flow[after, rack] for (_, rack), (after, _) in pairwise(path)]
            amount = min(unplaced[start], spare[path[-1][1]], *leaving)
            for (_, rack), (after, _) in pairwise(path):
                flow[after, rack] -= amount
            for racks, rack in path:
                flow[racks, rack] += amount
            unplaced[start] -= amount
            spare[path[-1][1]] -= amount
    return flow


def _augmenting_path(
    start: Class,
    order: Sequence[Class],
    flow: Counter[tuple[Class, str]],
    spare: Counter[str],
) -> list[tuple[Class, str]] | None:
    """The shortest way to place one more of `start`, as (class, rack it enters) steps."""
    reached: dict[Class, list[tuple[Class, str]]] = {start: []}
    tried: set[str] = set()
    queue = deque([start])
    while queue:
        racks = queue.popleft()
        for rack in sorted(racks - tried):
            tried.add(rack)
            path = [*reached[racks], (racks, rack)]
            if spare[rack] > 0:
                return path
            for other in order:
                if flow[other, rack] > 0 and other not in reached:
                    reached[other] = path
                    queue.append(other)
    return None
