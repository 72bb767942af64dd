"""A worker that does not poll leaves its partitions to others, and comes back when it polls."""

from __future__ import annotations

import pytest

from coordinator.client import StaleMember
from coordinator.client.member.classic.membership import MembershipPhase
from coordinator.client.settings.configs import ClassicConfig
from tests.kit.client_scenario import ClientScenario, Granted, Lost, t

FIVE_MINUTES_MS = 300_000


@pytest.fixture(params=["range", "cooperative-sticky"])
def scenario(request) -> ClientScenario:
    return ClientScenario(request.param)


def test_a_deadlocked_worker_leaves_after_five_minutes_unless_it_says_otherwise(scenario):
    stuck = scenario.member(heartbeat_interval_ms=1_000)
    scenario.share(stuck)
    scenario.advance(FIVE_MINUTES_MS, step_ms=1_000)
    assert stuck.member.phase is MembershipPhase.STABLE, (
        "five minutes, to the millisecond, are allowed"
    )
    scenario.advance(1_000, step_ms=500)
    assert stuck.member.phase is MembershipPhase.IDLE
    (reason,) = stuck.left_because
    assert reason == "no progress: no poll for 300001 ms; max_poll_interval_ms is 300000"
    other = scenario.member()
    scenario.share(other)
    with pytest.raises(StaleMember, match="no poll for 300001 ms"):
        stuck.commit({0: 10})
    assert stuck.poll() == [Lost(t(0, 1), reason)]
    scenario.share(stuck, other)


def test_none_is_never(scenario):
    stuck = scenario.member(heartbeat_interval_ms=1_000, max_poll_interval_ms=None)
    scenario.share(stuck)
    scenario.advance(2 * FIVE_MINUTES_MS, step_ms=1_000)
    assert stuck.assignment == t(0, 1)


def test_the_default_is_kafkas_and_that_of_the_spark_source():
    assert ClassicConfig(group_id="g", topics={}).max_poll_interval_ms == FIVE_MINUTES_MS


def test_work_on_a_long_piece_shows_that_it_goes_on(scenario):
    busy = scenario.member(max_poll_interval_ms=1_000)
    scenario.share(busy)
    for _ in range(5):
        scenario.advance(900)
        busy.alive()
    assert busy.commit({0: 1}) == 1
    scenario.advance(1_100)
    assert busy.member.phase is MembershipPhase.IDLE


def test_one_that_stands_in_a_long_poll_makes_progress(scenario):
    waiting = scenario.member(max_poll_interval_ms=1_000)
    scenario.share(waiting)
    assert waiting.stand_in_poll(5_000) == []
    assert waiting.assignment == t(0, 1)
    assert waiting.commit({0: 1}) == 1


def test_one_that_has_left_is_no_member_until_it_polls(scenario):
    stuck = scenario.member(max_poll_interval_ms=1_000)
    scenario.share(stuck)
    scenario.advance(5_000)
    assert len(stuck.left_because) == 1, "said once"
    assert scenario.coordinator.state("g").value == "Empty"
    stored = scenario.stored()
    with pytest.raises(StaleMember):  # An Empty group takes commits of anybody.
        stuck.commit({0: 5})
    with pytest.raises(StaleMember):
        stuck.commit({}, manifest=b"m")
    assert scenario.stored() == stored
    assert [type(event) for event in stuck.poll()] == [Lost]
    scenario.advance(100)
    assert stuck.poll() == [Granted(t(0, 1), stuck.member.generation)]
    assert stuck.commit({0: 5}) == 1
