"""Workers against a coordinator in memory, on virtual time."""

from __future__ import annotations

import pytest

from coordinator.client import Partition
from tests.unit.client.worker.kit import Town

pytestmark = pytest.mark.virtual_time


async def test_a_worker_that_was_stopped_before_its_start_ends_when_it_is_started():
    town = Town()
    worker = town.worker()

    @worker.handler
    async def handle(p: Partition) -> None:
        await p.done()

    worker.stop("never mind")
    serving = town.serve(worker)
    await town.until(serving.done)
    assert (worker.state.phase, worker.state.stopping_because) == ("stopped", "never mind")
    worker.stop()
    serving = town.serve(worker)  # Another run: that stop was of the one before.
    await town.until(lambda: len(worker.state.partitions) == 2)
    await town.stop(worker)
    await serving


async def test_a_handler_is_called_for_each_partition_and_goes_on_where_it_committed():
    town = Town()
    town.seed(1, 7)
    worker = town.worker()
    seen = []

    @worker.handler
    async def handle(p: Partition) -> None:
        seen.append((p.number, p.position))
        await p.commit(p.position + 1)

    async with town.serving(worker):
        await town.until(lambda: len(seen) >= 4)
        assert sorted(seen[:2]) == [(0, 0), (1, 7)]
        assert sorted(seen[2:4]) == [(0, 1), (1, 8)]
    assert town.stored(1) >= 8


async def test_a_worker_warns_of_heartbeats_that_are_too_slow_for_its_session(caplog):
    town = Town()
    worker = town.worker(session_timeout_ms=4_000, heartbeat_interval_ms=4_000)

    @worker.handler
    async def handle(p: Partition) -> None:
        await p.done()

    async with town.serving(worker):
        await town.until(lambda: worker.state.partitions)
        assert "so the session of 4000 ms ends between two heartbeats" in caplog.text
