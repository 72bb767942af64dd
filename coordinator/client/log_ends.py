"""Telling the coordinator where the logs end that a member reads, so that its lag can be seen."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor

from coordinator.assignors import TopicPartition
from coordinator.client.machine import MemberMachine
from coordinator.sources.base import Source

LOGGER = logging.getLogger(__name__)
LogEnds = Callable[[Collection[TopicPartition]], Mapping[TopicPartition, int]]
"""The offset after the last row of each of the partitions. Called in a thread of its own."""


def ends_of(source: Source) -> LogEnds:
    """For `log_ends` of a member that reads one source."""

    def log_ends(partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {p: source.end_offset(p.partition) for p in partitions if p.topic == source.topic}

    return log_ends


async def report_log_ends(
    log_ends: LogEnds,
    machine: MemberMachine,
    report: Callable[[Mapping[TopicPartition, int]], Awaitable[bool]],
    interval_s: float,
) -> None:
    """Report every so often, until cancelled. Nobody's work depends on it: trouble is logged.

    Args:
        report: tells the coordinator; False: it is from before there was lag.
    """
    # One thread, the same for all looks: some sources keep a connection a thread.
    thread = ThreadPoolExecutor(1, "coordinator-log-ends")
    is_known = True
    try:
        while is_known:
            await asyncio.sleep(interval_s)
            partitions = machine.membership.assignment
            if not partitions:
                continue
            loop = asyncio.get_running_loop()
            try:
                is_known = await report(await loop.run_in_executor(thread, log_ends, partitions))
            except Exception as error:  # noqa: BLE001  # Whatever the source raises.
                LOGGER.warning("where the logs end could not be told: %s", error)
    finally:
        thread.shutdown(wait=False)  # Nobody waits for a source that hangs.
