"""Histograms of waits by purgatory, and the lag of the timer."""

from __future__ import annotations

from coordinator.shard.inputs import Tick
from coordinator.shard.stats import BOUNDS_MS, WaitStats
from tests.unit.shard.desk import Desk


def waits(desk: Desk, purgatory: str) -> WaitStats:
    return desk.shard.stats().waits[purgatory]


def by_bound(stats: WaitStats) -> dict[int, int]:
    return {bound: n for bound, n in zip(BOUNDS_MS, stats.counts, strict=False) if n}


def test_a_write_counts_from_its_request_until_it_is_durable():
    desk = Desk()
    desk.commit(1)
    desk.now_ms += 7
    desk.store()
    assert by_bound(waits(desk, "produce")) == {10: 1}
    assert (waits(desk, "produce").total_ms, waits(desk, "produce").expired) == (7, 0)


def test_a_write_of_which_nothing_is_heard_has_expired():
    desk = Desk()
    desk.commit(1)
    desk.pass_time(60_000)
    assert (waits(desk, "produce").expired, sum(waits(desk, "produce").counts)) == (1, 1)
    desk.store()
    assert sum(waits(desk, "produce").counts) == 1, "it is told once"


def test_a_fetch_waits_for_the_next_entry():
    desk = Desk()
    desk.fetch(2, 0, max_wait_ms=500)
    desk.now_ms += 30
    desk.commit(1)
    desk.store()
    assert by_bound(waits(desk, "fetch")) == {50: 1}
    desk.fetch(2, 0)
    assert sum(waits(desk, "fetch").counts) == 1, "who is answered at once has not waited"


def test_a_join_phase_that_nobody_completes_has_expired():
    desk = Desk()
    first = desk.join("one")
    desk.pass_time(3_000)
    desk.store()
    assert first in desk.answers
    assert sum(waits(desk, "join").counts) == 0, "the initial delay always takes its time"
    desk.join("two")
    desk.pass_time(20_000)
    assert (waits(desk, "join").expired, waits(desk, "join").total_ms) == (1, 5_000)


def test_a_leader_that_hands_nothing_in_lets_the_sync_phase_expire():
    desk = Desk()
    desk.join("one")
    desk.pass_time(3_000)
    desk.store()
    desk.pass_time(5_000)
    assert (waits(desk, "sync").expired, waits(desk, "sync").total_ms) == (1, 5_000)


def test_a_tick_that_comes_late_says_by_how_much():
    desk = Desk()
    desk.fetch(2, 0, max_wait_ms=500)
    assert desk.deadline_ms is not None
    desk.now_ms = desk.deadline_ms + 42
    desk.step(Tick())
    assert desk.shard.stats().timer_lag_ms == 42
