"""What operators ask: which groups there are, what they do, and that they go.

Source: Kafka `GroupMetadataManager.listGroups`, `describeGroups`, `deleteGroups`.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nsmallest
from operator import attrgetter

from coordinator.core.classic.group import Group, GroupState
from coordinator.core.classic.member import Member
from coordinator.core.errors import ErrorCode, Refused, advice
from coordinator.core.ids import NO_TIME
from coordinator.core.outcome import Outcome
from coordinator.core.records import GroupDeleted
from coordinator.core.replies import (
    AwaitedMember,
    DeleteReply,
    DescribedMember,
    DescribeReply,
    GroupListing,
    ListReply,
    PhaseReply,
    RebalancesReply,
)
from coordinator.core.requests import (
    DeleteGroup,
    DescribeGroup,
    DescribePhase,
    ListGroups,
    ListRebalances,
)
from coordinator.core.written import GroupDeletedWritten

CLASSIC = "classic"
"""The one type of group there is so far."""


def list_groups(groups: Iterable[Group], command: ListGroups, out: Outcome) -> None:
    """The groups that pass all filters; a state or type that is unknown matches nothing."""
    states = {state.lower() for state in command.states}
    types = {type_.lower() for type_ in command.types}
    contains = command.contains.lower()
    found = [
        group
        for group in groups
        if (not states or group.state.value.lower() in states)
        and (not types or CLASSIC in types)
        and contains in group.group_id.lower()
    ]
    listed = tuple(
        GroupListing(
            group.group_id,
            group.protocol_type or "",
            group.state.value,
            CLASSIC,
            group.member_count,
        )
        for group in nsmallest(command.limit or len(found), found, key=attrgetter("group_id"))
    )
    out.reply(command.call_id, ListReply(groups=listed, matching=len(found)))


def describe_no_group(command: DescribeGroup, out: Outcome) -> None:
    """A group that there is not.

    Raises:
        Refused: GROUP_ID_NOT_FOUND, if the caller prefers that to the state Dead.
    """
    if command.report_unknown:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND)
    out.reply(command.call_id, DescribeReply(command.group_id, state=GroupState.DEAD.value))


def describe_group(group: Group, command: DescribeGroup, out: Outcome) -> None:
    """A group whole; what the members follow and hold is shown only while it is in force."""
    stable = group.state is GroupState.STABLE
    members = tuple(
        DescribedMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.metadata_for(group.protocol_name) if stable else b"",
            member.assignment if stable else b"",
        )
        for member in group.members.values()
    )
    out.reply(
        command.call_id,
        DescribeReply(
            group.group_id,
            state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_name=(group.protocol_name or "") if stable else "",
            members=members,
            generation=group.generation,
            leader=group.leader_id or "",
        ),
    )


def list_rebalances(group: Group, command: ListRebalances, out: Outcome) -> None:
    """The group's journal, newest first."""
    refused = tuple((group.refused_joins or {}).values())[::-1]
    reply = RebalancesReply(rebalances=group.journal[::-1], refused_joins=refused)
    out.reply(command.call_id, reply)


def describe_phase(group: Group, command: DescribePhase, out: Outcome) -> None:
    """Whom a parked phase waits for, now."""
    awaited: list[AwaitedMember] = []
    if group.state is GroupState.PREPARING_REBALANCE:
        awaited = [_awaited(group, m) for m in group.members.values() if m.parked_join is None]
        awaited += [AwaitedMember(member_id) for member_id in group.pending_member_ids]
    elif group.state is GroupState.AWAITING_SYNC:
        awaited = [_awaited(group, m) for m in group.members.values() if m.parked_sync is None]
    is_waiting = group.state in (GroupState.PREPARING_REBALANCE, GroupState.AWAITING_SYNC)
    since_ms = group.state_changed_at_ms
    reply = PhaseReply(
        state=group.state.value,
        since_ms=since_ms,
        deadline_ms=since_ms + group.rebalance_timeout_ms if is_waiting else NO_TIME,
        is_initial_delay=group.initial_join,
        awaited=tuple(awaited),
    )
    out.reply(command.call_id, reply)


def _awaited(group: Group, member: Member) -> AwaitedMember:
    return AwaitedMember(
        member.member_id,
        member.client_id,
        member.client_host,
        is_leader=member.member_id == group.leader_id,
        last_heard_ms=member.last_heard_ms,
        session_timeout_ms=member.session_timeout_ms,
    )


def delete_group(group: Group, command: DeleteGroup, out: Outcome) -> None:
    """Delete a group without members, and its offsets.

    Raises:
        Refused: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
    """
    if group.state is GroupState.DEAD:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND)
    if group.state is not GroupState.EMPTY:
        raise Refused(ErrorCode.NON_EMPTY_GROUP)
    out.persist(
        [GroupDeleted(group.group_id)], GroupDeletedWritten(command.call_id, group.group_id)
    )


def group_deleted(command: GroupDeletedWritten, out: Outcome) -> None:
    """The log has taken a group's deletion, or refused it."""
    reply = DeleteReply(command.group_id, command.error, advice(command.error))
    out.reply(command.call_id, reply)
