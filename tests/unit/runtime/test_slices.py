"""Long work lets others in whenever a slice has lasted long enough."""

from __future__ import annotations

import asyncio

from coordinator.runtime.slices import SLICE_S, Slices, at_once, in_slices


def work(parts: int):
    for _ in range(parts):
        yield
    return parts


def test_work_that_nobody_waits_beside_is_done_in_one_go():
    assert at_once(work(1_000)) == 1_000


async def test_a_slice_ends_when_it_has_lasted_long_enough():
    now = 0.0
    turns = 0

    async def others():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    slices = Slices(lambda: now)
    for _ in range(100):
        await slices.pause()
    assert turns == 0
    for _ in range(100):
        now += 2 * SLICE_S
        await slices.pause()
    assert turns == 100
    beside.cancel()


async def test_what_is_done_in_slices_has_a_result():
    assert await in_slices(work(1_000)) == 1_000
