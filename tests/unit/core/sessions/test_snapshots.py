"""A snapshot restores a session group as the log does."""

from __future__ import annotations

import pytest

from coordinator.core.values.policy import Mode
from coordinator.core.values.records import TokenFloor
from coordinator.core.values.requests import CommitOffsets, PartitionCommit
from coordinator.runtime.codec import decode, encode
from tests.kit.session_scenario import GROUP, SessionScenario, g2, handing_over, with_policy


def compacted(scenario):
    """Have the log hold a snapshot alone."""
    scenario.records = [decode(encode(record)) for record in scenario.shard.records()]


def kept():
    scenario, a, b = g2()
    scenario.to(5_000)
    a.leave("return", 60_000)
    return scenario, a, b


def copying():
    scenario, a, b, partition = handing_over(with_policy(mode=Mode.COPY))
    a.ack(partition, position=70)
    return scenario, a, b


def forced():
    scenario, a, b, _ = handing_over()
    scenario.to(36_000)
    return scenario, a, b


def apart():
    """Tokens that are not consecutive."""
    scenario, a, b, partition = handing_over()
    a.ack(partition)
    return scenario, a, b


STATES = [kept, copying, forced, apart, lambda: handing_over(with_policy(mode=Mode.WARM))[:3], g2]


@pytest.mark.parametrize("state", STATES)
def test_a_snapshot_says_what_the_log_says(state):
    scenario = state()[0]
    before = scenario.shard.records()
    compacted(scenario)
    scenario.restart()
    assert scenario.shard.records() == before


def test_a_kept_name_inherits_from_a_snapshot():
    scenario, a, b = kept()
    compacted(scenario)
    scenario.restart()
    b.attach()
    scenario.to(30_000)
    assert len(b.active) == 1
    again = scenario.member(a.name, {"t": 3}, "i-2").attach()
    assert len(again.active) == 2


def test_an_id_of_a_handoff_is_never_used_again():
    """Also if the next owner takes over within the same second."""
    scenario, a, b = g2()
    scenario.to(5_000)
    ids = []
    for _ in range(2):
        scenario.restart()
        a.attach()
        b.attach()
        scenario.to(scenario.now + 200)
        giver, taker = (a, b) if len(a.active) > 1 else (b, a)
        partition = giver.active[0]
        scenario.move(partition, taker)
        ids.append(giver.orders[partition].handoff_id)
        giver.ack(partition)
        compacted(scenario)
    assert ids[0] < ids[1]


def test_the_last_handoff_is_in_the_floor():
    scenario, a, _, partition = handing_over()
    a.ack(partition)
    assert TokenFloor(4, 1) in scenario.shard.records()


def test_a_manifest_is_in_the_snapshot():
    scenario, a, _ = g2()
    (topic, partition), *_ = a.active
    commit = PartitionCommit(topic, partition, 7, token=a.orders[topic, partition].token)
    scenario.send(
        CommitOffsets(
            call_id=scenario.new_call(),
            group_id=GROUP,
            member_id=a.member_id,
            partitions=(commit,),
            manifest=b"files",
        )
    )
    compacted(scenario)
    scenario.restart()
    assert scenario.group.manifest == b"files"


def test_a_large_group_is_listed_in_parts():
    scenario = SessionScenario()
    scenario.member("w-a", {"t": 4_100}).attach()
    scenario.to(100)
    before = scenario.shard.records()
    compacted(scenario)
    scenario.restart()
    assert scenario.shard.records() == before
