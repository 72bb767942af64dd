"""Replacement of a static member whose process has restarted.

The new process joins with the instance id and no member id, always gets a new member id, and so
fences the process it replaces. A Stable group need not rebalance: if it would still select the same
protocol, the new id is written and answered with the current generation.

Until that record is durable nothing has changed. Heartbeats under the old id are answered and
extend its session; its other requests (JoinGroup, OffsetCommit, LeaveGroup) wait for the result of
the write, which decides whether it is fenced. So a refused record needs no roll-back, and a write
that times out without a result fences neither process. Replacements of one group are written one
after the other, since each record is based on the durable one.

In a join phase ids are not durable before the assignment is, and a restarted process takes
over at once.

Source: KIP-345, KIP-814; Kafka `GroupCoordinator.updateStaticMemberAndRebalance`.
"""

from __future__ import annotations

from dataclasses import replace as with_changes

from coordinator.core.classic import protocols, rebalance
from coordinator.core.classic.group import ClassicGroup
from coordinator.core.classic.member import ClassicMember
from coordinator.core.classic.membership import fail_join, fail_sync, reset_session
from coordinator.core.classic.replacement import Replacement
from coordinator.core.classic.takeover import member_replaced, take_over, welcome
from coordinator.core.group import GroupState
from coordinator.core.step import Step
from coordinator.core.values.commands import (
    AnswerReplacement,
    FinishReplacement,
    RefuseReplacement,
)
from coordinator.core.values.effects import JoinKey
from coordinator.core.values.errors import ErrorCode, InvariantViolated, advice
from coordinator.core.values.events import RebalanceCause
from coordinator.core.values.records import GroupMetadata
from coordinator.core.values.replies import JoinReply
from coordinator.core.values.requests import JoinGroup


def replace(group: ClassicGroup, command: JoinGroup, member_id: str, step: Step) -> None:
    """Let the joining process take over its instance id, under a new `member_id`."""
    assert command.instance_id is not None
    member = group.members[group.static_members[command.instance_id]]
    replacement = Replacement(command, ClassicMember.joining(command, member_id, step.now_ms))
    superseded_id = _id_of_parked_join(group, member)
    fail_join(group, member, ErrorCode.FENCED_INSTANCE_ID, step, member_id=superseded_id)
    fail_sync(group, member, ErrorCode.FENCED_INSTANCE_ID, step)
    group.park_join(member, command.call_id)
    if group.state is not GroupState.STABLE or not _keeps_protocol(group, member, command):
        _take_over_now(group, replacement, step)
        return
    group.replacements = (*group.replacements, replacement)
    if len(group.replacements) == 1:
        _write(group, member, replacement, step)
    else:
        step.out.persist((), RefuseReplacement(group.group_id, command.call_id))


def finish_replacement(group: ClassicGroup, command: FinishReplacement, step: Step) -> None:
    """Finish a replacement at the result of its write, and begin the next one.

    If the group has left Stable meanwhile, the new process takes part in the join phase.
    """
    if not group.replacements or group.replacements[0].successor.member_id != command.member_id:
        return
    resolved, *waiting = group.replacements
    if command.error is ErrorCode.NONE:
        welcome(group, resolved, command.previous_member_id, step)
    group.replacements = ()
    for number, replacement in enumerate(waiting):
        member = member_replaced(group, replacement)
        if member is None or member.parked_join != replacement.command.call_id:
            continue  # It has been answered, or its client has disconnected.
        if _keeps_protocol(group, member, replacement.command):
            group.replacements = tuple(waiting[number:])
            _write(group, member, replacement, step)
        else:
            group.replacements = tuple(waiting[number + 1 :])
            _take_over_now(group, replacement, step)
        return


def answer_replacement(group: ClassicGroup, command: AnswerReplacement, step: Step) -> None:
    """Answer the new process: its id is durable or refused, or the write has timed out."""
    member = group.members.get(group.static_members.get(command.instance_id, ""))
    if (
        member is None
        or member.parked_join != command.call_id  # Superseded, or its client has disconnected.
        or group.state is not GroupState.STABLE
        or group.generation != command.generation
    ):
        return
    if command.error is not ErrorCode.NONE:
        _refuse(group, member, command.error, step)
        return
    group.unpark_join(member)
    reset_session(group, member, step)
    reply = rebalance.join_reply(group, member)
    is_leader = member.member_id == group.leader_id
    if command.supports_skip_assignment:
        reply = with_changes(reply, skip_assignment=is_leader)
    elif is_leader:
        # An old client that reads its own id here would compute an assignment for nobody.
        reply = with_changes(reply, leader=command.previous_member_id, members=())
    step.out.reply(command.call_id, reply)


def refuse_replacement(group: ClassicGroup, command: RefuseReplacement, step: Step) -> None:
    """Refuse a replacement that has waited too long for the one before it."""
    if command.error is ErrorCode.NONE:
        return
    for replacement in group.replacements:
        member = member_replaced(group, replacement)
        if (
            replacement.command.call_id == command.call_id
            and replacement.deadline_ms is None
            and member is not None
            and member.parked_join == command.call_id
        ):
            _refuse(group, member, command.error, step)


# --- Inside ---------------------------------------------------------------------------------


def _id_of_parked_join(group: ClassicGroup, member: ClassicMember) -> str:
    """Return the member id of the process whose JoinGroup is parked."""
    for replacement in group.replacements:
        if replacement.command.call_id == member.parked_join:
            return replacement.successor.member_id
    return member.member_id


def _keeps_protocol(group: ClassicGroup, member: ClassicMember, command: JoinGroup) -> bool:
    """True if the group would still select its present protocol after the replacement."""
    before = member.protocols
    group.set_protocols(member, command.protocols)
    selected = protocols.select(group)
    group.set_protocols(member, before)
    return selected == group.protocol_name


def _take_over_now(group: ClassicGroup, replacement: Replacement, step: Step) -> None:
    """Replace the member without a record, and rebalance unless a join phase is running."""
    member = take_over(group, replacement, step)
    match group.state:
        case GroupState.STABLE | GroupState.AWAITING_SYNC:
            # In a sync phase the leader's assignment may already name the old id.
            rebalance.prepare(
                group,
                RebalanceCause.STATIC_MEMBER_REPLACED,
                step,
                member=member,
                reason=replacement.command.reason,
            )
        case GroupState.PREPARING_REBALANCE:
            step.out.check(JoinKey(group.group_id))
        case GroupState.EMPTY | GroupState.DEAD:
            raise InvariantViolated(f"group {group.group_id!r} has members but no generation")


def _write(
    group: ClassicGroup, member: ClassicMember, replacement: Replacement, step: Step
) -> None:
    command = replacement.command
    replacement.deadline_ms = step.now_ms + step.config.offset_commit_timeout_ms
    step.out.persist(
        [_record(group, member, replacement, step.now_ms)],
        AnswerReplacement(
            group.group_id,
            command.call_id,
            replacement.instance_id,
            group.generation,
            member.member_id,
            command.supports_skip_assignment,
        ),
        follow_up=FinishReplacement(
            group.group_id, replacement.successor.member_id, member.member_id
        ),
    )


def _record(
    group: ClassicGroup, member: ClassicMember, replacement: Replacement, now_ms: int
) -> GroupMetadata:
    """Return the group's record with the new process in place of the member."""
    record = group.metadata(now_ms)
    new = replacement.successor.record(group.protocol_name, member.assignment)
    old_id = member.member_id
    return with_changes(
        record,
        leader=new.member_id if record.leader == old_id else record.leader,
        members=tuple(new if m.member_id == old_id else m for m in record.members),
    )


def _refuse(group: ClassicGroup, member: ClassicMember, error: ErrorCode, step: Step) -> None:
    call_id = group.unpark_join(member)
    assert call_id is not None
    reset_session(group, member, step)
    step.out.reply(call_id, JoinReply(error, advice(error), generation=group.generation))
