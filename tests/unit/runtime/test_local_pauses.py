"""Pauses in which a node does not count silence: found by looking, and bounded."""

from __future__ import annotations

from itertools import pairwise

import pytest

from coordinator.core.pauses import Pause, paused_since
from coordinator.runtime.local_pauses import (
    HELD_MS,
    QUEUE_MS,
    RECOVERY_MS,
    REMEMBERED,
    STALL_MS,
    LocalPauses,
)

PROBE_MS = 250


class Probe:
    """Looks four times a second."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.pauses = LocalPauses(self.now_ms)

    def run(self, ms: int, queue_age_ms: int = 0) -> tuple[Pause, ...]:
        for _ in range(ms // PROBE_MS):
            self.now_ms += PROBE_MS
            found = self.pauses.measure(self.now_ms, queue_age_ms)
        return found

    def stand_still(self, ms: int) -> tuple[Pause, ...]:
        self.now_ms += ms
        return self.pauses.measure(self.now_ms)


@pytest.fixture
def probe() -> Probe:
    return Probe()


def test_a_node_that_always_listens_has_no_pauses(probe):
    assert probe.run(3_600_000, queue_age_ms=QUEUE_MS - 1) == ()
    assert probe.stand_still(STALL_MS - 1) == ()
    assert not probe.pauses.is_paused


def test_a_stall_and_as_long_again_are_no_silence(probe):
    began_ms = probe.now_ms
    assert probe.stand_still(6_000) == (Pause(began_ms, began_ms + 12_000),)
    assert probe.pauses.is_paused
    probe.run(6_000)
    assert not probe.pauses.is_paused
    assert probe.pauses.total_ms == 12_000


def test_after_a_long_stall_no_more_than_the_recovery_follows(probe):
    began_ms = probe.now_ms
    stalled_ms = 10 * HELD_MS  # A stall is not bounded: nobody could have been heard in it.
    (pause,) = probe.stand_still(stalled_ms)
    assert pause == Pause(began_ms, began_ms + stalled_ms + RECOVERY_MS)


def test_calls_that_wait_are_a_pause_since_the_oldest_arrived(probe):
    probe.run(5_000)
    (pause,) = probe.run(PROBE_MS, queue_age_ms=2_000)
    assert pause == Pause(probe.now_ms - 2_000, probe.now_ms + 2_000)


def test_a_backlog_after_a_stall_is_the_same_pause(probe):
    began_ms = probe.now_ms
    probe.stand_still(6_000)
    (pause,) = probe.run(20_000, queue_age_ms=2_000)
    assert pause.from_ms == began_ms
    assert pause.to_ms == probe.now_ms + RECOVERY_MS


def test_an_overload_that_does_not_end_holds_sessions_back_for_a_minute(probe):
    began_ms = probe.now_ms
    pauses = probe.run(20 * HELD_MS, queue_age_ms=2_000)
    assert paused_since(pauses, 0) == HELD_MS
    assert pauses[-1].to_ms <= began_ms + HELD_MS
    assert not probe.pauses.is_paused


def test_the_bound_is_beside_the_time_in_which_the_process_stood_still(probe):
    probe.stand_still(30_000)
    pauses = probe.run(20 * HELD_MS, queue_age_ms=2_000)
    assert paused_since(pauses, 0) == 30_000 + HELD_MS


def test_a_stall_counts_also_when_the_bound_is_used_up(probe):
    before = probe.run(2 * HELD_MS, queue_age_ms=2_000)
    after = probe.stand_still(5_000)
    assert paused_since(after, 0) == paused_since(before, 0) + 5_000


def test_short_stalls_one_after_the_other_are_bounded_too(probe):
    began_ms = probe.now_ms
    for _ in range(100):
        probe.stand_still(STALL_MS)
        pauses = probe.run(STALL_MS)
    assert paused_since(pauses, began_ms) == 100 * STALL_MS + HELD_MS
    assert probe.pauses.total_ms == 100 * STALL_MS + HELD_MS


def test_once_nothing_has_waited_for_a_while_there_is_a_new_bound(probe):
    before = probe.run(2 * HELD_MS, queue_age_ms=2_000)
    probe.run(RECOVERY_MS)
    after = probe.run(2 * HELD_MS, queue_age_ms=2_000)
    assert paused_since(after, 0) == paused_since(before, 0) + HELD_MS


def test_pauses_never_overlap_and_are_not_kept_for_ever(probe):
    for n in range(3 * REMEMBERED):
        probe.stand_still(STALL_MS + 10 * n)
        pauses = probe.run(60_000, queue_age_ms=QUEUE_MS * (n % 3))
        assert all(a.to_ms < b.from_ms for a, b in pairwise(pauses))
        assert all(pause.from_ms < pause.to_ms for pause in pauses)
    assert len(pauses) == REMEMBERED


def test_only_the_part_of_a_pause_after_the_last_beat_counts():
    pauses = (Pause(10, 20), Pause(30, 50))
    assert paused_since(pauses, 0) == 30
    assert paused_since(pauses, 15) == 25
    assert paused_since(pauses, 40) == 10
    assert paused_since(pauses, 50) == 0
