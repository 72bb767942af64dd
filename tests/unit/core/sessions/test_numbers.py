"""The token counter of a shard is durable once a token was given out, and not before."""

from __future__ import annotations

from coordinator.core.values.records import TokenFloor
from tests.kit.session_scenario import SessionScenario, g1


def test_a_shard_that_has_granted_nothing_has_no_record_of_tokens():
    scenario = SessionScenario()
    scenario.restart()
    assert scenario.shard.records() == []


def test_the_last_token_is_in_the_snapshot_also_when_its_group_has_gone():
    scenario, a = g1()
    assert TokenFloor(4) in scenario.shard.records()
    a.leave("now")
    scenario.to(200)
    assert TokenFloor(4) in scenario.shard.records()
