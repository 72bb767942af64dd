"""Kinds of groups: the log decides which of two protocols an Empty group speaks."""

from __future__ import annotations

from coordinator.core.sessions.group import SessionGroup
from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.records import GroupDeleted
from coordinator.core.values.requests import DeleteGroup, SetGroupPolicy
from coordinator.shard.inputs import AppendFailure
from tests.kit import commands
from tests.unit.core.sessions.kit import GROUP, World, g1, g2


def join(world: World, member_id: str = "", *, known: bool = False):
    """The answer to a classic JoinGroup; None: it is parked."""
    call = world.new_call()
    world.send(commands.join(call, GROUP, member_id=member_id, require_known_member_id=known))
    return call


def test_a_join_waits_for_the_admission_of_a_session_member():
    world = World()
    world.hold()
    a = world.member("w-a", {"t": 4}).attach()
    call = join(world)
    assert call not in world.replies
    world.release()
    assert a.reply.error is ErrorCode.NONE
    assert world.replies[call].error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_join_goes_on_if_the_admission_is_refused():
    world = World()
    world.hold()
    a = world.member("w-a", {"t": 4}).attach()
    call = join(world)
    world.release(failing=AppendFailure.TOO_LARGE)
    assert a.reply.error is not ErrorCode.NONE
    assert call not in world.replies, "parked: the group is classic"
    assert not isinstance(world.shard.machine.groups[GROUP], SessionGroup)


def test_a_classic_id_that_is_only_pending_makes_no_group_classic():
    world = World()
    call = join(world, known=True)
    pending = world.replies[call]
    assert pending.error is ErrorCode.MEMBER_ID_REQUIRED
    a = world.member("w-a", {"t": 4}).attach()
    assert a.reply.error is ErrorCode.NONE
    second = join(world, pending.member_id, known=True)
    assert world.replies[second].error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_group_that_keeps_something_for_a_name_is_of_sessions():
    world, a = g1()
    a.leave("return", 60_000)
    call = join(world)
    assert world.replies[call].error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    world.to(60_200)
    assert join(world) not in world.replies


def test_a_refused_attach_leaves_a_classic_group_as_it_is():
    world = World()
    join(world, known=True)
    bad = world.member("w-a", {"t": -4}).attach()
    assert bad.reply.error is ErrorCode.INVALID_REQUEST
    assert not isinstance(world.shard.machine.groups[GROUP], SessionGroup)


def test_offsets_policy_and_tokens_outlive_the_members():
    world, a, b = g2()
    world.to(1_000)
    for member in (a, b):
        partition = member.active[0]
        member.commit(7, partition)
        member.leave("now")
    highest = world.shard.machine.numbers.last_token
    policy = world.group.policy
    join(world)
    assert len(world.shard.machine.groups[GROUP].offsets) == 2
    assert world.shard.machine.groups[GROUP].policy == policy
    world.to(30_000)
    c = world.member("w-c", {"t": 3}, "i-c").attach()
    world.to(31_000)
    assert c.reply.error is ErrorCode.NONE
    assert min(token for *_, token in c.held) > highest


def held_over_the_offset_check(world: World) -> None:
    """Hold what is in flight until the shard has looked for groups that are left with nothing."""
    world.to(world.now + world.config.offsets_retention_check_interval_ms + 1_000)


def deletion_in_flight() -> World:
    """A group whose deletion the offset check has sent to the log."""
    world = World(offsets_retention_minutes=1)
    world.member("w-a", {"t": 4}).attach().leave("now")
    world.to(1_000)
    world.hold()
    held_over_the_offset_check(world)
    assert [type(each) for each in world.held[0].records] == [GroupDeleted]
    return world


def test_a_group_is_not_deleted_while_a_member_arrives():
    world = World()
    world.hold()
    a = world.member("w-a", {"t": 4}).attach()
    held_over_the_offset_check(world)
    world.release()
    world.to(world.now + 30_000)
    assert len(a.active) == 4
    assert not any(isinstance(each, GroupDeleted) for each in world.records)


def test_a_member_that_comes_during_a_deletion_waits_for_it():
    world = deletion_in_flight()
    b = world.member("w-b", {"t": 4}).attach()
    world.release()
    assert b.reply.error is ErrorCode.NONE
    world.to(world.now + 30_000)
    assert len(b.active) == 4, "it is heard on its stream, and its lease goes on"
    assert world.group.is_policy_stored, "its wishes are the policy of the new group"


def test_a_member_comes_although_the_log_refuses_the_deletion():
    world = deletion_in_flight()
    b = world.member("w-b", {"t": 4}).attach()
    world.release(failing=AppendFailure.TOO_LARGE)
    world.to(world.now + 30_000)
    assert len(b.active) == 4


def test_a_deletion_is_asked_for_once():
    world = deletion_in_flight()
    held_over_the_offset_check(world)
    world.release()
    assert sum(isinstance(each, GroupDeleted) for each in world.records) == 1
    assert GROUP not in world.shard.machine.groups


def test_an_operator_does_not_delete_a_group_whose_member_arrives():
    world = World()
    world.hold()
    a = world.member("w-a", {"t": 4}).attach()
    call = world.new_call()
    world.send(DeleteGroup(call_id=call, group_id=GROUP))
    world.release()
    assert world.replies[call].error is ErrorCode.NON_EMPTY_GROUP
    world.to(world.now + 30_000)
    assert len(a.active) == 4
    assert world.group.is_policy_stored


def test_a_policy_outlives_the_offset_check_that_met_it_on_its_way():
    world = World()
    world.hold()
    call = world.new_call()
    change = SetGroupPolicy(call_id=call, group_id=GROUP, changes=(("lease_ms", 8_000),))
    world.send(change)
    held_over_the_offset_check(world)
    world.release()
    assert world.group.policy.lease_ms == 8_000
    assert world.group.is_policy_stored


def test_nothing_is_left_of_a_group_that_is_deleted_after_its_policy():
    world = World()
    world.hold()
    world.send(
        SetGroupPolicy(call_id=world.new_call(), group_id=GROUP, changes=(("lease_ms", 8_000),))
    )
    world.send(DeleteGroup(call_id=world.new_call(), group_id=GROUP))
    world.release()
    assert GROUP not in world.shard.machine.groups
