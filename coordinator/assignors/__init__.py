"""The four assignors of a consumer group: they divide partitions among members.

The leader of a group calls one of them with what every member sent in its JoinGroup and
gets what every member is to receive in its SyncGroup. They are pure functions of their
arguments: no clock, no randomness, no state between two calls, and the order in which
members, topics or owned partitions are listed changes nothing.

| name | balance | keeps owners | rounds | takes racks into account |
|---|---|---|---|---|
| `range` | per topic | only by position | 1 | yes |
| `roundrobin` | equal subscriptions: within 1 | no | 1 | no |
| `sticky` | best there is | as many as balance allows | 1 | yes |
| `cooperative-sticky` | best there is | as many as balance allows | at most 2 | yes |
"""

from collections.abc import Mapping
from types import MappingProxyType

from coordinator.assignors.base import (
    Assignor,
    ClusterView,
    RebalanceProtocol,
    Subscription,
    TopicPartition,
)
from coordinator.assignors.cooperative import CooperativeStickyAssignor
from coordinator.assignors.range import RangeAssignor
from coordinator.assignors.round_robin import RoundRobinAssignor
from coordinator.assignors.sticky import StickyAssignor

BUILT_IN: Mapping[str, Assignor] = MappingProxyType(
    {
        assignor.name: assignor
        for assignor in (
            RangeAssignor(),
            RoundRobinAssignor(),
            StickyAssignor(),
            CooperativeStickyAssignor(),
        )
    }
)


def by_name(name: str) -> Assignor:
    """The built-in assignor that a group protocol names.

    Args:
        name: the protocol name as members send it in JoinGroup, for example "range".
    Raises:
        ValueError: no built-in assignor has this name; the message lists those that exist.
    """
    assignor = BUILT_IN.get(name)
    if assignor is None:
        raise ValueError(f"no assignor is called {name!r}; choose one of {', '.join(BUILT_IN)}")
    return assignor


__all__ = [
    "BUILT_IN",
    "Assignor",
    "ClusterView",
    "CooperativeStickyAssignor",
    "RangeAssignor",
    "RebalanceProtocol",
    "RoundRobinAssignor",
    "StickyAssignor",
    "Subscription",
    "TopicPartition",
    "by_name",
]
