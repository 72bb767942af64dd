"""Guarantees of a timer: when tasks run, in which order, and what is counted."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace

import pytest

from timer import Timer, TimerTask, VirtualClock

# -- when ------------------------------------------------------------------------------


def test_172_every_task_runs_once_not_before_its_deadline_and_in_order(notes):
    delays_ms = [*range(5), *range(10, 100), *range(10, 100), *range(100, 500)]
    timer = Timer(0)
    clock = VirtualClock(0)
    ran = []

    def note(deadline_ms):
        return notes.task(deadline_ms, lambda: ran.append((clock.now_ms(), deadline_ms)))

    for delay_ms in delays_ms:
        timer.add(note(delay_ms), delay_ms)
    assert len(timer) == len(delays_ms)
    clock.advance(1_000, timer)
    assert ran == [(deadline_ms, deadline_ms) for deadline_ms in sorted(delays_ms)]
    assert len(timer) == 0


@pytest.mark.parametrize("deadline_ms", [100, 99, 0, -5])
def test_a_deadline_that_is_not_in_the_future_runs_at_the_next_advance(notes, deadline_ms):
    timer = Timer(100)
    notes.add(timer, deadline_ms)
    assert notes.take() == []  # Never inline.
    assert len(timer) == 1
    assert timer.next_expiration_ms() == 100
    assert timer.advance_to(100) == 1
    assert notes.take() == [deadline_ms]
    assert timer.next_expiration_ms() is None


def test_deadlines_within_one_tick_run_at_the_start_of_the_tick_and_not_before(notes):
    timer = Timer(0, tick_ms=10, wheel_size=4)
    notes.add(timer, 25, 21)
    assert timer.advance_to(19) == 0
    assert timer.next_expiration_ms() == 20
    assert timer.advance_to(20) == 2
    assert notes.take() == [25, 21]


def test_a_deadline_within_the_current_tick_is_due(notes):
    timer = Timer(12, tick_ms=10, wheel_size=4)
    notes.add(timer, 19, 20)
    assert timer.next_expiration_ms() == 12
    timer.advance_to(12)
    assert notes.take() == [19]


def test_one_jump_runs_everything_due_in_deadline_order(notes):
    timer = Timer(0, wheel_size=4)
    notes.add(timer, 70, 3, 500, 4, 16, 15, 64, 1)
    assert timer.advance_to(499) == 7
    assert notes.take() == [1, 3, 4, 15, 16, 64, 70]
    assert timer.advance_to(500) == 1


def test_tasks_of_one_bucket_run_in_insertion_order(notes):
    timer = Timer(0)
    for name in "abc":
        timer.add(notes.task(name), 5)
    for name in "def":
        timer.add(notes.task(name), 50)  # These come down a level, in their order.
    timer.advance_to(50)
    assert notes.take() == list("abcdef")


def test_of_buckets_that_expire_together_the_coarser_goes_first(notes):
    timer = Timer(0, wheel_size=8)
    timer.add(notes.task("early bird"), 8)
    timer.advance_to(1)
    timer.add(notes.task("late comer"), 8)
    timer.advance_to(8)
    assert notes.take() == ["early bird", "late comer"]


def test_a_task_that_waits_for_the_next_advance_goes_before_the_buckets(notes):
    timer = Timer(0)
    notes.add(timer, 5, 0)
    timer.advance_to(5)
    assert notes.take() == [0, 5]


def test_time_does_not_go_back():
    timer = Timer(10)
    timer.advance_to(10)
    with pytest.raises(ValueError, match="time went back, from 10 to 9 ms"):
        timer.advance_to(9)


def test_time_may_start_below_zero(notes):
    timer = Timer(-1_000, wheel_size=4)
    notes.add(timer, -990, -1, 0, 1)
    VirtualClock(-1_000).advance(1_001, timer)
    assert notes.take() == [-990, -1, 0, 1]


def test_a_task_must_say_what_it_does():
    timer = Timer(0)
    timer.add(TimerTask(), 0)
    with pytest.raises(NotImplementedError):
        timer.advance_to(0)


# -- waking up -------------------------------------------------------------------------


def test_an_empty_timer_has_nothing_to_wake_for():
    assert Timer(0).next_expiration_ms() is None


def test_two_buckets_cost_two_wake_ups_at_their_times_when_a_level_holds_them(notes):
    timer = Timer(0, wheel_size=1024)
    notes.add(timer, 200, 840)
    wake_ups = []
    clock = VirtualClock(0)
    noted = SimpleNamespace(
        next_expiration_ms=timer.next_expiration_ms,
        advance_to=lambda now_ms: wake_ups.append((now_ms, timer.advance_to(now_ms))),
    )
    clock.advance(1_000, noted)
    assert wake_ups == [(200, 1), (840, 1)]


def test_with_small_wheels_a_deadline_costs_at_most_one_wake_up_per_level(notes):
    timer = Timer(0, wheel_size=20)
    notes.add(timer, 200, 847)
    wake_ups = []
    clock = VirtualClock(0)
    noted = SimpleNamespace(
        next_expiration_ms=timer.next_expiration_ms,
        advance_to=lambda now_ms: wake_ups.append((now_ms, timer.advance_to(now_ms))),
    )
    clock.advance(1_000, noted)
    assert wake_ups == [(200, 1), (800, 0), (840, 0), (847, 1)]


def test_a_bucket_enters_the_queue_once_however_many_tasks_it_holds(notes):
    timer = Timer(0)
    notes.add(timer, *[15] * 1_000)
    assert len(timer._heap) == 1


def test_a_bucket_emptied_by_cancels_wakes_nobody(notes):
    timer = Timer(0)
    first, second, third = notes.add(timer, 5, 9, 300)
    timer.cancel(first)
    assert timer.next_expiration_ms() == 9
    timer.cancel(second)
    timer.cancel(third)
    assert timer.next_expiration_ms() is None
    assert timer._heap == []


def test_a_bucket_that_was_let_go_is_queued_again_when_refilled(notes):
    timer = Timer(0)
    (task,) = notes.add(timer, 5)
    timer.cancel(task)
    assert timer.next_expiration_ms() is None
    timer.add(task, 5)
    assert timer.next_expiration_ms() == 5
    timer.cancel(task)
    timer.add(task, 5)  # Not let go in between: still queued, and only once.
    assert len(timer._heap) == 1
    timer.advance_to(5)
    assert notes.take() == [5]


def test_the_queue_stays_bounded_when_everything_is_cancelled_and_nobody_looks(notes):
    timer = Timer(0, wheel_size=20)
    task = notes.task("x")
    for i in range(20_000):
        timer.add(task, 1 + i * 7919 % 150_000)
        timer.cancel(task)
    assert len(timer) == 0
    assert len(timer._heap) <= 4 * 20
    assert timer.next_expiration_ms() is None


def test_advancing_an_idle_timer_runs_nothing_and_keeps_the_levels_in_step(notes, slots):
    timer = Timer(0, wheel_size=20)
    notes.add(timer, 8_000)
    for now_ms in (1, 3_599, 7_999):
        assert timer.advance_to(now_ms) == 0
    notes.add(timer, 8_001)
    assert slots(timer)[0, 1] == [8_001]


# -- counting, moving, cancelling -------------------------------------------------------


def test_173_adding_a_pending_task_again_moves_it_and_keeps_the_count(notes, slots):
    timer = Timer(0)
    task, other = notes.add(timer, 5, 5)
    timer.add(task, 300)
    assert len(timer) == 2
    assert slots(timer) == {(0, 5): [5], (1, 15): [300]}
    assert timer.cancel(task) is True
    assert len(timer) == 1
    assert timer.cancel(task) is False
    assert len(timer) == 1
    assert other.is_pending
    assert not task.is_pending


def test_cancel_empties_the_bucket_at_once_on_every_level(notes, slots):
    timer = Timer(0, wheel_size=4)
    tasks = notes.add(timer, 0, 3, 15, 63, 1_000)
    for task in tasks:
        assert timer.cancel(task) is True
    assert slots(timer) == {}
    assert len(timer) == 0
    assert timer.advance_to(2_000) == 0


def test_cancelling_a_task_that_ran_is_a_no_op(notes):
    timer = Timer(0)
    (task,) = notes.add(timer, 1)
    timer.advance_to(1)
    assert timer.cancel(task) is False
    assert len(timer) == 0


def test_a_task_can_be_armed_again_after_it_ran_or_was_cancelled(notes):
    timer = Timer(0)
    (task,) = notes.add(timer, 1)
    timer.advance_to(1)
    timer.add(task, 2)
    timer.cancel(task)
    timer.add(task, 3)
    timer.advance_to(3)
    assert notes.take() == [1, 1]


def test_adding_a_task_of_another_timer_takes_it_out_there(notes):
    here, there = Timer(0), Timer(0)
    (task,) = notes.add(there, 5)
    here.add(task, 7)
    assert (len(here), len(there)) == (1, 0)
    assert there.next_expiration_ms() is None


def test_a_timer_refuses_to_cancel_or_rearm_the_task_of_another(notes):
    here, there = Timer(0), Timer(0)
    (task,) = notes.add(there, 5)
    with pytest.raises(AssertionError, match="another timer"):
        here.cancel(task)
    with pytest.raises(AssertionError, match="another timer"):
        here.rearm(task, 9)
    assert (len(here), len(there)) == (0, 1)


@pytest.mark.parametrize("ending", ["cancel", "run"])
def test_a_task_that_left_holds_no_neighbour_and_needs_no_garbage_collector(ending):
    class Empty(TimerTask):
        __slots__ = ("__weakref__",)

        def run(self):
            pass

    timer = Timer(0)
    first, kept, last = Empty(), Empty(), Empty()
    neighbours = [weakref.ref(first), weakref.ref(last)]
    for task in (first, kept, last):
        timer.add(task, 5)
    gc.disable()
    try:
        if ending == "cancel":
            for task in (kept, last, first):
                timer.cancel(task)
        else:
            timer.advance_to(5)
        del first, last, task
        assert [neighbour() for neighbour in neighbours] == [None, None]
        gone = weakref.ref(kept)
        del kept
        assert gone() is None
    finally:
        gc.enable()


# -- re-arming -------------------------------------------------------------------------


def test_a_later_deadline_is_only_stored_until_the_old_bucket_comes_up(notes, slots):
    timer = Timer(0)
    (task,) = notes.add(timer, 5)
    timer.rearm(task, 12)
    assert slots(timer) == {(0, 5): [12]}  # Still in the slot of 5.
    assert (len(timer), task.deadline_ms) == (1, 12)
    assert timer.advance_to(5) == 0
    assert slots(timer) == {(0, 12): [12]}
    assert timer.advance_to(11) == 0
    assert timer.advance_to(12) == 1


def test_an_earlier_deadline_moves_at_once(notes, slots):
    timer = Timer(0)
    (task,) = notes.add(timer, 12)
    timer.rearm(task, 5)
    assert slots(timer) == {(0, 5): [5]}
    assert len(timer) == 1
    assert timer.next_expiration_ms() == 5
    assert timer.advance_to(5) == 1


def test_later_and_then_earlier_again_runs_at_the_last_deadline(notes, slots):
    timer = Timer(0)
    (task,) = notes.add(timer, 5)
    timer.rearm(task, 15)
    timer.rearm(task, 9)  # Earlier than 15, but the bucket of 5 is in time for it.
    assert slots(timer) == {(0, 5): [9]}
    assert timer.advance_to(8) == 0
    assert timer.advance_to(9) == 1


def test_rearming_a_task_that_is_not_pending_adds_it(notes):
    timer = Timer(0)
    task = notes.task("x")
    timer.rearm(task, 5)
    assert len(timer) == 1
    timer.advance_to(5)
    timer.rearm(task, 6)
    timer.advance_to(6)
    assert notes.take() == ["x", "x"]


def test_rearming_to_the_past_runs_at_the_next_advance(notes):
    timer = Timer(10)
    (task,) = notes.add(timer, 300)
    timer.rearm(task, 3)
    assert timer.next_expiration_ms() == 10
    assert timer.advance_to(10) == 1


def test_rearming_a_task_that_waits_for_the_next_advance_puts_it_off(notes):
    timer = Timer(10)
    (task,) = notes.add(timer, 10)
    timer.rearm(task, 20)
    assert timer.advance_to(10) == 0
    assert len(timer) == 1
    assert timer.next_expiration_ms() == 20
    assert timer.advance_to(20) == 1


def test_a_deadline_that_moves_on_with_each_heartbeat_never_runs_early(notes):
    timer = Timer(0)
    clock = VirtualClock(0)
    (task,) = notes.add(timer, 10_000)
    for _ in range(50):
        clock.advance(3_000, timer)
        timer.rearm(task, clock.now_ms() + 10_000)
    assert notes.take() == []
    clock.advance(9_999, timer)
    assert notes.take() == []
    clock.advance(1, timer)
    assert notes.take() == [10_000]


# -- from inside a running task ----------------------------------------------------------


def test_a_running_task_is_no_longer_pending(notes):
    timer = Timer(0)
    seen = []
    task = notes.task("x", lambda: seen.append((task.is_pending, len(timer), timer.cancel(task))))
    timer.add(task, 1)
    timer.advance_to(1)
    assert seen == [(False, 0, False)]


def test_a_task_may_cancel_its_neighbours(notes):
    timer = Timer(0)
    tasks = {}
    tasks["b"] = notes.task("b", lambda: [timer.cancel(tasks[name]) for name in "acd"])
    for name in "acde":
        tasks[name] = notes.task(name)
    for name in "abcde":
        timer.add(tasks[name], 5)
    assert timer.advance_to(5) == 3
    assert notes.take() == ["a", "b", "e"]
    assert len(timer) == 0


def test_a_task_may_move_its_neighbours(notes):
    timer = Timer(0)
    c, d, e = notes.task("c"), notes.task("d"), notes.task("e")
    a = notes.task("a", lambda: (timer.rearm(c, 7), timer.add(d, 6), timer.add(e, 5)))
    b = notes.task("b")
    for task in (a, b, c, d, e):
        timer.add(task, 5)
    assert timer.advance_to(5) == 2
    assert notes.take() == ["a", "b"]
    assert timer.advance_to(5) == 1  # The neighbour added anew for now.
    assert timer.advance_to(7) == 2
    assert notes.take() == ["e", "d", "c"]


def test_what_a_task_adds_for_now_runs_at_the_next_advance(notes):
    timer = Timer(0)
    timer.add(notes.task("first", lambda: timer.add(notes.task("second"), 5)), 5)
    assert timer.advance_to(5) == 1
    assert notes.take() == ["first"]
    assert timer.next_expiration_ms() == 5
    assert timer.advance_to(5) == 1
    assert notes.take() == ["second"]


@pytest.mark.parametrize("offset_ms", [0, -1, -1_000])
def test_a_task_that_always_arms_itself_for_now_cannot_hold_the_loop(notes, offset_ms):
    timer = Timer(0)
    task = notes.task("x", lambda: timer.add(task, task.deadline_ms + offset_ms))
    timer.add(task, 5)
    assert [timer.advance_to(now_ms) for now_ms in (5, 5, 5, 9)] == [1, 1, 1, 1]


def test_a_task_that_arms_itself_for_the_end_of_the_jump_runs_there_and_then_waits(notes):
    timer = Timer(0)
    task = notes.task("x", lambda: timer.add(task, timer.now_ms))
    timer.add(task, 5)
    assert [timer.advance_to(9), timer.advance_to(9), timer.advance_to(9)] == [2, 1, 1]


def test_what_a_task_adds_within_the_jump_runs_in_its_turn(notes):
    timer = Timer(0)
    timer.add(notes.task("5", lambda: timer.add(notes.task("8"), 8)), 5)
    notes.add(timer, 9)
    assert timer.advance_to(20) == 3
    assert notes.take() == ["5", "8", 9]


def test_a_task_may_ask_for_the_next_expiration(notes):
    timer = Timer(0)
    seen = []
    for _ in range(2):
        timer.add(notes.task("x", lambda: seen.append(timer.next_expiration_ms())), 5)
    notes.add(timer, 5 + 20)
    timer.advance_to(5)
    assert seen == [5, 20]
    assert timer.advance_to(25) == 1


def test_a_task_may_not_advance_the_timer(notes):
    timer = Timer(0)
    timer.add(notes.task("x", lambda: timer.advance_to(9)), 5)
    with pytest.raises(RuntimeError, match="that advance_to is running"):
        timer.advance_to(5)
    assert timer.advance_to(9) == 0  # And the timer is usable afterwards.


@pytest.mark.parametrize("deadline_ms", [0, 5, 300])
def test_a_task_that_raises_leaves_all_others_pending(notes, deadline_ms):
    def explode():
        raise OSError("boom")

    timer = Timer(0)
    timer.add(notes.task("a"), deadline_ms)
    timer.add(notes.task("b", explode), deadline_ms)
    timer.add(notes.task("c"), deadline_ms)
    timer.add(notes.task("d"), 301)
    with pytest.raises(OSError, match="boom"):
        timer.advance_to(400)
    assert notes.take() == ["a", "b"]
    assert len(timer) == 2
    assert timer.next_expiration_ms() <= 400
    timer.add(notes.task("e"), 0)
    assert timer.advance_to(400) == 3
    assert sorted(notes.take()) == ["c", "d", "e"]
    assert timer.next_expiration_ms() is None
