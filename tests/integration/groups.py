"""Many groups with one member each, spread over the nodes of a coordinator."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from coordinator.assignors import TopicPartition
from coordinator.client import Member
from tests.kit.patience import HANG_S


@contextlib.asynccontextmanager
async def members(addresses: list[str], groups: int, *, prefix: str = "group", **settings):
    """One member in each of so many groups, all with their partitions."""
    async with contextlib.AsyncExitStack() as stack:
        some = [
            await stack.enter_async_context(
                Member(addresses, f"{prefix}-{n}", {"t": 2}, **settings)
            )
            for n in range(groups)
        ]
        async with asyncio.timeout(HANG_S):
            while not all(m.assignment for m in some):
                await asyncio.gather(*(m.poll(timeout=0.2) for m in some))
        yield some


async def commit_everywhere(some: list[Member], offset: int) -> None:
    """Every member stores an offset, and reads it back."""
    async with asyncio.timeout(HANG_S):
        await asyncio.gather(*(m.commit({TopicPartition("t", 0): offset}) for m in some))
        results = await asyncio.gather(*(m.committed() for m in some))
    assert results == [{TopicPartition("t", 0): offset}] * len(some)


async def eventually(check: Callable[[], object], seconds: float = HANG_S) -> None:
    """Until it is true; it is asked in a thread, so that it may wait."""
    async with asyncio.timeout(seconds):
        while not await asyncio.to_thread(check):  # noqa: ASYNC110  # It is asked, not told.
            await asyncio.sleep(0.02)
