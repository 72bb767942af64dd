"""Histograms of waits by purgatory, and the lag of the timer."""

from __future__ import annotations

from coordinator.shard.inputs import Tick
from coordinator.shard.stats import BOUNDS_MS, WaitStats
from tests.kit.hosted_shard import HostedShard


def waits(host: HostedShard, purgatory: str) -> WaitStats:
    return host.shard.stats().waits[purgatory]


def by_bound(stats: WaitStats) -> dict[int, int]:
    return {bound: n for bound, n in zip(BOUNDS_MS, stats.counts, strict=False) if n}


def test_a_write_counts_from_its_request_until_it_is_durable():
    host = HostedShard()
    host.commit(1)
    host.now_ms += 7
    host.store()
    assert by_bound(waits(host, "produce")) == {10: 1}
    assert (waits(host, "produce").total_ms, waits(host, "produce").expired) == (7, 0)


def test_a_write_of_which_nothing_is_heard_has_expired():
    host = HostedShard()
    host.commit(1)
    host.pass_time(60_000)
    assert (waits(host, "produce").expired, sum(waits(host, "produce").counts)) == (1, 1)
    host.store()
    assert sum(waits(host, "produce").counts) == 1, "it is told once"


def test_a_fetch_waits_for_the_next_entry():
    host = HostedShard()
    host.fetch(2, 0, max_wait_ms=500)
    host.now_ms += 30
    host.commit(1)
    host.store()
    assert by_bound(waits(host, "fetch")) == {50: 1}
    host.fetch(2, 0)
    assert sum(waits(host, "fetch").counts) == 1, "who is answered at once has not waited"


def test_a_join_phase_that_nobody_completes_has_expired():
    host = HostedShard()
    first = host.join("one")
    host.pass_time(3_000)
    host.store()
    assert first in host.answers
    assert sum(waits(host, "join").counts) == 0, "the initial delay always takes its time"
    host.join("two")
    host.pass_time(20_000)
    assert (waits(host, "join").expired, waits(host, "join").total_ms) == (1, 5_000)


def test_a_leader_that_hands_nothing_in_lets_the_sync_phase_expire():
    host = HostedShard()
    host.join("one")
    host.pass_time(3_000)
    host.store()
    host.pass_time(5_000)
    assert (waits(host, "sync").expired, waits(host, "sync").total_ms) == (1, 5_000)


def test_a_tick_that_comes_late_says_by_how_much():
    host = HostedShard()
    host.fetch(2, 0, max_wait_ms=500)
    assert host.deadline_ms is not None
    host.now_ms = host.deadline_ms + 42
    host.step(Tick())
    assert host.shard.stats().timer_lag_ms == 42
