"""Reports of log end offsets to the coordinator, which computes a member's lag from them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor

from coordinator.assignors import TopicPartition
from coordinator.client.member.ledger import Ledger

LOGGER = logging.getLogger(__name__)
LogEnds = Callable[[Collection[TopicPartition]], Mapping[TopicPartition, int | range]]
"""Function that returns the log end offset of each of the partitions, or the range of offsets that
its log has, where the first rows are gone; called in its own thread."""


async def report_log_ends(
    log_ends: LogEnds,
    ledger: Ledger,
    report: Callable[[Mapping[TopicPartition, int | range]], Awaitable[bool]],
    interval_s: float,
) -> None:
    """Report every `interval_s`, until cancelled. Failures are only logged.

    Args:
        report: sends one report; False: the coordinator's version does not know them.
    """
    # One thread for all calls: some sources keep a connection per thread.
    thread = ThreadPoolExecutor(1, "coordinator-log-ends")
    is_known = True
    try:
        while is_known:
            await asyncio.sleep(interval_s)
            partitions = ledger.held
            if not partitions:
                continue
            loop = asyncio.get_running_loop()
            try:
                is_known = await report(await loop.run_in_executor(thread, log_ends, partitions))
            except Exception as error:  # noqa: BLE001  # Sources may raise anything.
                LOGGER.warning("where the logs end could not be told: %s", error)
    finally:
        thread.shutdown(wait=False)  # The source may hang.
