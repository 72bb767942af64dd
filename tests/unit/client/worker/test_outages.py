"""Workers of a classic group whose coordinator is away for longer than their sessions."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.client import Partition, Worker
from coordinator.core.values.requests import ListRebalances

SESSION_S, OUTAGE_S = 15, 24
SOON_S = 4.0
"""Time to find the coordinator, to join and to begin: seconds, and no session."""


def worker_of(name: str, instance_id: str | None, assignor: str, rows: dict) -> Worker:
    worker = Worker(
        "coordinator:7400",
        "orders",
        topics={"t": 4},
        client_id=name,
        assignors=[assignor],
        session_timeout_ms=SESSION_S * 1_000,
        **({"instance_id": instance_id} if instance_id else {}),
    )

    @worker.handler
    async def handle(p: Partition) -> None:
        while True:
            await asyncio.sleep(0.1)
            await p.commit(p.position + 1)
            rows[p.number] = name

    return worker


@pytest.mark.parametrize("is_static", [False, True], ids=["dynamic", "static"])
@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
async def test_they_work_at_once_when_it_is_back(virtual_group, assignor, is_static):
    group, rows = virtual_group(), {}
    for name in "ab":
        worker = worker_of(name, name if is_static else None, assignor, rows)
        group.start(worker, name=name)
    await group.advance(20)
    assert set(rows) == {0, 1, 2, 3}
    group.coordinator.kill()
    await group.advance(OUTAGE_S)
    rows.clear()
    group.coordinator.start()
    await group.advance(SOON_S)
    assert set(rows) == {0, 1, 2, 3}
    assert set(rows.values()) == {"a", "b"}
    reply = group.coordinator._request(
        ListRebalances(call_id=group.coordinator._call_id(), group_id="orders")
    )
    assert [record.removed for record in reply.rebalances if record.removed_count] == []
