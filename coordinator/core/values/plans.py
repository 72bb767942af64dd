"""Plans as values: their input, who holds what, and their result, what has to change.

Partitions are numbered by their topic's and their own number, members by their position.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

FREE = -1
"""Value in `PlanTopic.at`: nobody holds the partition."""

RESERVED = -2
"""Value in `PlanTopic.at`: reserved for the name of a member that has announced to return."""

NOBODY = -1
"""Value in `Move.target`: the partition is given up, and nobody gets it."""

Partition = tuple[int, int]
"""Number of a topic in the input, number of a partition."""

Range = tuple[int, int]
"""Partitions of one topic, first and last, both included."""


class MoveReason(Enum):
    """Reason for which a partition leaves its holder. The values are codes."""

    HOLDER_LEAVES = "holder_leaves"
    NO_LONGER_DECLARED = "no_longer_declared"
    """No member declares it, or its holder does not."""
    NOT_ALLOWED = "not_allowed"
    """Its holder is excluded from it."""
    PINNED = "pinned"
    ABOVE_MAXIMUM = "above_maximum"
    """Its holder has more than its `max_partitions`."""
    BALANCE = "balance"


class Unplaced(Enum):
    """Reason for which a free partition gets no holder. The values are codes."""

    NOBODY_RECEIVES = "nobody_receives"
    CAPACITY = "capacity"
    """All members that may have it have as many as they may have."""
    NOT_ALLOWED = "not_allowed"
    """All members that receive are excluded from it, or have refused it lately."""
    PINNED = "pinned"
    """It is pinned to a member that is not there, or does not receive."""


class PlanMember(NamedTuple):
    """A member. `name`: decides ties. `declares`: number of partitions it declares of each topic.

    receives: it may be given partitions: it is ready, has a stream, is not held back.
    leaves: all it holds has to go.
    """

    name: str
    declares: tuple[int, ...]
    capacity: float = 1.0
    max_partitions: int | None = None
    receives: bool = True
    leaves: bool = False


@dataclass(frozen=True, slots=True)
class PlanTopic:
    """A topic with `count` partitions, as its members declare.

    at: for each partition the member at which it counts: its holder, or the successor of its open
        hand-off; FREE; RESERVED. It is longer than `count` while surplus partitions are held.
    moving: partitions with an open hand-off, which is left alone unless a hard rule forbids it.
    """

    name: str
    count: int
    at: Sequence[int]
    moving: AbstractSet[int] = frozenset()


@dataclass(frozen=True, slots=True)
class PlanInput:
    """Input of a plan.

    pins: partitions that one member alone may have; None: that one is not there.
    barred: (topic, partition, member): may not have it, for a while or for good.
    previous: by partition, the member whose name had it last; if it is free, it goes back there as
        far as that member may have more.
    weights: by partition, what it adds to the load of its member, above 0; without an entry: 1. If
        there are none, partitions are counted.
    is_frozen: nothing moves for balance, or to the member that it is pinned to.
    """

    members: tuple[PlanMember, ...]
    topics: tuple[PlanTopic, ...]
    pins: Mapping[Partition, int | None] = field(default_factory=dict)
    barred: AbstractSet[tuple[int, int, int]] = frozenset()
    previous: Mapping[Partition, int] = field(default_factory=dict)
    weights: Mapping[Partition, float] = field(default_factory=dict)
    is_frozen: bool = False


@dataclass(frozen=True, slots=True)
class Numbered:
    """Members and topics of the input of a plan, in the order in which it numbers them."""

    member_ids: tuple[str, ...]
    topics: tuple[str, ...]


class Move(NamedTuple):
    """A partition that leaves its holder; `target` NOBODY: without a successor."""

    topic: int
    partition: int
    source: int
    target: int
    reason: MoveReason


class Obstacle(NamedTuple):
    """A reason for which some members' loads stay above those of others.

    above: members that have more, ascending. others: members that cannot take more of it.
    partition: the lightest one that `others` may have, and are too full for; None: constraints
        alone are in the way.
    """

    above: tuple[int, ...]
    others: tuple[int, ...]
    partition: Partition | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """Changes that a plan asks for.

    grants: free partitions by new holder and topic, as ascending ranges.
    moves: held partitions, in the order in which they should move: hard rules first.
    unplaced: free partitions that nobody can have now.
    obstacles: why not all members are within the bounds of their fair shares; empty: all are.
    """

    grants: Mapping[int, Mapping[int, tuple[Range, ...]]]
    moves: tuple[Move, ...]
    unplaced: Mapping[Partition, Unplaced]
    obstacles: tuple[Obstacle, ...] = ()
