"""The worked examples of the wheel, slot by slot."""

from __future__ import annotations

import pytest

from timer import Timer, VirtualClock
from timer.wheel import TimingWheel, floor_to_tick, slot_of


def test_polling_every_200_ms_runs_b_and_c_when_the_clock_reads_1000(notes, slots):
    timer = Timer(0, tick_ms=1000, wheel_size=8)
    clock = VirtualClock(0)
    for name, deadline_ms in (("A", 0), ("B", 1000), ("C", 1000), ("D", 3000)):
        timer.add(notes.task(name), deadline_ms)
    assert slots(timer) == {(0, 1): [1000, 1000], (0, 3): [3000]}
    assert len(timer) == 4

    seen = []
    for poll_ms in range(0, 3000, 200):
        # A poll waits for the first bucket, but no longer than to the next poll.
        expiration_ms = timer.next_expiration_ms()
        if expiration_ms is not None and expiration_ms <= poll_ms + 200:
            clock.advance(expiration_ms - clock.now_ms(), timer)
            seen.append((poll_ms, clock.now_ms(), notes.take()))
        clock.advance(poll_ms + 200 - clock.now_ms(), timer)
    assert seen == [(0, 0, ["A"]), (800, 1000, ["B", "C"]), (2800, 3000, ["D"])]
    assert len(timer) == 0


def test_8_and_9_share_a_slot_of_the_second_level_and_9_comes_down(notes, slots):
    timer = Timer(0, tick_ms=1, wheel_size=8)
    notes.add(timer, 7, 8, 9)
    assert slots(timer) == {(0, 7): [7], (1, 1): [8, 9]}

    assert timer.advance_to(7) == 1
    assert notes.take() == [7]
    assert slots(timer) == {(1, 1): [8, 9]}
    assert timer.next_expiration_ms() == 8

    assert timer.advance_to(8) == 1
    assert notes.take() == [8]
    assert slots(timer) == {(0, 1): [9]}
    assert timer.next_expiration_ms() == 9

    assert timer.advance_to(9) == 1
    assert notes.take() == [9]
    assert slots(timer) == {}


def test_levels_of_seconds_minutes_and_hours(notes, slots):
    timer = Timer(0, tick_ms=1_000, wheel_size=60)
    notes.add(timer, 20_000, 60_000, 70_000, 120_000, 3_600_000)
    assert slots(timer) == {
        (0, 20): [20_000],
        (1, 1): [60_000, 70_000],
        (1, 2): [120_000],
        (2, 1): [3_600_000],
    }
    level_1 = timer.wheel.overflow
    assert (timer.wheel.tick_ms, level_1.tick_ms) == (1_000, 60_000)
    assert level_1.overflow.tick_ms == 3_600_000


def test_exactly_one_turn_away_goes_to_the_second_level(notes, slots):
    timer = Timer(0, tick_ms=1_000, wheel_size=60)
    notes.add(timer, 59_999, 60_000)
    assert slots(timer) == {(0, 59): [59_999], (1, 1): [60_000]}


def test_slots_are_reused_as_the_hand_moves(notes, slots):
    timer = Timer(0, tick_ms=1, wheel_size=20)
    timer.advance_to(2)
    notes.add(timer, 2 + 8, 2 + 19)
    assert slots(timer) == {(0, 10): [10], (0, 1): [21]}


@pytest.mark.parametrize(
    ("deadline_ms", "tick_ms", "size", "slot"),
    [
        (0, 1, 20, 0),
        (19, 1, 20, 19),
        (20, 1, 20, 0),
        (21, 1, 20, 1),
        (419, 20, 20, 0),
        (-1, 1, 8, 7),
    ],
)
def test_slot_is_the_tick_number_modulo_the_size(deadline_ms, tick_ms, size, slot):
    assert slot_of(deadline_ms, tick_ms, size) == slot


@pytest.mark.parametrize(("time_ms", "floored_ms"), [(0, 0), (9, 0), (10, 10), (19, 10), (-1, -10)])
def test_times_are_floored_to_the_tick(time_ms, floored_ms):
    assert floor_to_tick(time_ms, 10) == floored_ms


def test_current_time_is_a_multiple_of_the_tick_on_every_level():
    timer = Timer(1_234_567, tick_ms=10, wheel_size=4)
    top = timer.wheel.make_overflow().make_overflow()
    assert isinstance(top, TimingWheel)
    for now_ms in (1_234_567, 1_234_569, 1_234_570, 1_300_003, 9_999_999):
        timer.advance_to(now_ms)
        wheel = timer.wheel
        while wheel is not None:
            assert wheel.current_ms == now_ms - now_ms % wheel.tick_ms
            assert wheel.next_tick_ms == wheel.current_ms + wheel.tick_ms
            assert wheel.end_ms == wheel.current_ms + wheel.tick_ms * wheel.size
            wheel = wheel.overflow


def test_overflow_wheels_are_made_only_when_a_deadline_needs_them(notes):
    timer = Timer(0, tick_ms=1, wheel_size=20)
    notes.add(timer, 19)
    assert timer.wheel.overflow is None
    notes.add(timer, 20)
    assert timer.wheel.overflow.interval_ms == 400
    assert timer.wheel.overflow.overflow is None


@pytest.mark.parametrize("arguments", [{"tick_ms": 0}, {"wheel_size": 1}, {"wheel_size": 0}])
def test_a_wheel_that_could_hold_nothing_is_refused(arguments):
    with pytest.raises(ValueError, match="at least"):
        Timer(0, **arguments)


def test_the_smallest_wheel_reaches_far_deadlines(notes):
    timer = Timer(5, tick_ms=1, wheel_size=2)
    notes.add(timer, 1_000_000, 6, 7, 8, 77)
    VirtualClock(5).advance(1_000_000, timer)
    assert notes.take() == [6, 7, 8, 77, 1_000_000]
