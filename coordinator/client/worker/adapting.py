"""Calls of adapters on a partition, beside its public methods.

An adapter is a handler that calls another function: with rows, say (`coordinator.sources.group`).
"""

from __future__ import annotations

from coordinator.client.worker.partition import BlockingPartition, Partition, PartitionView


async def until_may_begin(p: Partition) -> None:
    """Wait before rows are handed out while the lease of a partition is in doubt."""
    await p._calls.until_may_begin(p._run)


def until_may_begin_blocking(p: BlockingPartition) -> None:
    """Do the same in a thread."""
    p._calls.until_may_begin_blocking(p._run)


def check_held(p: PartitionView) -> None:
    """Check that the handler may go on. Raises StaleMember: the holding has ended."""
    p._check()


def report_log_end(p: PartitionView, offset: int) -> None:
    """Tell where the log ends; from any thread. Raises as `check_held`."""
    p._tell("log_end", offset)
