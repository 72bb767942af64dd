"""Thousands of loaded groups: all serve at once, and come to life one by one."""

from __future__ import annotations

from coordinator.core.config import GroupConfig
from coordinator.core.values.ids import CallId
from coordinator.core.values.records import GroupMetadata, MemberRecord, OffsetCommitted
from coordinator.core.values.requests import DescribeGroup, Heartbeat, ListGroups
from coordinator.runtime.payloads import PAYLOADS
from coordinator.shard.inputs import Activate, Tick
from coordinator.shard.shard import ACTIVATE_SLICE, Shard
from coordinator.testing.virtual import CountingIds
from tests.kit.steps import restored, stepped

SESSION_MS = 10_000
GROUPS = 3 * ACTIVATE_SLICE
LAST = f"g{GROUPS - 1}"


def group(n: int) -> GroupMetadata:
    member = MemberRecord(f"m{n}", None, "c", "/h", 20_000, SESSION_MS, b"", b"mine")
    return GroupMetadata(f"g{n}", 5, "work", "range", f"m{n}", 0, (member,))


def loaded() -> tuple[Shard, object]:
    shard = Shard(GroupConfig(), CountingIds(), PAYLOADS, now_ms=0)
    shard.replay(map(group, range(GROUPS)), 0)
    shard.replay([OffsetCommitted(LAST, "t", 0, 9, -1, "", 0, None)], 0)
    return shard, restored(shard, 1_000, sequence=1, next_offset=GROUPS)


def beat(n: int) -> Heartbeat:
    return Heartbeat(call_id=CallId(n + 1), group_id=f"g{n}", generation=5, member_id=f"m{n}")


def test_a_group_that_sleeps_yet_answers_as_if_it_did_not():
    shard, _ = loaded()
    assert not shard.is_active
    ((_, reply),) = stepped(shard, beat(GROUPS - 1), 1_001).replies
    assert reply.error.name == "NONE"
    asked = DescribeGroup(call_id=CallId(1), group_id=f"g{GROUPS - 2}")
    ((_, reply),) = stepped(shard, asked, 1_001).replies
    assert [member.assignment for member in reply.members] == [b"mine"]


def test_a_list_shows_sleeping_groups_as_they_are():
    shard, _ = loaded()
    ((_, reply),) = stepped(shard, ListGroups(call_id=CallId(1)), 1_001).replies
    assert {(g.state, g.member_count) for g in reply.groups} == {("Stable", 1)}
    assert len(reply.groups) == GROUPS
    assert shard.stats().groups == {"Stable": GROUPS}


def test_all_come_to_life_and_every_session_begins_in_full():
    shard, _ = loaded()
    now_ms = 1_000
    stepped(shard, Tick(), now_ms)
    assert shard.stats().members == ACTIVATE_SLICE, "time alone brings nobody to life"
    while not shard.is_active:
        stepped(shard, Activate(), now_ms)
    assert shard.stats().members == GROUPS
    assert shard.stats().delayed["heartbeat"] == GROUPS
    now_ms += SESSION_MS - 1
    stepped(shard, Tick(), now_ms)
    assert shard.stats().members == GROUPS
    stepped(shard, Tick(), now_ms + 1)
    assert shard.stats().members == 0, "nobody has been heard of"


def test_what_is_durable_is_the_same_asleep_and_awake():
    shard, _ = loaded()
    asleep = shard.records()
    while not shard.is_active:
        stepped(shard, Activate(), 1_000)
    assert shard.records() == asleep
