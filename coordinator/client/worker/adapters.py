"""Interfaces of row sources to a worker, and of partitions to adapters of handlers."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from coordinator.client.group_address import GroupAddress
from coordinator.client.log_ends import LogEnds
from coordinator.client.worker.handlers import ErrorPolicy, TopicHandler
from coordinator.client.worker.partition import BlockingPartition, Partition, PartitionView
from coordinator.client.worker.user_functions import BeginOffsets, TopicsFunction

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


async def until_may_begin(p: Partition) -> None:
    """Wait before rows are handed out while the lease of a partition is in doubt."""
    await p._worker.until_may_begin(p._call)


def until_may_begin_blocking(p: BlockingPartition) -> None:
    """Do the same in a thread."""
    p._worker.until_may_begin_blocking(p._call)


def check_held(p: PartitionView) -> None:
    """Check that the handler may go on. Raises StaleMember: the holding has ended."""
    p._check()


def report_log_end(p: PartitionView, offset: int) -> None:
    """Tell where the log ends; from any thread. Raises as `check_held`."""
    p._report("log_end", offset)
