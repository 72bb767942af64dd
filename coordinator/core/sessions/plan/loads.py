"""Loads of members: the floor or the ceiling of each one's fair share, by capacity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, floor
from typing import NamedTuple

EPSILON = 1e-9


class Share(NamedTuple):
    """What bounds a member's share: its capacity, what it has anyway, and the most it may have."""

    capacity: float
    least: int
    most: float


class Bounds(NamedTuple):
    """Fewest and most partitions of each member. is_full: there are more than all may have."""

    low: dict[int, int]
    high: dict[int, int]
    is_full: bool


def bounds_of(shares: Mapping[int, Share], total: int) -> Bounds:
    """Divide `total` partitions by capacity, within what bounds each share."""
    least = sum(share.least for share in shares.values())
    most = sum(max(share.least, share.most) for share in shares.values())
    if total >= most or total <= least:
        at_bound = {
            member: share.least if total <= least else int(max(share.least, share.most))
            for member, share in shares.items()
        }
        return Bounds(at_bound, at_bound, is_full=total >= most)
    low: dict[int, int] = {}
    high: dict[int, int] = {}
    open_members: Sequence[int] = [m for m, share in shares.items() if share.capacity > 0]
    left = float(total)
    for member, share in shares.items():
        if share.capacity <= 0:
            low[member] = high[member] = share.least
            left -= share.least
    while open_members:
        level = left / sum(shares[m].capacity for m in open_members)
        above, below = [], []
        over = under = 0.0
        for member in open_members:
            share = shares[member]
            fair = level * share.capacity
            if fair > share.most + EPSILON:
                above.append(member)
                over += fair - share.most
            elif fair < share.least - EPSILON:
                below.append(member)
                under += share.least - fair
            else:
                low[member], high[member] = floor(fair + EPSILON), ceil(fair - EPSILON)
        if not above and not below:
            break
        for member in above if over >= under else below:
            share = shares[member]
            low[member] = high[member] = int(share.most) if over >= under else share.least
            left -= low[member]
        clamped = set(above if over >= under else below)
        open_members = [m for m in open_members if m not in clamped]
    return Bounds(low, high, is_full=False)
