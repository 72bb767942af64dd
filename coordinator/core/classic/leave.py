"""LeaveGroup: removes members, each with its own result, and starts at most one rebalance.

RemoveMembers is the same for an operator. So is a LeaveGroup that names an instance id alone, which
is how Kafka's admin client removes static members.

Source: KIP-345, KIP-800; Kafka `GroupMetadataManager.classicGroupLeaveToClassicGroup`.
"""

from __future__ import annotations

from coordinator.core.classic import rebalance
from coordinator.core.classic.group import ClassicGroup
from coordinator.core.classic.member import ClassicMember
from coordinator.core.classic.membership import check_not_replaced, evict, identify, remove
from coordinator.core.step import Step
from coordinator.core.values.effects import JoinKey, MemberKey
from coordinator.core.values.errors import ErrorCode, Refused
from coordinator.core.values.events import EvictionCause, MemberLeft, RebalanceCause
from coordinator.core.values.replies import LeaveReply, LeaveResult
from coordinator.core.values.requests import LeaveGroup, LeavingMember


def leave_group(group: ClassicGroup, command: LeaveGroup, step: Step) -> None:
    """Remove members, in the order of the request.

    Raises:
        Refused: the group is Dead.
        MustWait: a restarted process may have taken the place of one of them.
    """
    group.check_alive()
    for leaving in command.members:
        if leaving.member_id in group.members:
            check_not_replaced(group, group.members[leaving.member_id])
    results: list[LeaveResult] = []
    first_to_leave: ClassicMember | None = None
    reason, cause = "", RebalanceCause.MEMBER_LEFT
    for leaving in command.members:
        try:
            by_operator = command.by_operator or not leaving.member_id
            member = _leave(group, leaving, by_operator, step)
            error = ErrorCode.NONE
            if member is not None and first_to_leave is None:
                first_to_leave, reason = member, leaving.reason
                if by_operator:
                    cause = RebalanceCause.ADMIN
        except Refused as refused:
            error = refused.error
        results.append(LeaveResult(leaving.member_id, leaving.instance_id, error))
    step.out.reply(command.call_id, LeaveReply(members=tuple(results)))
    if first_to_leave is not None:
        rebalance.request(group, cause, step, member=first_to_leave, reason=reason)
    else:
        step.out.check(JoinKey(group.group_id))


def leave_no_group(_: None, command: LeaveGroup, step: Step) -> None:
    """Answer for a group that does not exist: UNKNOWN_MEMBER_ID for each member.

    Raises:
        Refused: GROUP_ID_NOT_FOUND, for an operator.
    """
    if command.by_operator:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND)
    error = ErrorCode.UNKNOWN_MEMBER_ID
    results = tuple(LeaveResult(m.member_id, m.instance_id, error) for m in command.members)
    step.out.reply(command.call_id, LeaveReply(members=results))


def _leave(
    group: ClassicGroup, leaving: LeavingMember, by_operator: bool, step: Step
) -> ClassicMember | None:
    """Remove one member and return it; None if it was only a pending id. Raises `Refused`."""
    member_id = leaving.member_id
    if member_id and member_id in group.pending_member_ids:
        group.pending_member_ids.pop(member_id, None)
        step.out.check(MemberKey(group.group_id, member_id))
        return None
    if not member_id and leaving.instance_id is not None:
        member_id = group.static_members.get(leaving.instance_id, "")
    member = identify(group, member_id, leaving.instance_id)
    if by_operator:
        evict(group, member, EvictionCause.ADMIN, step)
        return member
    remove(group, member, step)
    step.out.note(
        MemberLeft(
            group.group_id,
            member.member_id,
            member.client_id,
            member.client_host,
            member.client_software,
            *member.last_sign(),
            leaving.reason,
        )
    )
    return member
