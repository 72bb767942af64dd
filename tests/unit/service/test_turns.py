"""Turns on a loop: what is counted is rounds and calls, on a clock that stands."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.service.call_queue import Drop
from coordinator.service.call_scheduler import REST_ROUNDS, REST_S, SLICE, SLICE_S, CallScheduler


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


async def rounds(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def calls(turns: CallScheduler, caller: str, count: int, served: list[str], *, remaining_s=None):
    async def call() -> Drop | None:
        drop = await turns.take(caller, "JoinGroup", remaining_s)
        if drop is None:
            served.append(caller)
        return drop

    return [asyncio.ensure_future(call()) for _ in range(count)]


async def test_a_call_that_comes_alone_does_not_wait(clock):
    turns = CallScheduler(10, clock)
    for _ in range(3 * SLICE):
        clock.now_s += SLICE_S
        taking = turns.take("a", "JoinGroup", None)
        with pytest.raises(StopIteration):  # It did not suspend.
            taking.send(None)
    assert len(turns.queue) == 0


async def test_between_two_slices_the_loop_goes_round(clock):
    turns, served = CallScheduler(100, clock), []
    tasks = calls(turns, "a", 5 * SLICE, served)
    await rounds(1)
    for count in range(1, 5):
        assert len(served) == count * SLICE
        await rounds(REST_ROUNDS + 1)
    await asyncio.gather(*tasks)
    await rounds(2 * REST_ROUNDS)
    assert not turns.age_s()


async def test_long_rounds_are_fewer(clock):
    turns, served = CallScheduler(100, clock), []
    tasks = calls(turns, "a", 3 * SLICE, served)
    await rounds(1)
    assert len(served) == SLICE
    clock.now_s += REST_S
    await rounds(3)
    assert len(served) == 2 * SLICE
    await asyncio.gather(*tasks)


async def test_a_call_behind_a_burst_is_served_in_the_next_slice_but_one(clock):
    turns, served = CallScheduler(1_000, clock), []
    tasks = calls(turns, "burst", 500, served)
    await rounds(2)
    tasks += calls(turns, "other", 1, served)
    while "other" not in served:
        await rounds(1)
    assert len(served) <= 3 * SLICE
    await asyncio.gather(*tasks)


async def test_a_call_that_nobody_waits_for_is_dropped_on_arrival_and_in_line(clock):
    turns, served = CallScheduler(100, clock), []
    assert await turns.take("a", "JoinGroup", 0.0) is Drop.DEADLINE
    *first, late = calls(turns, "a", SLICE + 1, served, remaining_s=1)
    await rounds(1)
    clock.now_s += 1
    assert await late is Drop.DEADLINE
    assert await asyncio.gather(*first) == [None] * SLICE
    assert turns.dropped == {"deadline": 2, "gone": 0, "full": 0}


async def test_clients_that_go_away_while_they_wait_hold_nobody_up(clock):
    turns, served = CallScheduler(100, clock), []
    tasks = calls(turns, "a", SLICE + 9, served)
    await rounds(1)
    assert turns.waiting == {"JoinGroup": 9}
    for task in tasks[SLICE : SLICE + 8]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert len(served) == SLICE + 1
    assert turns.dropped["gone"] == 8
    assert turns.waiting == {"JoinGroup": 0}
