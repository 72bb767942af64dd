"""Callers stand in lines: some wait, some are refused, and one's line is not another's."""

from __future__ import annotations

import pytest

from coordinator.service.throttle import FORGET_AT, HOLD_S, Throttle


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def throttle(clock):
    return Throttle(100, clock)


def calls(throttle, number: int, caller: str = "a"):
    return [throttle.take(caller) for _ in range(number)]


def test_a_caller_that_was_quiet_may_call_a_second_s_worth_at_once(throttle):
    assert [call.wait_s for call in calls(throttle, 100)] == [0.0] * 100
    assert calls(throttle, 1)[0].wait_s == pytest.approx(0.01)


def test_those_beyond_wait_for_their_turn_and_those_far_beyond_are_refused(throttle):
    made = calls(throttle, 400)
    waits = [call.wait_s for call in made]
    assert waits == sorted(waits)
    assert sum(call.is_refused for call in made) == 200
    assert not any(call.is_refused for call in made[:200])
    assert max(waits) == HOLD_S, "who is refused is held first"
    assert made[-1].retry_after_s == pytest.approx(0.01, abs=0.001)


def test_over_a_long_time_a_caller_gets_its_rate_and_no_more(throttle, clock):
    served = 0
    for _ in range(10_000):
        clock.now += 0.001
        served += not throttle.take("a").is_refused
    assert served == pytest.approx(100 * 10 + 200, abs=3)


def test_one_caller_s_storm_costs_another_nothing(throttle):
    calls(throttle, 10_000, "stormy")
    assert [call.wait_s for call in calls(throttle, 100, "calm")] == [0.0] * 100


def test_who_is_quiet_is_forgotten_and_who_is_not_stays_in_line(throttle, clock):
    for number in range(FORGET_AT):
        throttle.take(str(number))
    clock.now += 5
    calls(throttle, 250, "busy")
    throttle.take("one more")
    assert len(throttle._free_at) < 10
    assert throttle.take("busy").is_refused


def test_calls_that_are_served_at_once_are_paid_for_by_silence(throttle, clock):
    assert [throttle.serve("a", 2.0) for _ in range(100)] == [0.0] * 100
    pauses = [throttle.serve("a", 2.0) for _ in range(50)]
    assert pauses == pytest.approx([0.01 * n for n in range(1, 51)])
    clock.now += pauses[-1]
    assert throttle.serve("a", 2.0) == pytest.approx(0.01)
    assert throttle.serve("b", 2.0) == 0.0


def test_no_silence_is_longer_than_allowed_and_it_does_not_pile_up(throttle, clock):
    assert max(throttle.serve("a", 2.0) for _ in range(10_000)) == pytest.approx(2.0)
    clock.now += 2.0
    assert throttle.serve("a", 2.0) <= 0.01 + 1e-9


def test_both_kinds_of_calls_are_counted_in_one_queue(throttle):
    for _ in range(150):
        throttle.serve("a", 2.0)
    assert throttle.take("a").wait_s == pytest.approx(0.51)
