"""What operators ask: which groups there are, what they do, and that they go.

Source: Kafka `GroupMetadataManager.listGroups`, `describeGroups`, `deleteGroups`.
"""

from __future__ import annotations

from collections.abc import Iterable

from coordinator.core.commands import (
    DeleteGroup,
    DescribeGroup,
    GroupDeletedWritten,
    ListGroups,
)
from coordinator.core.errors import ErrorCode, Refused, advice
from coordinator.core.group import Group, GroupState
from coordinator.core.outcome import Outcome
from coordinator.core.records import GroupDeleted
from coordinator.core.replies import (
    DeleteReply,
    DescribedMember,
    DescribeReply,
    GroupListing,
    ListReply,
)

CLASSIC = "classic"
"""The one type of group there is so far."""


def list_groups(groups: Iterable[Group], command: ListGroups, out: Outcome) -> None:
    """All groups that pass both filters; a state or type that is unknown matches nothing."""
    states = {state.lower() for state in command.states}
    types = {type_.lower() for type_ in command.types}
    listed = tuple(
        GroupListing(group.group_id, group.protocol_type or "", group.state.value, CLASSIC)
        for group in groups
        if (not states or group.state.value.lower() in states) and (not types or CLASSIC in types)
    )
    out.reply(command.call_id, ListReply(groups=listed))


def describe_group(group: Group | None, command: DescribeGroup, out: Outcome) -> None:
    """A group whole; what the members follow and hold is shown only while it is in force.

    Raises:
        Refused: GROUP_ID_NOT_FOUND, if the caller prefers that to the state Dead.
    """
    if group is None:
        if command.report_unknown:
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND)
        out.reply(command.call_id, DescribeReply(command.group_id, state=GroupState.DEAD.value))
        return
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


def delete_group(group: Group | None, command: DeleteGroup, out: Outcome) -> None:
    """Delete a group without members, and its offsets.

    Raises:
        Refused: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
    """
    if group is None or group.state is GroupState.DEAD:
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
