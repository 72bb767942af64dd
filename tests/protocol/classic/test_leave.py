"""Scenarios 96-104: LeaveGroup."""

import pytest

from coordinator.core.group import GroupState
from coordinator.v1 import admin_pb2 as admin
from tests.kit.classic_scenario import GROUP, ClassicScenario, code


@pytest.fixture
def s() -> ClassicScenario:
    return ClassicScenario()


def test_096_a_stranger_cannot_leave(s):
    a = s.f1()
    assert s.leave_codes("x") == ["UNKNOWN_MEMBER_ID"]
    assert (s.state, s.members()) == ("Stable", [a])


def test_097_unknown_dead_and_foreign_groups(s):
    response = s.leave("a", "b")
    assert code(response) == "NONE"
    assert [code(m) for m in response.members] == ["UNKNOWN_MEMBER_ID"] * 2
    a = s.f1()
    s.group().state = GroupState.DEAD
    response = s.c.send(_leave(a)).response
    assert (code(response), len(response.members)) == ("COORDINATOR_NOT_AVAILABLE", 0)


def test_097_a_foreign_shard_sends_away(s):
    a = s.f1()
    s.c.fail_next_append("fenced")
    s.commit({("t", 0): 1}, member_id=a, generation=1)
    response = s.leave(a)
    assert (code(response), len(response.members)) == ("NOT_COORDINATOR", 0)


def _leave(member_id):
    from coordinator.v1 import group_pb2 as pb

    return pb.LeaveGroupRequest(group_id="g", members=[{"member_id": member_id}])


def test_098_the_last_member_leaves_an_empty_group_behind(s):
    a = s.f1()
    assert s.leave_codes(a) == ["NONE"]
    assert (s.state, s.generation) == ("Empty", 2)
    group = s.group()
    assert group.protocol_name is None
    assert (group.committed.generation, group.committed.members) == (2, ())


def test_099_a_parked_join_of_a_leaver_is_answered(s):
    _a, b = s.f2()
    s.join()
    parked = s.join(b)
    assert s.leave_codes(b) == ["NONE"]
    assert (code(parked.response), parked.response.member_id) == ("UNKNOWN_MEMBER_ID", "")


def test_099_a_parked_sync_of_a_leaver_is_answered(s):
    members, _ = s.n3()
    parked = s.sync(members[1], 1)
    assert s.leave_codes(members[1]) == ["NONE"]
    assert code(parked.response) == "UNKNOWN_MEMBER_ID"


def test_100_static_members_leave_by_instance_id(s):
    s.s2()
    assert s.leave_codes(("wrong", "L")) == ["FENCED_INSTANCE_ID"]
    assert s.leave_codes(("", None)) == ["UNKNOWN_MEMBER_ID"]
    assert s.leave_codes(("", "L")) == ["NONE"]


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        ([("", "L"), ("", "F")], ["NONE", "NONE"]),
        ([("", "L"), ("wrong", "F")], ["NONE", "FENCED_INSTANCE_ID"]),
        ([("", "unknown"), ("", "F")], ["UNKNOWN_MEMBER_ID", "NONE"]),
    ],
)
def test_101_a_batch_gives_each_its_own_result(s, batch, expected):
    s.s2()
    response = s.leave(*batch)
    assert [code(m) for m in response.members] == expected
    assert [(m.member_id, m.group_instance_id) for m in response.members] == batch


def test_103_a_batch_causes_one_rebalance(s):
    a, b = s.f2()
    c_call = s.join()
    s.join(a), s.join(b)
    c = c_call.response.member_id
    s.sync(a, 3, {}), s.sync(b, 3), s.sync(c, 3)
    assert s.leave_codes(b, c) == ["NONE", "NONE"]
    assert (s.state, s.generation) == ("PreparingRebalance", 3)
    assert s.join(a).response.generation_id == 4
    starts = [e for _, e in s.c.events if type(e).__name__ == "RebalanceStarted"]
    assert [e.generation for e in starts].count(3) == 1


def test_104_a_leaver_may_complete_a_join_phase(s):
    a, b = s.f2()
    c = s.join()
    parked = s.join(a)
    assert not parked.done
    assert s.leave_codes(b) == ["NONE"]
    assert parked.response.generation_id == c.response.generation_id == 3


# --- An operator removes members --------------------------------------------------------------


def remove(s: ClassicScenario, *members: dict, group: str = GROUP, reason: str = ""):
    request = admin.RemoveMembersRequest(group_id=group, members=members, reason=reason)
    return s.send(request).response


def test_an_operator_removes_members_by_either_id_in_one_rebalance(s):
    leader, follower = s.s2()
    gone = remove(
        s,
        {"member_id": leader},
        {"group_instance_id": "F"},
        {"member_id": "nobody"},
        {"group_instance_id": "nobody"},
        {},
    )
    assert code(gone) == "NONE"
    assert [code(m) for m in gone.members] == ["NONE"] * 2 + ["UNKNOWN_MEMBER_ID"] * 3
    assert [(m.member_id, m.group_instance_id) for m in gone.members[:2]] == [
        (leader, ""),
        ("", "F"),
    ]
    assert s.state == "Empty"
    assert s.beat(follower, 1, instance="F") == "UNKNOWN_MEMBER_ID"


def test_a_member_that_an_operator_removed_may_join_again(s):
    a, b = s.f2()
    assert [code(m) for m in remove(s, {"member_id": b}).members] == ["NONE"]
    assert s.state == "PreparingRebalance"
    again = s.join()
    assert s.join(a).response.generation_id == 3
    assert again.response.generation_id == 3


def test_an_operator_hears_that_there_is_no_group(s):
    response = remove(s, {"member_id": "m"}, group="nobody")
    assert (code(response), len(response.members)) == ("GROUP_ID_NOT_FOUND", 0)
    assert s.c.state("nobody") is None


# --- A client that goes away --------------------------------------------------------------------


def test_a_new_member_goes_with_its_call(s):
    a, b = s.f2()
    c = s.join()
    parked = [s.join(a), s.join(b, metadata=b"x")]
    assert parked[0].done  # All three had joined.
    d = s.join()
    d.cancel()
    assert len(s.members()) == 3
    assert not d.done
    assert c.done


def test_a_known_member_whose_join_call_breaks_keeps_its_session(s):
    _a, b = s.f2()
    t0 = s.c.now_ms
    s.join(rt=5000, srt=5000)
    s.until(t0 + 100)
    s.join(b).cancel()
    assert (b in s.members(), s.group().parked_joins) == (True, 1)
    s.until(t0 + 499)
    assert b in s.members()
    s.until(t0 + 500)
    assert b not in s.members()


@pytest.mark.parametrize("parked_ms", [500, 1000])
def test_a_session_that_was_spent_while_parked_starts_anew_when_the_call_breaks(s, parked_ms):
    a, b = s.f2(rt=5000)
    t0 = s.c.now_ms
    s.join(rt=5000, srt=5000)
    parked = s.join(b, rt=5000)
    for at in range(100, parked_ms + 500, 100):  # A's heartbeats keep the join phase open.
        s.until(t0 + at)
        s.beat(a, 2)
        if at == parked_ms:
            parked.cancel()
    s.until(t0 + parked_ms + 499)
    assert b in s.members()
    s.until(t0 + parked_ms + 500)
    assert b not in s.members()


def test_a_sync_whose_call_breaks_keeps_the_member(s):
    members, t0 = s.n3()
    s.until(t0 + 100)
    s.sync(members[1], 1).cancel()
    assert s.deadline(members[1]) == t0 + 600
    s.sync(members[0], 1, {members[1]: b"x"})
    assert s.sync(members[1], 1).response.assignment == b"x"


def test_a_member_whose_sync_call_broke_expires(s):
    a, b = s.f2(rt=5000)
    c = s.join(rt=5000, srt=1500)
    for member_id in (a, b):
        s.join(member_id, rt=5000)
    t0 = s.c.now_ms
    parked = s.sync(b, 3)
    s.until(t0 + 499)
    s.beat(a, 3)
    s.until(t0 + 900)
    s.beat(a, 3)
    parked.cancel()
    s.until(t0 + 1300)
    s.beat(a, 3)
    s.until(t0 + 1399)
    assert b in s.members()
    s.until(t0 + 1400)
    assert s.members() == [a, c.response.member_id]


def test_kafka_parity_ignores_clients_that_go_away():
    s = ClassicScenario(group_notice_cancelled_calls=False)
    call = s.join()
    call.cancel()
    s.until(50)
    assert (s.state, len(s.members())) == ("CompletingRebalance", 1)
