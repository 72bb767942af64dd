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

The assignors themselves, and `BUILT_IN`, are loaded when they are first asked for (PEP 562): a
member that is only imported pays for none of them.
"""

from typing import TYPE_CHECKING

from coordinator.assignors.base import Assignor, ClusterMetadata, RebalanceProtocol, Subscription
from coordinator.assignors.partitions import TopicPartition

if TYPE_CHECKING:
    from coordinator.assignors.built_in import (
        BUILT_IN,
        CooperativeStickyAssignor,
        RangeAssignor,
        RoundRobinAssignor,
        StickyAssignor,
    )

__all__ = [
    "BUILT_IN",
    "Assignor",
    "ClusterMetadata",
    "CooperativeStickyAssignor",
    "RangeAssignor",
    "RebalanceProtocol",
    "RoundRobinAssignor",
    "StickyAssignor",
    "Subscription",
    "TopicPartition",
    "by_name",
]


def by_name(name: str) -> Assignor:
    """The built-in assignor that a group protocol names.

    Args:
        name: the protocol name as members send it in JoinGroup, for example "range".
    Raises:
        ValueError: no built-in assignor has this name; the message lists those that exist.
    """
    from coordinator.assignors.built_in import BUILT_IN

    assignor = BUILT_IN.get(name)
    if assignor is None:
        raise ValueError(f"no assignor is called {name!r}; choose one of {', '.join(BUILT_IN)}")
    return assignor


if not TYPE_CHECKING:  # For type checkers, it would make every name of the package exist.

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
        from coordinator.assignors import built_in

        return getattr(built_in, name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
