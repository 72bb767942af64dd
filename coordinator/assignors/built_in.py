"""The assignors that a group protocol can name."""

from collections.abc import Mapping
from types import MappingProxyType

from coordinator.assignors.base import Assignor
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

__all__ = [
    "BUILT_IN",
    "CooperativeStickyAssignor",
    "RangeAssignor",
    "RoundRobinAssignor",
    "StickyAssignor",
]
