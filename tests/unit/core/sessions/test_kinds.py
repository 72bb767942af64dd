"""Kinds of groups: the log decides which of two protocols an Empty group speaks."""

from __future__ import annotations

from coordinator.core.sessions.group import SessionGroup
from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.records import GroupDeleted
from coordinator.core.values.requests import DeleteGroup, SetGroupPolicy
from coordinator.shard.inputs import AppendFailure
from tests.kit import commands
from tests.kit.session_scenario import GROUP, SessionScenario, g1, g2


def join(scenario: SessionScenario, member_id: str = "", *, known: bool = False):
    """The answer to a classic JoinGroup; None: it is parked."""
    call = scenario.new_call()
    scenario.send(commands.join(call, GROUP, member_id=member_id, require_known_member_id=known))
    return call


def test_a_join_waits_for_the_admission_of_a_session_member():
    scenario = SessionScenario()
    scenario.hold()
    a = scenario.member("w-a", {"t": 4}).attach()
    call = join(scenario)
    assert call not in scenario.replies
    scenario.release()
    assert a.reply.error is ErrorCode.NONE
    assert scenario.replies[call].error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_join_goes_on_if_the_admission_is_refused():
    scenario = SessionScenario()
    scenario.hold()
    a = scenario.member("w-a", {"t": 4}).attach()
    call = join(scenario)
    scenario.release(failing=AppendFailure.TOO_LARGE)
    assert a.reply.error is not ErrorCode.NONE
    assert call not in scenario.replies, "parked: the group is classic"
    assert not isinstance(scenario.shard.machine.groups[GROUP], SessionGroup)


def test_a_classic_id_that_is_only_pending_makes_no_group_classic():
    scenario = SessionScenario()
    call = join(scenario, known=True)
    pending = scenario.replies[call]
    assert pending.error is ErrorCode.MEMBER_ID_REQUIRED
    a = scenario.member("w-a", {"t": 4}).attach()
    assert a.reply.error is ErrorCode.NONE
    second = join(scenario, pending.member_id, known=True)
    assert scenario.replies[second].error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_group_that_keeps_something_for_a_name_is_of_sessions():
    scenario, a = g1()
    a.leave("return", 60_000)
    call = join(scenario)
    assert scenario.replies[call].error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    scenario.to(60_200)
    assert join(scenario) not in scenario.replies


def test_a_refused_attach_leaves_a_classic_group_as_it_is():
    scenario = SessionScenario()
    join(scenario, known=True)
    bad = scenario.member("w-a", {"t": -4}).attach()
    assert bad.reply.error is ErrorCode.INVALID_REQUEST
    assert not isinstance(scenario.shard.machine.groups[GROUP], SessionGroup)


def test_offsets_policy_and_tokens_outlive_the_members():
    scenario, a, b = g2()
    scenario.to(1_000)
    for member in (a, b):
        partition = member.active[0]
        member.commit(7, partition)
        member.leave("now")
    highest = scenario.shard.machine.numbers.last_token
    policy = scenario.group.policy
    join(scenario)
    assert len(scenario.shard.machine.groups[GROUP].offsets) == 2
    assert scenario.shard.machine.groups[GROUP].policy == policy
    scenario.to(30_000)
    c = scenario.member("w-c", {"t": 3}, "i-c").attach()
    scenario.to(31_000)
    assert c.reply.error is ErrorCode.NONE
    assert min(token for *_, token in c.held) > highest


def held_over_the_offset_check(scenario: SessionScenario) -> None:
    """Hold what is in flight until the shard has looked for groups that are left with nothing."""
    scenario.to(scenario.now + scenario.config.offsets_retention_check_interval_ms + 1_000)


def deletion_in_flight() -> SessionScenario:
    """A group whose deletion the offset check has sent to the log."""
    scenario = SessionScenario(offsets_retention_minutes=1)
    scenario.member("w-a", {"t": 4}).attach().leave("now")
    scenario.to(1_000)
    scenario.hold()
    held_over_the_offset_check(scenario)
    assert [type(record) for record in scenario.held[0].records] == [GroupDeleted]
    return scenario


def test_a_group_is_not_deleted_while_a_member_arrives():
    scenario = SessionScenario()
    scenario.hold()
    a = scenario.member("w-a", {"t": 4}).attach()
    held_over_the_offset_check(scenario)
    scenario.release()
    scenario.to(scenario.now + 30_000)
    assert len(a.active) == 4
    assert not any(isinstance(record, GroupDeleted) for record in scenario.records)


def test_a_member_that_comes_during_a_deletion_waits_for_it():
    scenario = deletion_in_flight()
    b = scenario.member("w-b", {"t": 4}).attach()
    scenario.release()
    assert b.reply.error is ErrorCode.NONE
    scenario.to(scenario.now + 30_000)
    assert len(b.active) == 4, "it is heard on its stream, and its lease goes on"
    assert scenario.group.is_policy_stored, "its wishes are the policy of the new group"


def test_a_member_comes_although_the_log_refuses_the_deletion():
    scenario = deletion_in_flight()
    b = scenario.member("w-b", {"t": 4}).attach()
    scenario.release(failing=AppendFailure.TOO_LARGE)
    scenario.to(scenario.now + 30_000)
    assert len(b.active) == 4


def test_a_deletion_is_asked_for_once():
    scenario = deletion_in_flight()
    held_over_the_offset_check(scenario)
    scenario.release()
    assert sum(isinstance(record, GroupDeleted) for record in scenario.records) == 1
    assert GROUP not in scenario.shard.machine.groups


def test_an_operator_does_not_delete_a_group_whose_member_arrives():
    scenario = SessionScenario()
    scenario.hold()
    a = scenario.member("w-a", {"t": 4}).attach()
    call = scenario.new_call()
    scenario.send(DeleteGroup(call_id=call, group_id=GROUP))
    scenario.release()
    assert scenario.replies[call].error is ErrorCode.NON_EMPTY_GROUP
    scenario.to(scenario.now + 30_000)
    assert len(a.active) == 4
    assert scenario.group.is_policy_stored


def test_a_policy_outlives_the_offset_check_that_met_it_on_its_way():
    scenario = SessionScenario()
    scenario.hold()
    call = scenario.new_call()
    change = SetGroupPolicy(call_id=call, group_id=GROUP, changes=(("lease_ms", 8_000),))
    scenario.send(change)
    held_over_the_offset_check(scenario)
    scenario.release()
    assert scenario.group.policy.lease_ms == 8_000
    assert scenario.group.is_policy_stored


def test_nothing_is_left_of_a_group_that_is_deleted_after_its_policy():
    scenario = SessionScenario()
    scenario.hold()
    scenario.send(
        SetGroupPolicy(call_id=scenario.new_call(), group_id=GROUP, changes=(("lease_ms", 8_000),))
    )
    scenario.send(DeleteGroup(call_id=scenario.new_call(), group_id=GROUP))
    scenario.release()
    assert GROUP not in scenario.shard.machine.groups
