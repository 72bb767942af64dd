"""Callers take turns, whatever they send; nobody is served whom nobody waits for."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from coordinator.service.call_queue import CallQueue, Drop, WaitingCall

FOR_EVER = float("inf")


class Desk:
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
def desk() -> Desk:
    return Desk()


def test_a_lone_caller_is_served_first_come_first_served(desk):
    told: list[int] = []
    for number in range(5):
        desk.queue.add(
            WaitingCall("a", "JoinGroup", 0, FOR_EVER, lambda _, n=number: told.append(n))
        )
    desk.serve()
    assert told == [0, 1, 2, 3, 4]
    assert not desk.queue.admit_next(0)


def test_a_call_behind_a_burst_of_another_is_the_second_served(desk):
    for _ in range(900):
        desk.call("burst")
    desk.call("other")
    desk.serve(2)
    assert desk.served == ["burst", "other"]


def test_a_caller_that_comes_back_stands_behind_all_others(desk):
    for caller in "aabbcc":
        desk.call(caller)
    desk.serve(1)
    desk.call("d")
    desk.serve()
    assert desk.served == list("abcadbc")


def test_turns_are_even_however_much_is_asked(desk):
    for caller, calls in (("a", 500), ("b", 100), ("c", 10)):
        for _ in range(calls):
            desk.call(caller)
    desk.serve(30)
    assert Counter(desk.served) == {"a": 10, "b": 10, "c": 10}
    desk.serve(180)
    assert Counter(desk.served) == {"a": 100, "b": 100, "c": 10}


def test_a_call_that_a_rebalance_waits_for_goes_before_its_callers_others_alone(desk):
    for _ in range(3):
        desk.call("a")
        desk.call("b")
    desk.call("b", is_awaited=True)
    desk.now_s = 1
    desk.call("b", is_awaited=True)
    assert desk.queue.oldest_s(1) == 1
    desk.serve()
    assert desk.served == ["a", "b!", "a", "b!", "a", "b", "b", "b"]


def test_a_call_whose_deadline_has_passed_is_dropped_without_a_turn(desk):
    desk.call("a", deadline_s=5)
    desk.call("a", deadline_s=5.1)
    desk.now_s = 5
    desk.serve(1)
    assert desk.served == ["a"]
    assert desk.dropped == [("a", Drop.DEADLINE)]
    assert desk.queue.dropped == {Drop.DEADLINE: 1}


def test_a_caller_with_late_calls_takes_no_turn_from_others(desk):
    for _ in range(100):
        desk.call("late", deadline_s=1)
        desk.call("other")
    desk.now_s = 2
    desk.serve(3)
    assert desk.served == ["other"] * 3


def test_a_client_that_gave_up_is_skipped_and_no_longer_counted(desk):
    call = desk.call("a", kind="SyncGroup")
    desk.call("b")
    desk.queue.withdraw(call)
    desk.queue.withdraw(call)
    assert len(desk.queue) == 1
    assert +desk.queue.kinds == {"JoinGroup": 1}
    desk.serve()
    assert desk.served == ["b"]
    assert desk.queue.dropped == {Drop.GONE: 1}
    assert len(desk.queue) == 0


def test_without_room_the_caller_with_most_calls_is_refused_and_others_are_let_in():
    desk = Desk(most=10)
    for _ in range(12):
        desk.call("burst")
    assert desk.dropped == [("burst", Drop.FULL)] * 2
    desk.call("other")
    desk.call("other")
    assert len(desk.dropped) == 2
    desk.call("burst")
    assert len(desk.dropped) == 3
    desk.serve(2)
    assert desk.served == ["burst", "other"]


def test_many_callers_without_room_stay_within_twice_of_it():
    desk = Desk(most=100)
    for number in range(100_000):
        desk.call(f"caller-{number % 50}")
    assert len(desk.queue) <= 200


def test_the_age_is_that_of_the_oldest_call(desk):
    assert desk.queue.oldest_s(3) == 0
    desk.call("a")
    desk.now_s = 2
    desk.call("b")
    assert desk.queue.oldest_s(3) == 3
    desk.serve(1)
    assert desk.queue.oldest_s(3) == 1


@pytest.mark.parametrize("seed", range(10))
def test_every_call_is_decided_once_and_none_is_forgotten(seed):
    rng = random.Random(seed)
    desk = Desk(most=50)
    calls = []
    for _ in range(2_000):
        match rng.randrange(4):
            case 0 | 1:
                deadline_s = desk.now_s + rng.choice([1, 10, FOR_EVER])
                calls.append(desk.call(rng.choice("abcd"), deadline_s=deadline_s))
            case 2:
                desk.now_s += 0.2
                desk.serve(1)
            case _ if calls:
                desk.queue.withdraw(rng.choice(calls))
    desk.serve()
    assert len(desk.queue) == 0
    assert not +desk.queue.kinds
    full = desk.queue.dropped[Drop.FULL]
    assert len(desk.served) + sum(desk.queue.dropped.values()) == len(calls)
    assert full == sum(drop is Drop.FULL for _, drop in desk.dropped)
