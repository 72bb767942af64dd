"""Tests of users' workers and members, and of our own, without waiting: time is virtual.

`VirtualGroup` runs real members and workers against a real coordinator on one loop whose clock
jumps; `CoordinatorServer` is a node in a process, in real time; `VirtualCoordinator` answers
requests message by message. The pytest plugin `coordinator.testing.plugin` has a fixture for each.

Names are imported at their first use, so a suite pays for the fixtures that it asks for.
"""

import importlib
from typing import TYPE_CHECKING, Any

import coordinator.shard  # noqa: F401  # It names a user's `timer.py` that is in the way.

if TYPE_CHECKING:
    from coordinator.testing.coordinator import CoordinatorIsDown, GroupCoordinator
    from coordinator.testing.group import VirtualGroup
    from coordinator.testing.loop import NotOnVirtualTime, WaitsForever
    from coordinator.testing.processes import VirtualProcess
    from coordinator.testing.running import VirtualTest
    from coordinator.testing.server import CannotStart, CoordinatorServer
    from coordinator.testing.threads import TestEnded, ThreadHangs
    from coordinator.testing.virtual import VirtualCall, VirtualCoordinator

__all__ = [
    "CannotStart",
    "CoordinatorIsDown",
    "CoordinatorServer",
    "GroupCoordinator",
    "NotOnVirtualTime",
    "TestEnded",
    "ThreadHangs",
    "VirtualCall",
    "VirtualCoordinator",
    "VirtualGroup",
    "VirtualProcess",
    "VirtualTest",
    "WaitsForever",
]

_MODULES = {
    "CannotStart": "server",
    "CoordinatorIsDown": "coordinator",
    "CoordinatorServer": "server",
    "GroupCoordinator": "coordinator",
    "NotOnVirtualTime": "loop",
    "TestEnded": "threads",
    "ThreadHangs": "threads",
    "VirtualCall": "virtual",
    "VirtualCoordinator": "virtual",
    "VirtualGroup": "group",
    "VirtualProcess": "processes",
    "VirtualTest": "running",
    "WaitsForever": "loop",
}


def __getattr__(name: str) -> Any:  # Any: a class or a function of one of the modules.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
