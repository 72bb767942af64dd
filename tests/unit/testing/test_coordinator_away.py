"""What handlers notice of a coordinator that is away for longer than leases and sessions last."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.client import Partition, Worker

AWAY_S = 60


async def away(group, protocol: str, handle) -> set[int]:
    """Tokens under which a handler has worked, before and after the coordinator was away."""
    worker, tokens = Worker("anywhere:1", "g", topics={"t": 1}, protocol=protocol), set()

    @worker.handler
    async def noted(p: Partition) -> None:
        tokens.add(p.token)
        await handle(p)

    group.start(worker)
    await group.advance(20)
    group.coordinator.kill()
    await group.advance(AWAY_S)
    group.coordinator.start()
    await group.advance(40)
    assert len(group.owners()) == 1
    return tokens


async def commit(p: Partition) -> None:
    while True:
        await asyncio.sleep(1)
        await p.commit(p.position + 1)


async def test_a_commit_of_a_session_group_waits_and_the_handler_goes_on(virtual_group):
    assert len(await away(virtual_group(), "session", commit)) == 1


async def test_a_commit_of_a_classic_group_is_given_up_after_30_s_and_tried_again(
    virtual_group, caplog
):
    tokens = await away(virtual_group(), "classic", commit)
    assert len(tokens) == 2
    assert "no coordinator answered within 30 s" in caplog.text


@pytest.mark.parametrize(
    ("protocol", "after_s", "heartbeat_s"), [("session", 9, 2.5), ("classic", 45, 3)]
)
async def test_work_goes_on_and_p_valid_says_until_when(
    virtual_group, protocol, after_s, heartbeat_s
):
    group, ends = virtual_group(), []

    async def work(p: Partition) -> None:
        while p.valid:  # noqa: ASYNC110  # It is a comparison, and no event.
            await asyncio.sleep(0.1)
        ends.append(group.now_s - 20)
        await asyncio.Event().wait()

    await away(group, protocol, work)
    assert after_s - heartbeat_s <= ends[0] <= after_s + 0.1
