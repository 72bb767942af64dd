"""A snapshot restores a session group as the log does."""

from __future__ import annotations

import pytest

from coordinator.core.values.policy import Mode
from coordinator.core.values.records import TokenFloor
from coordinator.core.values.requests import CommitOffsets, PartitionCommit
from coordinator.runtime.codec import decode, encode
from tests.unit.core.sessions.kit import GROUP, World, g2, handing_over, with_policy


def compacted(world):
    """Have the log hold a snapshot alone."""
    world.records = [decode(encode(record)) for record in world.shard.records()]


def kept():
    world, a, b = g2()
    world.to(5_000)
    a.leave("return", 60_000)
    return world, a, b


def copying():
    world, a, b, partition = handing_over(with_policy(mode=Mode.COPY))
    a.ack(partition, position=70)
    return world, a, b


def forced():
    world, a, b, _ = handing_over()
    world.to(36_000)
    return world, a, b


def apart():
    """Tokens that are not consecutive."""
    world, a, b, partition = handing_over()
    a.ack(partition)
    return world, a, b


STATES = [kept, copying, forced, apart, lambda: handing_over(with_policy(mode=Mode.WARM))[:3], g2]


@pytest.mark.parametrize("state", STATES)
def test_a_snapshot_says_what_the_log_says(state):
    world = state()[0]
    before = world.shard.records()
    compacted(world)
    world.restart()
    assert world.shard.records() == before


def test_a_kept_name_inherits_from_a_snapshot():
    world, a, b = kept()
    compacted(world)
    world.restart()
    b.attach()
    world.to(30_000)
    assert len(b.active) == 1
    again = world.member(a.name, {"t": 3}, "i-2").attach()
    assert len(again.active) == 2


def test_an_id_of_a_handoff_is_never_used_again():
    """Also if the next owner takes over within the same second."""
    world, a, b = g2()
    world.to(5_000)
    ids = []
    for _ in range(2):
        world.restart()
        a.attach()
        b.attach()
        world.to(world.now + 200)
        giver, taker = (a, b) if len(a.active) > 1 else (b, a)
        partition = giver.active[0]
        world.move(partition, taker)
        ids.append(giver.orders[partition].handoff_id)
        giver.ack(partition)
        compacted(world)
    assert ids[0] < ids[1]


def test_the_last_handoff_is_in_the_floor():
    world, a, _, partition = handing_over()
    a.ack(partition)
    assert TokenFloor(4, 1) in world.shard.records()


def test_a_manifest_is_in_the_snapshot():
    world, a, _ = g2()
    (topic, partition), *_ = a.active
    commit = PartitionCommit(topic, partition, 7, token=a.orders[topic, partition].token)
    world.send(
        CommitOffsets(
            call_id=world.new_call(),
            group_id=GROUP,
            member_id=a.member_id,
            partitions=(commit,),
            manifest=b"files",
        )
    )
    compacted(world)
    world.restart()
    assert world.group.manifest == b"files"


def test_a_large_group_is_listed_in_parts():
    world = World()
    world.member("w-a", {"t": 4_100}).attach()
    world.to(100)
    before = world.shard.records()
    compacted(world)
    world.restart()
    assert world.shard.records() == before
