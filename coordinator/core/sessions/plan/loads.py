"""Loads of members: the floor or the ceiling of each one's fair share, by capacity."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import ceil, floor
from typing import NamedTuple

EPSILON = 1e-9


class FairShare(NamedTuple):
    """Bounds of a share: capacity, what a member has anyway, and the most it may have."""

    capacity: float
    least: int
    most: float


class LoadBounds(NamedTuple):
    """Fewest and most partitions for a share."""

    low: int
    high: int


def bounds_of(shares: Mapping[FairShare, int], total: int) -> dict[FairShare, LoadBounds]:
    """Divide `total` partitions by capacity, within what bounds each share.

    Args:
        shares: number of members by share.
    """
    left = float(total)
    bounds: dict[FairShare, LoadBounds] = {}
    rest = Counter(shares)
    while rest:
        capacity = sum(share.capacity * count for share, count in rest.items())
        level = left / capacity if capacity else 0.0
        above = [share for share in rest if level * share.capacity > share.most + EPSILON]
        below = [share for share in rest if level * share.capacity < share.least - EPSILON]
        over = sum((level * share.capacity - share.most) * rest[share] for share in above)
        under = sum((share.least - level * share.capacity) * rest[share] for share in below)
        if not above and not below:
            for share in rest:
                fair = level * share.capacity
                bounds[share] = LoadBounds(floor(fair + EPSILON), ceil(fair - EPSILON))
            break
        for share in above if over >= under else below:
            clamped = int(share.most) if over >= under else share.least
            bounds[share] = LoadBounds(clamped, clamped)
            left -= clamped * rest.pop(share)
    return bounds
