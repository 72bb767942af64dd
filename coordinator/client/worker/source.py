"""Interface of a worker to the log whose rows it handles; `coordinator.sources` implements it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from coordinator.client.group_address import GroupAddress
from coordinator.client.log_ends import LogEnds
from coordinator.client.worker.handlers import TopicHandler
from coordinator.client.worker.partition import BlockingPartition, Partition
from coordinator.client.worker.policy import ErrorPolicy
from coordinator.client.worker.positions import BeginOffsets
from coordinator.client.worker.topics import TopicsFunction

RowsFunction = (
    Callable[[list[Any]], object]  # Any: rows are dictionaries by column.
    | Callable[[list[Any]], Coroutine[Any, Any, object]]
    | Callable[[Partition, list[Any]], Coroutine[Any, Any, object]]
    | Callable[[BlockingPartition, list[Any]], object]
)
"""Function that `Worker.rows` registers."""


class WorkerSource(Protocol):
    """A log of rows that a worker can read: `open_source` returns one."""

    def of_group(self, address: GroupAddress) -> GroupSource:
        """The log as one group reads it."""
        ...


class GroupSource(Protocol):
    """A log of rows as one group reads it. Its functions block, and may raise anything."""

    @property
    def topics(self) -> TopicsFunction:
        """Function that counts the partitions."""
        ...

    @property
    def log_ends(self) -> LogEnds:
        """Function that returns the offsets after the last rows of partitions."""
        ...

    @property
    def begin_offsets(self) -> BeginOffsets:
        """Function that returns the offsets of the first rows of partitions."""
        ...

    def handler(self, function: Any, batch: int, policy: ErrorPolicy) -> TopicHandler:
        """The handler that calls a function with lists of at most `batch` rows, and commits each.

        Raises:
            WrongHandler: the function cannot be called so. ValueError: `batch` is no number.
        """
        ...

    def on_virtual_time(self) -> None:
        """Ask the coordinator for nothing: calls of threads would stop virtual time."""
        ...
