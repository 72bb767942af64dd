"""Commits that an outage ends leave no exception behind that nobody retrieves."""

from __future__ import annotations

import asyncio
import gc

from coordinator.client import Partition, Worker
from tests.integration.waiting import until
from tests.kit.patience import HANG_S
from tests.kit.serving import running

PARTITIONS = 12


async def test_partitions_that_are_lost_while_their_handlers_commit(caplog):
    settings = {"session_timeout_ms": 1_000, "heartbeat_interval_ms": 200}
    began = set()
    async with running() as server:
        worker = Worker(server.address, "g", topics={"t": PARTITIONS}, **settings)

        @worker.handler
        async def handle(p: Partition) -> None:
            while True:
                await p.commit(p.position + 1)
                began.add(p.number)

        working = asyncio.create_task(worker.serve())
        await until(lambda: len(began) == PARTITIONS, HANG_S)
    # The node is gone; every commit waits, until its holding is lost.
    await until(lambda: not worker.state.partitions, HANG_S)
    worker.stop(grace_ms=0, leave=True)
    await working
    gc.collect()
    await asyncio.sleep(0)
    assert "never retrieved" not in caplog.text
