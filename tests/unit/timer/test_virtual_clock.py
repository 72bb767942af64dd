"""Clocks: the virtual one steps from deadline to deadline."""

from __future__ import annotations

import pytest

from timer import MonotonicClock, Timer, VirtualClock
from timer import clock as clock_module


def test_a_handler_that_rearms_does_so_from_its_own_deadline(notes):
    timer, clock, ran = Timer(0), VirtualClock(0), []

    def again():
        ran.append(clock.now_ms())
        timer.add(task, clock.now_ms() + 30)

    task = notes.task("x", again)
    timer.add(task, 30)
    clock.advance(100, timer)
    assert ran == [30, 60, 90]
    assert clock.now_ms() == 100
    clock.advance(20, timer)
    assert ran == [30, 60, 90, 120]


def test_it_sits_at_the_target_when_nothing_is_left():
    timer, clock = Timer(0), VirtualClock(7)
    clock.advance(0, timer)
    assert clock.now_ms() == 7
    clock.advance(93, timer)
    assert clock.now_ms() == 100


def test_a_deadline_at_the_target_runs_and_one_past_it_does_not(notes):
    timer, clock = Timer(0), VirtualClock(0)
    notes.add(timer, 10, 11)
    clock.advance(10, timer)
    assert notes.take() == [10]


def test_a_task_due_already_runs_without_the_clock_going_back(notes):
    timer, clock = Timer(0), VirtualClock(50)
    notes.add(timer, 10)  # The timer has not been told that it is 50.
    clock.advance(0, timer)
    assert notes.take() == [10]
    assert clock.now_ms() == 50


def test_time_that_stands_still_is_an_error_and_not_a_hang(notes, monkeypatch):
    monkeypatch.setattr(clock_module, "STEPS_AT_ONE_TIME_MAX", 100)
    timer, clock = Timer(0), VirtualClock(0)
    task = notes.task("x", lambda: timer.add(task, clock.now_ms()))
    timer.add(task, 3)
    with pytest.raises(RuntimeError, match="time stands still at 3 ms"):
        clock.advance(10, timer)


def test_many_steps_are_fine_as_long_as_time_moves(notes, monkeypatch):
    monkeypatch.setattr(clock_module, "STEPS_AT_ONE_TIME_MAX", 3)
    timer, clock = Timer(0), VirtualClock(0)
    notes.add(timer, *range(1, 50))
    clock.advance(100, timer)
    assert len(notes.take()) == 49


def test_the_virtual_clock_does_not_go_back():
    with pytest.raises(ValueError, match="time does not go back"):
        VirtualClock(0).advance(-1, Timer(0))


def test_the_monotonic_clock_reads_whole_milliseconds_of_the_machines_clock(monkeypatch):
    monkeypatch.setattr("time.monotonic_ns", lambda: 12_345_999_999)
    assert MonotonicClock().now_ms() == 12_345
