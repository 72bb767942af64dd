"""Beyond Kafka: members tell where the logs end, so that lag can be seen."""

from __future__ import annotations

import pytest

from coordinator.v1 import admin_pb2 as admin
from coordinator.v1 import group_pb2 as pb
from tests.kit.classic_scenario import GROUP, ClassicScenario, code

T0, T1 = ("t", 0), ("t", 1)


@pytest.fixture
def s() -> ClassicScenario:
    return ClassicScenario()


def report(s: ClassicScenario, ends: dict[tuple[str, int], int], **who) -> str:
    topics = [
        {"name": t, "partitions": [{"partition_index": p, "log_end_offset": end}]}
        for (t, p), end in ends.items()
    ]
    who = {"group_id": GROUP, **who}
    return code(s.send(pb.ReportLogEndsRequest(topics=topics, **who)).response)


def known(s: ClassicScenario) -> dict[tuple[str, int], tuple[int, int]]:
    """(end, when it was told) by partition."""
    response = s.send(admin.ListLogEndsRequest(group_id=GROUP)).response
    assert code(response) == "NONE"
    return {
        (t.name, p.partition_index): (p.log_end_offset, p.reported_at_ms)
        for t in response.topics
        for p in t.partitions
    }


def test_the_last_word_counts_with_its_time(s):
    a = s.f1()
    assert known(s) == {}
    assert report(s, {T0: 10, T1: 20}, member_id=a, generation_id=1) == "NONE"
    first = s.c.now_ms
    s.advance(100)
    assert s.beat(a, 1) == "NONE"
    assert report(s, {T0: 15}, member_id=a, generation_id=1) == "NONE"
    assert known(s) == {T0: (15, first + 100), T1: (20, first)}


def test_only_members_of_the_generation_tell(s):
    assert report(s, {T0: 1}, member_id="m", generation_id=1) == "UNKNOWN_MEMBER_ID"
    a = s.f1()
    assert report(s, {T0: 1}, member_id="x", generation_id=1) == "UNKNOWN_MEMBER_ID"
    assert report(s, {T0: 1}, member_id=a, generation_id=7) == "ILLEGAL_GENERATION"
    assert report(s, {T0: 1}, member_id=a, generation_id=1, group_id="") == "INVALID_GROUP_ID"
    assert known(s) == {}


def test_a_report_is_no_sign_of_life(s):
    a = s.f1()
    s.advance(499)
    assert report(s, {T0: 1}, member_id=a, generation_id=1) == "NONE"
    s.advance(10)
    assert s.state == "Empty"


def test_what_was_told_outlives_its_member_and_goes_with_its_offset(s):
    a = s.f1()
    s.commit({T0: 5, T1: 5}, member_id=a, generation=1)
    report(s, {T0: 9, T1: 9}, member_id=a, generation_id=1)
    s.leave(a)
    assert set(known(s)) == {T0, T1}
    topic = {"name": "t", "partitions": [{"partition_index": 0}]}
    s.send(admin.OffsetDeleteRequest(group_id=GROUP, topics=[topic]))
    assert set(known(s)) == {T1}


def test_a_group_that_is_not_there_has_no_ends(s):
    response = s.send(admin.ListLogEndsRequest(group_id="nobody")).response
    assert code(response) == "GROUP_ID_NOT_FOUND"
