"""Commits of work that began under an earlier holding, at a real coordinator in memory."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.assignors import TopicPartition
from coordinator.client.errors import StaleMember
from coordinator.client.member.events import Granted, Lost
from coordinator.client.member.face import Member

P = TopicPartition("t", 0)
pytestmark = pytest.mark.virtual_time


@pytest.mark.parametrize("names", ["the grant", "the holding"])
async def test_work_of_an_earlier_holding_does_not_commit_under_the_newest_token(
    virtual_group, names
):
    group = virtual_group()
    shown: list = []
    refused: list[str] = []

    async def own() -> None:
        async with Member("anywhere:1", "g", {"t": 1}, protocol="session") as member:
            async for event in member.events():
                match event:
                    case Granted((holding,)):
                        shown.append(holding if names == "the grant" else member.holding(P))
                        if len(shown) == 2:
                            break
                    case Lost(holdings):
                        member.released(holdings)
            first, second = shown
            await member.commit({P: 100}, holdings=second)
            with pytest.raises(StaleMember, match="nothing was sent") as raised:
                await member.commit({P: 7}, holdings=[first])
            refused.append(str(raised.value))

    process = group.start(own)
    await group.until(lambda: shown)
    process.cut()
    await group.advance(60)
    process.mend()
    await group.until(lambda: refused)
    assert shown[0].token < shown[1].token
    assert group.committed() == {P: 100}


async def test_a_task_of_an_earlier_holding_does_not_commit_under_the_newest_token(virtual_group):
    """It names no holding: it was handed out what its maker was, as of then."""
    group = virtual_group()
    tasks: list[asyncio.Task[None]] = []
    refused: list[str] = []

    async def work(member: Member, goes_on: asyncio.Event, offset: int) -> None:
        await goes_on.wait()
        await member.commit({P: offset})

    async def own() -> None:
        goes_on = asyncio.Event()
        async with Member("anywhere:1", "g", {"t": 1}, protocol="session") as member:
            async for event in member.events():
                match event:
                    case Granted():
                        offset = 100 if tasks else 7
                        tasks.append(asyncio.create_task(work(member, goes_on, offset)))
                        if len(tasks) == 2:
                            break
                    case Lost(holdings):
                        member.released(holdings)
            goes_on.set()
            first, second = tasks
            await second
            with pytest.raises(StaleMember, match="nothing was sent") as raised:
                await first
            refused.append(str(raised.value))

    process = group.start(own)
    await group.until(lambda: tasks)
    process.cut()
    await group.advance(60)
    process.mend()
    await group.until(lambda: refused)
    assert group.committed() == {P: 100}
