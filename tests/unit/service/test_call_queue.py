"""Callers take turns, whatever they send; nobody is served whom nobody waits for."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from coordinator.service.call_queue import CallQueue, Drop, WaitingCall

FOR_EVER = float("inf")


class ObservedQueue:
    """A queue on virtual time; `served` and `dropped` are calls by caller, in order."""

    def __init__(self, most: int = 1_000) -> None:
        self.queue = CallQueue(most)
        self.now_s = 0.0
        self.served: list[str] = []
        self.dropped: list[tuple[str, Drop]] = []

    def call(
        self, caller: str, *, kind="JoinGroup", deadline_s=FOR_EVER, is_awaited=False
    ) -> WaitingCall:
        def decide(drop: Drop | None) -> None:
            if drop is None:
                self.served.append(caller + "!" * is_awaited)
            else:
                self.dropped.append((caller, drop))

        call = WaitingCall(caller, kind, self.now_s, deadline_s, decide, is_awaited)
        self.queue.add(call)
        return call

    def serve(self, calls: int = 1_000_000) -> None:
        for _ in range(calls):
            if not self.queue.admit_next(self.now_s):
                return


@pytest.fixture
def observed() -> ObservedQueue:
    return ObservedQueue()


def test_a_lone_caller_is_served_first_come_first_served(observed):
    messages: list[int] = []
    for number in range(5):
        observed.queue.add(
            WaitingCall("a", "JoinGroup", 0, FOR_EVER, lambda _, n=number: messages.append(n))
        )
    observed.serve()
    assert messages == [0, 1, 2, 3, 4]
    assert not observed.queue.admit_next(0)


def test_a_call_behind_a_burst_of_another_is_the_second_served(observed):
    for _ in range(900):
        observed.call("burst")
    observed.call("other")
    observed.serve(2)
    assert observed.served == ["burst", "other"]


def test_a_caller_that_comes_back_stands_behind_all_others(observed):
    for caller in "aabbcc":
        observed.call(caller)
    observed.serve(1)
    observed.call("d")
    observed.serve()
    assert observed.served == list("abcadbc")


def test_turns_are_even_however_much_is_asked(observed):
    for caller, calls in (("a", 500), ("b", 100), ("c", 10)):
        for _ in range(calls):
            observed.call(caller)
    observed.serve(30)
    assert Counter(observed.served) == {"a": 10, "b": 10, "c": 10}
    observed.serve(180)
    assert Counter(observed.served) == {"a": 100, "b": 100, "c": 10}


def test_a_call_that_a_rebalance_waits_for_goes_before_its_callers_others_alone(observed):
    for _ in range(3):
        observed.call("a")
        observed.call("b")
    observed.call("b", is_awaited=True)
    observed.now_s = 1
    observed.call("b", is_awaited=True)
    assert observed.queue.oldest_s(1) == 1
    observed.serve()
    assert observed.served == ["a", "b!", "a", "b!", "a", "b", "b", "b"]


def test_a_call_whose_deadline_has_passed_is_dropped_without_a_turn(observed):
    observed.call("a", deadline_s=5)
    observed.call("a", deadline_s=5.1)
    observed.now_s = 5
    observed.serve(1)
    assert observed.served == ["a"]
    assert observed.dropped == [("a", Drop.DEADLINE)]
    assert observed.queue.dropped == {Drop.DEADLINE: 1}


def test_a_caller_with_late_calls_takes_no_turn_from_others(observed):
    for _ in range(100):
        observed.call("late", deadline_s=1)
        observed.call("other")
    observed.now_s = 2
    observed.serve(3)
    assert observed.served == ["other"] * 3


def test_a_client_that_gave_up_is_skipped_and_no_longer_counted(observed):
    call = observed.call("a", kind="SyncGroup")
    observed.call("b")
    observed.queue.withdraw(call)
    observed.queue.withdraw(call)
    assert len(observed.queue) == 1
    assert +observed.queue.kinds == {"JoinGroup": 1}
    observed.serve()
    assert observed.served == ["b"]
    assert observed.queue.dropped == {Drop.GONE: 1}
    assert len(observed.queue) == 0


def test_without_room_the_caller_with_most_calls_is_refused_and_others_are_let_in():
    observed = ObservedQueue(most=10)
    for _ in range(12):
        observed.call("burst")
    assert observed.dropped == [("burst", Drop.FULL)] * 2
    observed.call("other")
    observed.call("other")
    assert len(observed.dropped) == 2
    observed.call("burst")
    assert len(observed.dropped) == 3
    observed.serve(2)
    assert observed.served == ["burst", "other"]


def test_many_callers_without_room_stay_within_twice_of_it():
    observed = ObservedQueue(most=100)
    for number in range(100_000):
        observed.call(f"caller-{number % 50}")
    assert len(observed.queue) <= 200


def test_the_age_is_that_of_the_oldest_call(observed):
    assert observed.queue.oldest_s(3) == 0
    observed.call("a")
    observed.now_s = 2
    observed.call("b")
    assert observed.queue.oldest_s(3) == 3
    observed.serve(1)
    assert observed.queue.oldest_s(3) == 1


@pytest.mark.parametrize("seed", range(10))
def test_every_call_is_decided_once_and_none_is_forgotten(seed):
    rng = random.Random(seed)
    observed = ObservedQueue(most=50)
    calls = []
    for _ in range(2_000):
        match rng.randrange(4):
            case 0 | 1:
                deadline_s = observed.now_s + rng.choice([1, 10, FOR_EVER])
                calls.append(observed.call(rng.choice("abcd"), deadline_s=deadline_s))
            case 2:
                observed.now_s += 0.2
                observed.serve(1)
            case _ if calls:
                observed.queue.withdraw(rng.choice(calls))
    observed.serve()
    assert len(observed.queue) == 0
    assert not +observed.queue.kinds
    full = observed.queue.dropped[Drop.FULL]
    assert len(observed.served) + sum(observed.queue.dropped.values()) == len(calls)
    assert full == sum(drop is Drop.FULL for _, drop in observed.dropped)
