"""The log of a worker that loses its coordinator, and with it every partition."""

from __future__ import annotations

import asyncio
import logging

import pytest

from coordinator.client import BlockingPartition
from tests.unit.client.worker.kit import Town

pytestmark = pytest.mark.virtual_time

PARTITIONS = 12
SESSION_S = 10


async def lose_coordinator(*, calls_every_s: float, commits: bool) -> None:
    """Run a worker with a thread for each partition, and cut it off for three sessions."""
    town = Town(PARTITIONS)
    worker = town.worker(session_timeout_ms=SESSION_S * 1_000)
    is_slow = False

    @worker.handler
    def handle(p: BlockingPartition) -> None:
        while True:
            worker.environment.sleep(calls_every_s if is_slow else 0.1)
            if commits or not is_slow:
                p.commit(p.position + 1)
            p.alive()

    async with town.serving(worker):
        await town.until(lambda: town.stored(PARTITIONS - 1) > 2)
        is_slow = True
        await asyncio.sleep(calls_every_s)
        worker.environment.is_cut = True
        await asyncio.sleep(3 * SESSION_S)
        assert not worker.state.partitions


def warnings(caplog, text: str) -> list[str]:
    lines = (r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING)
    return [line for line in lines if text in line]


async def test_threads_that_end_soon_after_a_loss_are_not_named(caplog):
    await lose_coordinator(calls_every_s=0.9, commits=False)
    assert warnings(caplog, "lost t-0…11")
    assert not warnings(caplog, "still runs")
    assert "left over" not in caplog.text


async def test_threads_that_go_on_after_a_loss_are_named_in_one_line_with_one_stack(caplog):
    await lose_coordinator(calls_every_s=15.0, commits=False)
    [line] = warnings(caplog, "still runs")
    assert "the handler of t-0…11 still runs in thread" in line
    assert len(line.splitlines()) < 40


async def test_commits_that_come_late_after_a_loss_are_one_warning(caplog):
    await lose_coordinator(calls_every_s=0.9, commits=True)
    assert len(warnings(caplog, "stale commit")) == 1
