"""Scenarios 1-20: admission and JoinGroup basics."""

import pytest

from coordinator.core.group import GroupState
from coordinator.v1 import group_pb2 as pb
from tests.kit import requests
from tests.kit.classic_scenario import GROUP, ClassicScenario, code

RANGE = {
    "group_id": GROUP,
    "session_timeout_ms": 500,
    "rebalance_timeout_ms": 500,
    "protocol_type": "consumer",
    "protocols": [{"name": "range"}],
}


@pytest.fixture
def s() -> ClassicScenario:
    return ClassicScenario()


def test_001_an_empty_group_id_is_refused_and_makes_no_group(s):
    assert code(s.join(group="").response) == "INVALID_GROUP_ID"
    assert s.c.state("") is None


@pytest.mark.parametrize(
    ("srt", "expected"),
    [(9, "INVALID_SESSION_TIMEOUT"), (600_001, "INVALID_SESSION_TIMEOUT"), (10, None),
     (600_000, None)],
)  # fmt: skip
def test_002_session_timeouts_are_held_to_inclusive_bounds(s, srt, expected):
    call = s.join(srt=srt)
    if expected:
        assert code(call.response) == expected
        assert s.state is None
    else:
        assert not call.done


def test_003_a_member_id_of_an_unknown_group_is_unknown(s):
    response = s.join("x").response
    assert (code(response), response.member_id) == ("UNKNOWN_MEMBER_ID", "x")
    assert s.state is None


def test_004_a_strange_member_id_leaves_a_stable_group_alone(s):
    s.f1()
    assert code(s.join("x").response) == "UNKNOWN_MEMBER_ID"
    assert (s.state, s.generation) == ("Stable", 1)


@pytest.mark.parametrize("more", [{"protocol_type": ""}, {"protocols": ()}])
def test_005_a_first_member_names_a_protocol_type_and_a_protocol(s, more):
    response = s.join(**more).response
    assert (code(response), response.member_id) == ("INCONSISTENT_GROUP_PROTOCOL", "")
    assert s.state is None


def test_007_a_member_with_no_common_protocol_is_refused_at_once(s):
    a = s.join()
    assert code(s.join(protocols=("roundrobin",)).response) == "INCONSISTENT_GROUP_PROTOCOL"
    assert not a.done
    s.until(50)
    assert code(a.response) == "NONE"


def test_008_protocols_are_judged_before_identity(s):
    s.f1()
    response = s.join("x", protocols=("other",)).response
    assert code(response) == "INCONSISTENT_GROUP_PROTOCOL"


def test_009_another_protocol_type_is_inconsistent(s):
    s.f1()
    assert code(s.join(protocol_type="connect").response) == "INCONSISTENT_GROUP_PROTOCOL"


def test_a_group_that_has_become_empty_takes_another_protocol_type(s):
    s.leave(s.f1())
    call = s.join(protocol_type="connect")
    s.advance(50)
    assert (code(call.response), s.describe().protocol_type) == ("NONE", "connect")


def test_010_all_hear_the_protocol_and_only_the_leader_hears_of_the_members(s):
    calls = [s.join(), s.join()]
    s.until(100)
    a, b = (call.response for call in calls)
    assert (a.protocol_type, a.protocol_name) == ("consumer", "range")
    assert (b.protocol_type, b.protocol_name) == ("consumer", "range")
    assert a.leader == b.leader == a.member_id
    assert [m.member_id for m in a.members] == [a.member_id, b.member_id]
    assert not b.members


@pytest.mark.parametrize("member_id", ["", "known"])
def test_011_a_dead_group_is_not_available(s, member_id):
    from coordinator.core.group import GroupState

    s.f1()
    s.group().transition_to(GroupState.DEAD, s.c.now_ms)
    response = s.c.send(_join_request(member_id)).response
    assert (code(response), response.member_id) == ("COORDINATOR_NOT_AVAILABLE", member_id)


def _join_request(member_id):

    return requests.join(
        session_timeout_ms=500,
        rebalance_timeout_ms=500,
        member_id=member_id,
        require_known_member_id=True,
    )


def test_013_member_ids_differ_and_begin_with_client_or_instance_id(s):
    calls = [s.join(client_id="spark"), s.join(client_id="spark"), s.join(instance="rack-7")]
    other = s.join(group="h", client_id="spark")
    s.until(200)
    ids = [call.response.member_id for call in [*calls, other]]
    assert len(set(ids)) == 4
    assert [i.split("-")[0] for i in ids] == ["spark", "spark", "rack", "spark"]
    assert ids[2].startswith("rack-7-")


def test_014_an_unchanged_rejoin_while_syncs_are_awaited_is_answered_at_once(s):
    a, b = s.f2()
    c = s.join()
    s.join(a), s.join(b)
    c_id = c.response.member_id
    assert (s.state, s.generation) == ("CompletingRebalance", 3)
    follower = s.join(b).response
    assert (code(follower), follower.generation_id, len(follower.members)) == ("NONE", 3, 0)
    leader = s.join(a).response
    assert (code(leader), leader.generation_id) == ("NONE", 3)
    assert {m.member_id for m in leader.members} == {a, b, c_id}
    assert s.state == "CompletingRebalance"


def test_015_a_changed_rejoin_while_syncs_are_awaited_starts_a_join_phase(s):
    a, b = s.f2()
    c = s.join()
    s.join(a), s.join(b)
    parked = s.sync(b, 3)
    assert not s.join(c.response.member_id, metadata=b"new").done
    assert s.state == "PreparingRebalance"
    assert code(parked.response) == "REBALANCE_IN_PROGRESS"


def test_016_an_unchanged_follower_does_not_rebalance_a_stable_group(s):
    _, b = s.f2()
    response = s.join(b).response
    assert (code(response), response.generation_id) == ("NONE", 2)
    assert (s.state, s.generation) == ("Stable", 2)


def test_017_an_unchanged_leader_rebalances_a_stable_group(s):
    a = s.f1()
    response = s.join(a).response
    assert (code(response), response.generation_id) == ("NONE", 2)
    assert s.state == "CompletingRebalance"


def test_018_a_follower_with_changed_metadata_rebalances_a_stable_group(s):
    a, b = s.f2()
    parked = s.join(b, metadata=b"more topics")
    assert s.state == "PreparingRebalance"
    s.join(a)
    assert parked.response.generation_id == 3


def test_019_a_member_of_an_empty_group_is_unknown(s):
    a = s.f1()
    s.group().state = GroupState.EMPTY  # No request leads here, so no invariant is checked.
    call = s.c.send(pb.JoinGroupRequest(**RANGE, member_id=a))
    assert code(call.response) == "UNKNOWN_MEMBER_ID"


def test_020_a_second_join_of_a_member_takes_the_place_of_the_first(s):
    a, b = s.f2()
    s.join()
    first = s.join(a)
    second = s.join(a)
    assert code(first.response) == "REBALANCE_IN_PROGRESS"
    assert not second.done
    assert s.group().parked_joins == 2
    s.join(b)
    assert (code(second.response), second.response.generation_id) == ("NONE", 3)
