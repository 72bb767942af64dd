"""Scenarios 132-158: offsets; and beyond Kafka, compare-and-set commits."""

import pytest

from coordinator.assignors import Subscription
from coordinator.assignors.consumer_protocol import encode_subscription
from coordinator.core.group import GroupState
from coordinator.v1 import admin_pb2 as admin
from coordinator.v1 import group_pb2 as pb
from tests.kit.classic_scenario import GROUP, ClassicScenario, code, partition_codes

T0 = ("t", 0)
MINUTE = 60_000
DAY = 24 * 60 * MINUTE
RETENTION = 7 * DAY


@pytest.fixture
def s() -> ClassicScenario:
    return ClassicScenario()


def test_132_a_member_commits_in_a_stable_group(s):
    a = s.f1()
    assert s.commit_codes({T0: 7}, member_id=a, generation=1) == ["NONE"]
    assert s.stored(T0) == {T0: 7}


def test_133_a_group_of_offsets_alone(s):
    assert s.commit_codes({T0: 7}) == ["NONE"]
    assert (s.state, s.group().protocol_type) == ("Empty", None)
    assert s.stored(T0) == {T0: 7}


@pytest.mark.parametrize("ids", [{"member_id": "made-up"}, {"instance": "made-up"}])
def test_134_an_empty_group_does_not_ask_who_commits(s, ids):
    assert s.commit_codes({T0: 7}, **ids) == ["NONE"]


def test_135_a_generation_of_an_unknown_group(s):
    codes = s.commit_codes({T0: 7, ("t", 1): 8}, member_id="m", generation=3)
    assert codes == ["GROUP_ID_NOT_FOUND"] * 2
    assert s.state is None


def test_136_outsiders_commit_only_to_an_empty_group(s):
    a = s.f1()
    assert s.commit_codes({T0: 7}) == ["UNKNOWN_MEMBER_ID"]
    s.leave(a)
    assert s.commit_codes({T0: 7}) == ["NONE"]
    assert s.commit_codes({T0: 7}, member_id=a, generation=2) == ["UNKNOWN_MEMBER_ID"]


def test_137_identity_and_generation_are_checked_on_every_partition(s):
    leader, _follower = s.s2()
    offsets = {T0: 1, ("u", 3): 2}
    for wrong, expected in (
        ({"member_id": "x", "generation": 1}, "UNKNOWN_MEMBER_ID"),
        ({"member_id": leader, "generation": 5}, "ILLEGAL_GENERATION"),
        ({"member_id": leader, "generation": 1, "instance": "x"}, "UNKNOWN_MEMBER_ID"),
        ({"member_id": leader, "generation": 1, "instance": "F"}, "FENCED_INSTANCE_ID"),
    ):
        assert s.commit_codes(offsets, **wrong) == [expected] * 2


def test_138_while_syncs_are_awaited_identity_comes_before_the_state(s):
    a = s.f1()
    s.join(a)
    assert s.state == "CompletingRebalance"
    assert s.commit_codes({T0: 1}, member_id=a, generation=2) == ["REBALANCE_IN_PROGRESS"]
    assert s.commit_codes({T0: 1}, member_id=a, generation=1) == ["ILLEGAL_GENERATION"]
    assert s.commit_codes({T0: 1}, member_id="x", generation=2) == ["UNKNOWN_MEMBER_ID"]


def test_139_a_member_that_has_yet_to_rejoin_commits_and_lives(s):
    a = s.f1(srt=500, rt=5000)
    t0 = s.c.now_ms
    s.join(rt=5000)
    s.until(t0 + 400)
    assert s.commit_codes({T0: 9}, member_id=a, generation=1) == ["NONE"]
    s.until(t0 + 899)
    assert a in s.members()


def test_140_a_dead_group_is_not_available(s):
    s.f1()
    s.group().state = GroupState.DEAD
    response = s.c.send(_commit()).response
    assert partition_codes(response) == ["COORDINATOR_NOT_AVAILABLE"]


def _commit():
    return pb.OffsetCommitRequest(
        group_id=GROUP, topics=[{"name": "t", "partitions": [{"committed_offset": 1}]}]
    )


def test_141_metadata_that_is_too_long_costs_its_own_partition_only(s):
    call = s.send(
        pb.OffsetCommitRequest(
            group_id=GROUP,
            topics=[
                {
                    "name": "t",
                    "partitions": [
                        {"partition_index": 0, "committed_metadata": "x" * 4097},
                        {"partition_index": 1, "committed_metadata": "x" * 4096},
                    ],
                }
            ],
        )
    )
    assert partition_codes(call.response) == ["OFFSET_METADATA_TOO_LARGE", "NONE"]
    assert s.stored() == {("t", 1): 0}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("too_large", "UNKNOWN_SERVER_ERROR"), ("full", "COORDINATOR_NOT_AVAILABLE")],
)
def test_142_a_refused_commit_leaves_the_old_offset(s, kind, expected):
    s.commit({T0: 1})
    s.c.fail_next_append(kind)
    assert s.commit_codes({T0: 2, ("t", 1): 5}) == [expected] * 2
    assert s.stored(T0, ("t", 1)) == {T0: 1, ("t", 1): -1}
    assert s.commit_codes({T0: 3}) == ["NONE"]
    assert s.stored(T0) == {T0: 3}


def test_142_a_group_made_for_a_commit_that_failed_is_gone(s):
    s.c.fail_next_append("full")
    s.commit({T0: 2})
    assert s.state is None


def test_143_what_is_not_stored_reads_as_minus_one(s):
    response = s.fetch(T0).response
    (topic,) = response.topics
    (p,) = topic.partitions
    assert (p.committed_offset, p.committed_leader_epoch, p.metadata, code(p)) == (
        -1,
        -1,
        "",
        "NONE",
    )
    assert not s.fetch().response.topics
    s.commit({("t", 1): 5, ("u", 0): 6})
    assert s.stored() == {("t", 1): 5, ("u", 0): 6}


def test_144_results_come_in_the_order_of_the_request(s):
    offsets = {("z", 5): 1, ("a", 9): 2, ("a", 3): 3}
    response = s.commit(offsets).response
    listed = [(t.name, p.partition_index) for t in response.topics for p in t.partitions]
    assert listed == list(offsets)
    fetched = s.fetch(*offsets).response
    listed = [(t.name, p.partition_index) for t in fetched.topics for p in t.partitions]
    assert listed == list(offsets)


def test_145_epoch_and_metadata_round_trip_and_offsets_may_go_back(s):
    s.commit({T0: 10}, metadata="m", epoch=4)
    p = s.fetch(T0).response.topics[0].partitions[0]
    assert (p.committed_offset, p.committed_leader_epoch, p.metadata) == (10, 4, "m")
    assert s.commit_codes({T0: 3}) == ["NONE"]
    assert s.stored(T0) == {T0: 3}


def test_a_commit_is_seen_when_it_is_durable(s):
    s.commit({T0: 1})
    s.c.hold_appends()
    call = s.commit({T0: 2})
    assert not call.done
    assert s.stored(T0) == {T0: 1}
    stable = s.fetch(T0, require_stable=True)
    assert not stable.done
    s.c.release_appends()
    assert code(call.response.topics[0].partitions[0]) == "NONE"
    assert stable.response.topics[0].partitions[0].committed_offset == 2


# --- Beyond Kafka -------------------------------------------------------------------------------


def test_compare_and_set(s):
    assert s.commit_codes({T0: 5}, expected={T0: -1}) == ["NONE"]
    response = s.commit({T0: 9}, expected={T0: 4}).response
    assert partition_codes(response) == ["OFFSET_MISMATCH"]
    assert response.topics[0].partitions[0].committed_offset == 5
    assert response.error_message
    assert s.commit_codes({T0: 9}, expected={T0: 5}) == ["NONE"]
    assert s.stored(T0) == {T0: 9}


def test_an_atomic_commit_is_all_or_nothing(s):
    s.commit({T0: 5, ("t", 1): 6})
    offsets = {T0: 7, ("t", 1): 8}
    response = s.commit(offsets, expected={T0: 5, ("t", 1): 0}, atomic=True).response
    assert partition_codes(response) == ["OFFSET_MISMATCH"] * 2
    assert [p.committed_offset for p in response.topics[0].partitions] == [5, 6]
    assert s.stored() == {T0: 5, ("t", 1): 6}


def test_a_commit_that_requires_an_empty_group_is_refused_while_it_has_members(s):
    request = {"expected": {T0: -1}, "atomic": True, "requires_empty": True}
    a = s.f1()
    response = s.commit({T0: 5}, **request).response
    assert partition_codes(response) == ["NON_EMPTY_GROUP"]
    assert "stop the group's members" in response.error_message
    assert s.commit_codes({T0: 5}, member_id=a, generation=1, requires_empty=True) == [
        "NON_EMPTY_GROUP"
    ]
    assert s.commit_codes({T0: 5}, expected={T0: -1}, atomic=True) == ["NONE"]  # Not required.
    s.leave(a)
    assert s.commit_codes({T0: 6}, expected={T0: 5}, atomic=True, requires_empty=True) == ["NONE"]
    assert s.commit_codes({T0: 1}, group="new", requires_empty=True) == ["NONE"]


def test_of_two_racing_compare_and_sets_one_wins(s):
    s.commit({T0: 5})
    s.c.hold_appends()
    first = s.commit({T0: 6}, expected={T0: 5}, manifest=b"first")
    second = s.commit({T0: 7}, expected={T0: 5}, manifest=b"second")
    s.c.release_appends()
    assert partition_codes(first.response) == ["NONE"]
    assert partition_codes(second.response) == ["OFFSET_MISMATCH"]
    assert s.fetch().response.manifest == b"first"


def test_a_manifest_lives_as_long_as_its_commit_and_has_a_limit(s):
    assert s.commit_codes({T0: 1}, manifest=b"files") == ["NONE"]
    s.commit({T0: 2})
    assert s.fetch(T0).response.manifest == b"files"
    assert s.commit_codes({T0: 3}, manifest=b"x" * 65_537) == ["INVALID_REQUEST"]
    s.restart()
    assert s.fetch(T0).response.manifest == b"files"


# --- Expiration (KIP-211) -----------------------------------------------------------------------


def consumer(topics=("t",)) -> bytes:
    return encode_subscription(Subscription(topics=tuple(topics)))


def test_150_offsets_of_a_simple_group_age_from_their_commit(s):
    s.commit({T0: 1})
    s.until(RETENTION - 1)
    assert s.stored(T0) == {T0: 1}
    s.until(RETENTION + 10 * MINUTE)
    assert s.stored(T0) == {T0: -1}
    assert s.state is None


def test_151_offsets_of_a_group_age_from_when_it_became_empty():
    s = ClassicScenario(group_max_session_timeout_ms=20 * DAY)
    a = s.f1(srt=20 * DAY)
    s.commit({T0: 1}, member_id=a, generation=1)
    s.until(15 * DAY)
    assert s.stored(T0) == {T0: 1}
    s.leave(a)
    s.until(15 * DAY + RETENTION - 20 * MINUTE)
    assert s.stored(T0) == {T0: 1}
    s.until(15 * DAY + RETENTION + 10 * MINUTE)
    assert s.stored(T0) == {T0: -1}
    assert s.state is None


def test_152_nothing_expires_while_a_group_rebalances():
    s = ClassicScenario(
        group_max_session_timeout_ms=2_000_000_000, group_initial_rebalance_delay_ms=0
    )
    a = s.f1(srt=2_000_000_000, rt=2_000_000_000)
    s.commit({T0: 1}, member_id=a, generation=1)
    s.join(srt=2_000_000_000, rt=2_000_000_000, instance="w")
    s.until(RETENTION * 2)
    assert s.state == "PreparingRebalance"
    assert s.stored(T0) == {T0: 1}


def test_153_a_live_group_keeps_what_it_reads_and_drops_what_it_does_not():
    s = ClassicScenario(group_max_session_timeout_ms=2_000_000_000)
    a = s.f1(srt=2_000_000_000, metadata=consumer(["t"]))
    s.commit({T0: 1, ("left", 0): 2}, member_id=a, generation=1)
    s.until(RETENTION + 20 * MINUTE)
    assert s.stored() == {T0: 1}


@pytest.mark.parametrize("more", [{"protocol_type": "connect"}, {"metadata": b"\xff"}])
def test_154_what_cannot_be_read_does_not_expire(more):
    s = ClassicScenario(group_max_session_timeout_ms=2_000_000_000)
    a = s.f1(srt=2_000_000_000, **more)
    s.commit({T0: 1}, member_id=a, generation=1)
    s.until(RETENTION * 2)
    assert s.stored() == {T0: 1}


# --- Deletion -----------------------------------------------------------------------------------


def delete(s: ClassicScenario, *groups) -> list[str]:
    call = s.send(admin.DeleteGroupsRequest(groups_names=groups))
    return [(r.group_id, code(r)) for r in call.response.results]


def test_157_groups_are_deleted_when_empty(s):
    s.f1()
    s.commit({T0: 1}, group="h")
    assert delete(s, "x", GROUP, "h", "h") == [
        ("x", "GROUP_ID_NOT_FOUND"),
        (GROUP, "NON_EMPTY_GROUP"),
        ("h", "NONE"),
    ]
    assert s.stored(T0, group="h") == {T0: -1}
    s.restart()
    assert s.c.state("h") is None


def offset_delete(*partitions, group=GROUP):
    topics: dict = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append({"partition_index": partition})
    return admin.OffsetDeleteRequest(
        group_id=group, topics=[{"name": t, "partitions": p} for t, p in topics.items()]
    )


def delete_offsets(s: ClassicScenario, *partitions, group=GROUP):
    return s.send(offset_delete(*partitions, group=group)).response


def test_offsets_that_a_member_reads_are_not_deleted(s):
    assert code(delete_offsets(s, T0)) == "GROUP_ID_NOT_FOUND"
    a = s.f1(metadata=consumer(["t"]))
    s.commit({T0: 1, ("u", 0): 2}, member_id=a, generation=1)
    response = delete_offsets(s, T0, ("u", 0), ("u", 1))
    assert partition_codes(response) == ["GROUP_SUBSCRIBED_TO_TOPIC", "NONE", "NONE"]
    assert s.stored() == {T0: 1}
    s.leave(a)
    assert partition_codes(delete_offsets(s, T0)) == ["NONE"]
    assert s.stored() == {}


def test_a_group_of_another_type_keeps_its_offsets_while_it_has_members(s):
    s.f1(protocol_type="connect")
    assert code(delete_offsets(s, T0)) == "NON_EMPTY_GROUP"


@pytest.mark.parametrize("fate", ["stored", "refused"])
def test_offsets_are_deleted_after_the_commits_of_them_that_are_in_flight(s, fate):
    s.commit({("u", 0): 1})
    s.c.hold_appends()
    commit = s.commit({T0: 7})
    delete = s.send(offset_delete(T0))
    assert not delete.done
    if fate == "refused":
        s.c.fail_next_append("too_large")
    s.c.release_appends()
    refused = ["UNKNOWN_SERVER_ERROR"] if fate == "refused" else ["NONE"]
    assert partition_codes(commit.response) == refused
    assert partition_codes(delete.response) == ["NONE"]
    assert s.stored() == {("u", 0): 1}
    s.restart()
    assert s.stored() == {("u", 0): 1}


def test_a_deletion_that_the_log_refuses_is_answered_with_the_error_and_deletes_nothing(s):
    s.commit({T0: 1})
    s.c.fail_next_append("too_large")
    assert delete(s, GROUP) == [(GROUP, "UNKNOWN_SERVER_ERROR")]
    s.c.fail_next_append("too_large")
    assert code(delete_offsets(s, T0)) == "UNKNOWN_SERVER_ERROR"
    assert s.stored() == {T0: 1}
