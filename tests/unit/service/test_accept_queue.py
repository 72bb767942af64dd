"""The age of calls in gRPC's queues is estimated from two counts."""

from __future__ import annotations

import random
from collections import deque

import pytest

from coordinator.service.grpc import accept_queue
from coordinator.service.grpc.accept_queue import QUEUE_LIMIT_S, SAMPLES, Backlog

PROBE_S = 0.25


class Queue:
    """First come, first served, at a rate; old calls are dropped, and so are those beyond a bound.

    `backlog` sees its counts, the test sees its calls.
    """

    def __init__(self, bound: int = 2_500) -> None:
        self.now_s = 100.0
        self.backlog = Backlog()
        self._bound = bound
        self._calls: deque[float] = deque()
        self._begun = self._taken = self.lost = 0

    def run(self, seconds: float, *, arrive: float, serve: float) -> None:
        """Let `arrive` calls a second come, of which `serve` can be served."""
        for _ in range(round(seconds / PROBE_S)):
            for n in range(round(arrive * PROBE_S)):
                self._begun += 1
                if len(self._calls) < self._bound:
                    self._calls.append(self.now_s + n / arrive)
                else:
                    self.lost += 1
            self.now_s += PROBE_S
            for _ in range(round(serve * PROBE_S)):
                while self._calls and self.now_s - self._calls[0] > QUEUE_LIMIT_S:
                    self._calls.popleft()
                    self.lost += 1
                if self._calls:
                    self._calls.popleft()
                    self._taken += 1
            self.backlog.sample(self.now_s, self._begun, self._taken)

    @property
    def age_s(self) -> float:
        return self.now_s - self._calls[0] if self._calls else 0.0

    @property
    def too_old(self) -> int:
        """Calls that will be dropped when the next one is asked for."""
        return sum(self.now_s - began_s > QUEUE_LIMIT_S for began_s in self._calls)

    def __len__(self) -> int:
        return len(self._calls)


def test_a_queue_that_keeps_up_has_no_age():
    queue = Queue()
    queue.run(60, arrive=1_000, serve=4_000)
    assert queue.backlog.age_s == queue.backlog.waiting == queue.backlog.dropped == 0


@pytest.mark.parametrize("arrive", [800, 2_000])
def test_a_queue_that_grows_is_as_old_as_its_oldest_call(arrive):
    queue = Queue(bound=100_000)
    queue.run(10, arrive=100, serve=1_000)
    queue.run(2, arrive=arrive, serve=400)
    assert queue.backlog.waiting == len(queue)
    assert queue.age_s - PROBE_S <= queue.backlog.age_s <= queue.age_s


def test_an_overload_that_goes_on_stays_visible():
    queue = Queue()
    queue.run(30, arrive=2_000, serve=400)
    assert queue.backlog.age_s >= 1
    assert queue.lost > 0


def test_calls_that_were_dropped_are_not_taken_for_waiting_for_ever():
    queue = Queue()
    queue.run(30, arrive=2_000, serve=400)
    queue.run(2 + SAMPLES * PROBE_S, arrive=100, serve=4_000)
    queue.run(2 * QUEUE_LIMIT_S, arrive=0, serve=4_000)
    assert len(queue) == 0
    assert queue.backlog.age_s == queue.backlog.waiting == 0
    assert queue.backlog.dropped == queue.lost


@pytest.mark.parametrize("seed", range(20))
def test_it_never_says_more_than_calls_could_have_waited(seed):
    rng = random.Random(seed)
    queue = Queue(bound=rng.choice([100, 1_000, 100_000]))
    for _ in range(40):
        queue.run(
            rng.choice([0.25, 1, 5]),
            arrive=rng.choice([0, 40, 400, 4_000]),
            serve=rng.choice([0, 40, 400, 4_000]),
        )
        assert 0 <= queue.backlog.age_s <= SAMPLES * PROBE_S
        assert queue.backlog.dropped <= queue.lost + queue.too_old


class Counted:
    """An accept queue whose count of calls takes a given time of CPU."""

    def __init__(self, monkeypatch, cost_s: float) -> None:
        self.counts: list[float] = []
        self.begun = 0
        self.cpu_s = self.now_s = 0.0
        self.cost_s = cost_s
        monkeypatch.setattr(accept_queue, "_calls_begun", lambda _: self._count())
        self.queue = accept_queue.AcceptQueue(accept_queue.newest_server(), lambda: self.cpu_s)

    def _count(self) -> int:
        self.counts.append(self.now_s)
        self.cpu_s += self.cost_s
        return self.begun

    def oldest_s(self, seconds: float, *, every_s: float = 0.25, calls: int = 0) -> int:
        """Look for so long; the number of counts. Each time so many calls were taken up."""
        before = len(self.counts)
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.now_s += every_s
            self.begun += calls
            for _ in range(calls):
                self.queue.service(None)
            self.queue.oldest_s(self.now_s)
        return len(self.counts) - before


def test_calls_are_counted_less_often_the_more_it_costs(monkeypatch):
    assert Counted(monkeypatch, 0.000_15).oldest_s(60) == 240, "each time, with few connections"
    dear = Counted(monkeypatch, 0.054)
    dear.oldest_s(1)
    assert dear.oldest_s(110) == 10, "2,000 connections: half a percent of the loop's time"


def test_calls_are_counted_more_often_while_some_may_be_waiting(monkeypatch):
    dear = Counted(monkeypatch, 0.054)
    dear.oldest_s(1)
    assert dear.oldest_s(55, calls=100) == 44, "many calls come"
    dear.oldest_s(11)
    assert dear.oldest_s(55, every_s=0.5) == 37, "the loop is late"
    dear.oldest_s(30)
    dear.begun += 7
    assert dear.oldest_s(55) > 37, "some wait"
    assert dear.queue.backlog.waiting == 7
