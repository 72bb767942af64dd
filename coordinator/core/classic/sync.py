"""SyncGroup: the leader sends the assignment, and every member gets its part.

An assignment is answered only once it is durable. The leader's call writes the record,
`Group.apply` sets the members' assignments, and `answer_syncs` answers all parked calls if
the group is still in that generation and awaits it.

A generation's assignment is written once. If the leader syncs again during that write (its first
call was lost, say), it waits for the same write and its second assignment is ignored: a restart has
to read the assignment that was answered.

Source: Kafka `GroupCoordinator.doSyncGroup`.
"""

from __future__ import annotations

from coordinator.core.classic import rebalance
from coordinator.core.classic.group import ClassicGroup
from coordinator.core.classic.member import ClassicMember
from coordinator.core.classic.membership import check_generation, fail_sync, identify, reset_session
from coordinator.core.group import GroupState
from coordinator.core.step import Step
from coordinator.core.values.commands import AnswerSyncs
from coordinator.core.values.effects import SyncKey
from coordinator.core.values.errors import ErrorCode, Refused
from coordinator.core.values.events import (
    MemberSynced,
    RebalanceCause,
    RebalanceCompleted,
    RebalanceFailed,
)
from coordinator.core.values.replies import SyncReply
from coordinator.core.values.requests import SyncGroup


def sync_group(group: ClassicGroup, command: SyncGroup, step: Step) -> None:
    """Answer or park a SyncGroup.

    Raises:
        Refused: before anything changed.
    """
    group.check_alive()
    member = identify(group, command.member_id, command.instance_id)
    check_generation(group, command.generation)
    _check_protocol(group, command)
    if group.state is GroupState.PREPARING_REBALANCE:
        raise Refused(ErrorCode.REBALANCE_IN_PROGRESS)
    # An earlier call of the same member.
    fail_sync(group, member, ErrorCode.REBALANCE_IN_PROGRESS, step)
    group.awaited_syncs.pop(member.member_id, None)
    reset_session(group, member, step)
    is_leader = member.member_id == group.leader_id
    step.out.note(MemberSynced(group.group_id, member.member_id, group.generation, is_leader))
    if group.state is GroupState.STABLE:
        member.begin_to_beat(step.now_ms)
        step.out.reply(command.call_id, _assignment_of(group, member))
    else:
        group.park_sync(member, command.call_id)
        if is_leader and group.assigned_generation != group.generation:
            group.assigned_generation = group.generation
            record = group.metadata(step.now_ms, dict(command.assignments))
            step.out.persist([record], AnswerSyncs(record))
    step.out.check(SyncKey(group.group_id))


def answer_syncs(group: ClassicGroup, command: AnswerSyncs, step: Step) -> None:
    """Answer all parked SyncGroups at the result of the assignment's write."""
    record = command.record
    if group.state is not GroupState.AWAITING_SYNC or group.generation != record.generation:
        return
    if command.error is not ErrorCode.NONE:
        step.out.note(RebalanceFailed(group.group_id, group.generation, command.error.name))
        for member in group.members.values():
            if member.parked_sync is not None:
                fail_sync(group, member, command.error, step)
                reset_session(group, member, step)
        rebalance.prepare(group, RebalanceCause.ASSIGNMENT_NOT_STORED, step)
        return
    group.transition_to(GroupState.STABLE, step.now_ms)
    step.out.note(RebalanceCompleted(group.group_id, group.generation, len(group.members)))
    for member in group.members.values():
        call_id = group.unpark_sync(member)
        if call_id is not None:
            member.begin_to_beat(step.now_ms)
            step.out.reply(call_id, _assignment_of(group, member))
            reset_session(group, member, step)


def _assignment_of(group: ClassicGroup, member: ClassicMember) -> SyncReply:
    return SyncReply(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )


def _check_protocol(group: ClassicGroup, command: SyncGroup) -> None:
    for requested, selected, subject in (
        (command.protocol_type, group.protocol_type, "protocol type"),
        (command.protocol_name, group.protocol_name, "protocol"),
    ):
        # The name is not known before the first join phase has ended.
        if requested is not None and selected is not None and requested != selected:
            raise Refused(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the group's {subject} is {selected!r}"
            )
