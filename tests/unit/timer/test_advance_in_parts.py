"""An advance with a limit: the parts together are the whole, whatever happens in between."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timer import Timer, TimerTask, VirtualClock

# -- the rules ---------------------------------------------------------------------------


def test_it_stops_at_the_limit_and_carries_on_where_it_stopped(notes):
    timer = Timer(0)
    notes.add(timer, 0, 5, 5, 5, 7, 9)
    assert timer.advance_to(8, 2) == 2
    assert (notes.take(), timer.is_behind, len(timer)) == ([0, 5], True, 4)
    assert timer.advance_to(8, 2) == 2
    assert (notes.take(), timer.is_behind) == ([5, 5], True)
    assert timer.advance_to(8, 2) == 1
    assert (notes.take(), timer.is_behind, len(timer)) == ([7], False, 1)


def test_a_timer_that_is_behind_has_something_to_do_now(notes):
    timer = Timer(0)
    tasks = notes.add(timer, 5, 5, 5)
    timer.advance_to(8, 1)
    assert timer.next_expiration_ms() == 8
    for task in tasks:
        timer.cancel(task)
    assert timer.next_expiration_ms() == 8  # The advance is to be finished all the same.
    assert timer.advance_to(8, 1) == 0
    assert timer.next_expiration_ms() is None


def test_a_limit_that_is_just_enough_leaves_nothing_behind(notes):
    timer = Timer(0)
    notes.add(timer, 5, 5)
    assert timer.advance_to(5, 2) == 2
    assert not timer.is_behind


def test_what_comes_down_a_level_counts_too(notes, slots):
    timer = Timer(0, wheel_size=8)
    notes.add(timer, 8, 9, 10, 11)
    assert timer.advance_to(8, 3) == 1
    assert timer.is_behind
    assert slots(timer) == {(0, 1): [9], (0, 2): [10], (1, 1): [11]}
    assert timer.advance_to(8, 3) == 0
    assert slots(timer) == {(0, 1): [9], (0, 2): [10], (0, 3): [11]}


def test_what_is_added_for_now_waits_until_the_advance_is_finished(notes):
    timer = Timer(0)
    notes.add(timer, 5, 5, 6)
    timer.advance_to(8, 1)
    timer.add(notes.task("due"), 5)
    timer.add(notes.task("in its turn"), 6)
    for _ in range(3):
        timer.advance_to(8, 1)
    assert notes.take() == [5, 5, 6, "in its turn"]
    assert not timer.is_behind
    assert timer.next_expiration_ms() == 8
    timer.advance_to(8, 1)
    assert notes.take() == ["due"]


def test_time_may_move_on_while_it_is_behind(notes):
    timer = Timer(0)
    notes.add(timer, 5, 5, 9)
    timer.advance_to(5, 1)
    timer.add(notes.task("due"), 5)
    assert timer.advance_to(20, 10) == 3
    assert notes.take() == [5, 5, "due", 9]
    assert not timer.is_behind


def test_a_call_without_a_limit_finishes_what_one_with_a_limit_began(notes):
    timer = Timer(0)
    notes.add(timer, *range(1, 100))
    timer.advance_to(99, 10)
    assert timer.advance_to(99) == 89
    assert notes.take() == list(range(1, 100))


def test_a_task_that_always_arms_itself_for_now_cannot_keep_it_behind(notes):
    timer = Timer(0)
    task = notes.task("again", lambda: timer.add(task, 0))
    timer.add(task, 0)
    notes.add(timer, 5)
    ran = 0
    while True:
        ran += timer.advance_to(5, 1)
        if not timer.is_behind:
            break
    assert ran == 2
    assert notes.take() == ["again", 5]


def test_a_task_that_raises_ends_the_advance_and_the_rest_stays_pending(notes):
    def explode():
        raise OSError("boom")

    timer = Timer(0)
    notes.add(timer, 5)
    timer.add(notes.task("bad", explode), 5)
    notes.add(timer, 5, 6)
    timer.advance_to(8, 1)
    with pytest.raises(OSError, match="boom"):
        timer.advance_to(8, 2)
    assert not timer.is_behind
    assert timer.advance_to(8) == 2
    assert notes.take() == [5, "bad", 5, 6]


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_that_lets_nothing_happen_is_refused(limit):
    with pytest.raises(ValueError, match="at least 1"):
        Timer(0).advance_to(5, limit)


def test_a_virtual_clock_stands_still_until_nothing_is_behind(notes):
    timer = Timer(0)
    notes.add(timer, 5, 5, 5, 7)
    steps = []
    clock = VirtualClock(0)
    noted = SimpleNamespace(
        next_expiration_ms=timer.next_expiration_ms,
        advance_to=lambda now_ms: steps.append((now_ms, timer.advance_to(now_ms, 2))),
    )
    clock.advance(10, noted)
    assert steps == [(5, 2), (5, 1), (7, 1)]


def test_a_hundred_thousand_in_one_millisecond_come_in_parts_and_in_order(notes):
    timer = Timer(0, wheel_size=512)
    for number in range(100_000):
        timer.add(notes.task(number), 700)
    calls = 0
    timer.advance_to(511)
    while len(timer):
        assert timer.advance_to(700, 1_000) <= 1_000
        calls += 1
    assert calls == 200  # Down a level, then run.
    assert notes.take() == list(range(100_000))


# -- the parts are the whole ---------------------------------------------------------------

DELAYS_MS = st.one_of(st.integers(-3, 40), st.integers(0, 1_500))
ACTIONS = st.tuples(st.sampled_from(["add", "rearm", "cancel"]), st.integers(0, 11), DELAYS_MS)


class TaskPlay:
    """Twelve tasks; after the n-th run something happens: inside that run, or after the part."""

    def __init__(self, size, deadlines_ms, script, *, inside):
        self.timer = Timer(0, wheel_size=size)
        self.tasks = [Scripted(self, number) for number in range(12)]
        self.script, self.inside = script, inside
        self.ran, self.acted = [], 0
        for task, deadline_ms in zip(self.tasks, deadlines_ms, strict=False):
            self.timer.add(task, deadline_ms)

    def act(self):
        """Carry out the scripted actions that follow the runs so far."""
        while self.acted < len(self.ran):
            self.acted += 1
            for what, number, delay_ms in self.script.get(self.acted, ()):
                deadline_ms = self.timer.wheel.current_ms + delay_ms
                if what == "cancel":
                    self.timer.cancel(self.tasks[number])
                else:
                    getattr(self.timer, what)(self.tasks[number], deadline_ms)


class Scripted(TimerTask):
    __slots__ = ("number", "play")

    def __init__(self, play, number):
        super().__init__()
        self.play, self.number = play, number

    def run(self):
        self.play.ran.append((self.number, self.deadline_ms))
        if self.play.inside:
            self.play.act()


SCRIPTS = st.dictionaries(st.integers(1, 30), st.lists(ACTIONS, max_size=4), max_size=12)
TIMES_MS = st.lists(st.integers(0, 2_000), min_size=1, max_size=6).map(sorted)
SIZES = st.sampled_from([2, 8, 20, 512])


@settings(deadline=None)
@given(SIZES, st.lists(DELAYS_MS, max_size=12), SCRIPTS, TIMES_MS)
def test_what_happens_between_two_parts_is_as_if_a_running_task_did_it(
    size, deadlines_ms, script, times_ms
):
    parts = TaskPlay(size, deadlines_ms, script, inside=False)
    between = {}  # The script without what would have come after a last part.
    states = []
    for now_ms in times_ms:
        parts.timer.advance_to(now_ms, 1)
        while parts.timer.is_behind:
            between |= {
                n: script[n] for n in range(parts.acted + 1, len(parts.ran) + 1) if n in script
            }
            parts.act()
            parts.timer.advance_to(now_ms, 1)
        parts.acted = len(parts.ran)
        states.append(state_of(parts))
    whole = TaskPlay(size, deadlines_ms, between, inside=True)
    for now_ms, state in zip(times_ms, states, strict=True):
        whole.timer.advance_to(now_ms)
        assert state_of(whole) == state


def state_of(play):
    timer = play.timer
    return list(play.ran), len(timer), timer.next_expiration_ms()


LIMITS = st.lists(st.sampled_from([1, 2, 5, None]), min_size=6, max_size=6)


@settings(deadline=None)
@given(SIZES, st.lists(DELAYS_MS, max_size=12), SCRIPTS, TIMES_MS, LIMITS)
def test_while_time_moves_on_each_advance_that_began_is_finished_before_the_next(
    size, deadlines_ms, script, times_ms, limits
):
    whole = TaskPlay(size, deadlines_ms, script, inside=True)
    parts = TaskPlay(size, deadlines_ms, script, inside=True)
    calls = list(zip(times_ms, limits, strict=False)) + [(times_ms[-1], 1)] * 500
    for now_ms, limit in calls:
        was_behind, before_ms = parts.timer.is_behind, parts.timer._target_ms
        if not was_behind and now_ms == times_ms[-1] == before_ms:
            break
        parts.timer.advance_to(now_ms, limit)
        if not was_behind or parts.timer._target_ms != before_ms:
            whole.timer.advance_to(parts.timer._target_ms)
    assert not parts.timer.is_behind
    assert parts.ran == whole.ran
    assert len(parts.timer) == len(whole.timer)
