"""Spark workers as members of a consumer group. Needs the extra `spark`.

Spark starts the workers; the coordinator assigns their partitions. So queries, executors and plain
processes can share one group, and one that dies causes a rebalance.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coordinator.spark.assigned import AssignedRows, committed, read_assigned, reading
    from coordinator.spark.executor import consume, run_members
    from coordinator.spark.files_stream import GroupStream, streaming

__all__ = [
    "AssignedRows",
    "GroupStream",
    "committed",
    "consume",
    "read_assigned",
    "reading",
    "run_members",
    "streaming",
]

_HOMES = {
    "AssignedRows": "assigned",
    "GroupStream": "files_stream",
    "committed": "assigned",
    "consume": "executor",
    "read_assigned": "assigned",
    "reading": "assigned",
    "run_members": "executor",
    "streaming": "files_stream",
}
"""Module of each name, in this package. Executors import little."""


if not TYPE_CHECKING:  # For type checkers, it would make every name of the package exist.

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
