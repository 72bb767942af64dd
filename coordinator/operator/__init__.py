"""Blocking clients for operators' scripts, the command line and the console.

    with GroupAdmin("localhost:7400") as admin:
        for group in admin.list_groups(states=["Stable"]):
            print(group.group_id, admin.offsets(group.group_id))

Names are loaded when they are first asked for (PEP 562), as those of `coordinator.client`: `Health`
alone needs grpcio-health-checking, and a third of the CPU of importing `GroupAdmin`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coordinator.operator.admin import GroupAdmin
    from coordinator.operator.cluster import ClusterAdmin
    from coordinator.operator.health import Health
    from coordinator.operator.session_admin import GroupNotFound, GroupPolicy
    from coordinator.operator.topics import TopicAdmin, TopicRefused

__all__ = [
    "ClusterAdmin",
    "GroupAdmin",
    "GroupNotFound",
    "GroupPolicy",
    "Health",
    "TopicAdmin",
    "TopicRefused",
]

_HOMES = {
    "ClusterAdmin": "cluster",
    "GroupAdmin": "admin",
    "GroupNotFound": "session_admin",
    "GroupPolicy": "session_admin",
    "Health": "health",
    "TopicAdmin": "topics",
    "TopicRefused": "topics",
}
"""Module of each name, in this package."""


if not TYPE_CHECKING:  # For type checkers, it would make every name of the package exist.

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
