"""The asyncio driver: one handle, no polling. A loop with virtual time, and a real one."""

from __future__ import annotations

import asyncio
import heapq
import itertools

import pytest

from timer import MonotonicClock, Timer, VirtualClock
from timer.aio import AsyncTimerDriver


class Loop(asyncio.AbstractEventLoop):
    """Minimal event loop for call_later, on a virtual clock."""

    def __init__(self, clock):
        self.clock = clock
        self.scheduled = []
        self.numbers = itertools.count()
        self.handles_made = 0

    def get_debug(self):
        return False

    def time(self):
        return self.clock.now_ms() / 1000

    def call_later(self, delay, callback, *args, context=None):
        self.handles_made += 1
        when = self.time() + delay
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self.scheduled, (round(when * 1000), next(self.numbers), handle))
        return handle

    def _timer_handle_cancelled(self, handle):
        pass

    @property
    def pending(self):
        return [at_ms for at_ms, _, handle in sorted(self.scheduled) if not handle.cancelled()]

    def run_until(self, until_ms, early_ms=0):
        still = Timer(0)
        while self.scheduled and self.scheduled[0][0] - early_ms <= until_ms:
            at_ms, _, handle = heapq.heappop(self.scheduled)
            if not handle.cancelled():
                self.clock.advance(max(0, at_ms - early_ms - self.clock.now_ms()), still)
                early_ms = 0
                handle._run()
        self.clock.advance(until_ms - self.clock.now_ms(), still)


@pytest.fixture
def clock():
    return VirtualClock(0)


@pytest.fixture
def loop(clock):
    return Loop(clock)


@pytest.fixture
def woken():
    return []


@pytest.fixture
def driver(clock, loop, woken):
    return AsyncTimerDriver(clock, woken.append, loop=loop)


def test_it_calls_back_at_the_deadline_and_once(driver, loop, woken):
    driver.wake_at(100)
    loop.run_until(99)
    assert woken == []
    loop.run_until(1_000)
    assert woken == [100]
    assert loop.pending == []


def test_without_a_wish_nothing_is_scheduled(driver, loop):
    driver.wake_at(None)
    assert loop.handles_made == 0


def test_a_later_wish_keeps_the_handle_and_is_honoured(driver, loop, woken):
    driver.wake_at(100)
    for deadline_ms in range(101, 200):
        driver.wake_at(deadline_ms)
    assert loop.handles_made == 1
    loop.run_until(198)
    assert (woken, loop.handles_made) == ([], 2)
    loop.run_until(199)
    assert woken == [199]


def test_an_earlier_wish_replaces_the_handle(driver, loop, woken):
    driver.wake_at(100)
    driver.wake_at(40)
    assert loop.pending == [40]
    loop.run_until(1_000)
    assert woken == [40]


def test_a_wish_taken_back_calls_nobody(driver, loop, woken):
    driver.wake_at(100)
    driver.wake_at(None)
    loop.run_until(1_000)
    assert (woken, loop.pending, loop.handles_made) == ([], [], 1)
    driver.wake_at(1_100)
    loop.run_until(1_100)
    assert woken == [1_100]


def test_a_wish_for_the_past_is_granted_at_once_but_not_inline(driver, clock, loop, woken):
    clock.advance(50, Timer(0))
    driver.wake_at(10)
    assert woken == []
    loop.run_until(50)
    assert woken == [50]


def test_a_loop_that_is_early_does_not_wake_the_owner_early(driver, loop, woken):
    driver.wake_at(100)
    loop.run_until(99, early_ms=1)
    assert woken == []
    loop.run_until(100)
    assert woken == [100]


def test_close_leaves_nothing_in_the_loop_and_stays_closed(driver, loop, woken):
    driver.wake_at(100)
    driver.close()
    driver.wake_at(200)
    driver.close()
    assert loop.pending == []
    loop.run_until(1_000)
    assert woken == []


def test_175_a_timer_runs_unaided(notes, clock, loop):
    timer = Timer(0, wheel_size=512)

    def on_deadline(now_ms):
        timer.advance_to(now_ms)
        notes.ran.append(f"woken at {now_ms}")
        driver.wake_at(timer.next_expiration_ms())

    driver = AsyncTimerDriver(clock, on_deadline, loop=loop)
    notes.add(timer, 300, 100, 200)
    driver.wake_at(timer.next_expiration_ms())
    loop.run_until(60_000)
    assert notes.take() == [
        100, "woken at 100", 200, "woken at 200", 300, "woken at 300",
    ]  # fmt: skip
    assert loop.handles_made == 3  # An idle minute cost nothing.


def test_an_advance_in_parts_lets_others_have_their_turn_in_between(clock, loop, notes):
    timer = Timer(0)

    def on_deadline(now_ms):
        timer.advance_to(now_ms, limit=2)
        notes.ran.append("a part")
        driver.wake_at(timer.next_expiration_ms())
        loop.call_later(0, notes.ran.append, "somebody else")

    driver = AsyncTimerDriver(clock, on_deadline, loop=loop)
    notes.add(timer, 5, 5, 5, 5, 5)
    driver.wake_at(timer.next_expiration_ms())
    loop.run_until(5)
    assert notes.take() == [
        5, 5, "a part", 5, 5, "a part", "somebody else", 5, "a part", "somebody else",
        "somebody else",
    ]  # fmt: skip


def test_a_callback_that_raises_leaves_the_driver_usable(clock, loop, woken):
    def on_deadline(now_ms):
        woken.append(now_ms)
        raise OSError("boom")

    reported = []
    loop.call_exception_handler = reported.append
    driver = AsyncTimerDriver(clock, on_deadline, loop=loop)
    driver.wake_at(10)
    loop.run_until(20)
    driver.wake_at(30)
    loop.run_until(40)
    assert woken == [10, 30]
    assert len(reported) == 2


def test_it_works_on_a_real_loop(notes):
    async def run():
        clock = MonotonicClock()
        timer = Timer(clock.now_ms())
        empty = asyncio.Event()

        def on_deadline(now_ms):
            timer.advance_to(now_ms)
            driver.wake_at(timer.next_expiration_ms())
            if not timer:
                empty.set()

        driver = AsyncTimerDriver(clock, on_deadline)
        start_ms = clock.now_ms()
        for delay_ms in (12, 4, 8):
            timer.add(notes.task(delay_ms), start_ms + delay_ms)
        driver.wake_at(timer.next_expiration_ms())
        await empty.wait()
        assert clock.now_ms() >= start_ms + 12
        driver.close()

    asyncio.run(run())
    assert notes.take() == [4, 8, 12]


def test_without_a_loop_it_refuses_to_start():
    with pytest.raises(RuntimeError, match="no running event loop"):
        AsyncTimerDriver(MonotonicClock(), lambda now_ms: None)
