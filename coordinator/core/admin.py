"""Admin requests for groups of any kind: listing and deletion.

Source: Kafka `GroupMetadataManager.listGroups`, `deleteGroups`.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nsmallest
from operator import attrgetter

from coordinator.core.errors import ErrorCode, Refused
from coordinator.core.group import Group, GroupState
from coordinator.core.outcome import Outcome
from coordinator.core.records import GroupDeleted
from coordinator.core.replies import DeleteReply, DescribeReply, GroupListing, ListReply
from coordinator.core.requests import DeleteGroup, DescribeGroup, ListGroups
from coordinator.core.written import AnswerDurable


def list_groups(groups: Iterable[Group], command: ListGroups, out: Outcome) -> None:
    """Answer with the groups that pass all filters; an unknown state or type matches nothing."""
    states = {state.lower() for state in command.states}
    types = {type_.lower() for type_ in command.types}
    contains = command.contains.lower()
    found = [
        group
        for group in groups
        if (not states or group.state.value.lower() in states)
        and (not types or group.kind in types)
        and contains in group.group_id.lower()
    ]
    listed = tuple(
        GroupListing(
            group.group_id,
            group.protocol_type or "",
            group.state.value,
            group.kind,
            group.member_count,
        )
        for group in nsmallest(command.limit or len(found), found, key=attrgetter("group_id"))
    )
    out.reply(command.call_id, ListReply(groups=listed, matching=len(found)))


def describe_no_group(command: DescribeGroup, out: Outcome) -> None:
    """Answer for a group that does not exist, with state Dead.

    Raises:
        Refused: GROUP_ID_NOT_FOUND, if `report_unknown`.
    """
    if command.report_unknown:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND)
    out.reply(command.call_id, DescribeReply(command.group_id, state=GroupState.DEAD.value))


def delete_group(group: Group, command: DeleteGroup, out: Outcome) -> None:
    """Delete a group without members, and its offsets.

    Raises:
        Refused: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
    """
    if group.state is GroupState.DEAD:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND)
    if group.state is not GroupState.EMPTY:
        raise Refused(ErrorCode.NON_EMPTY_GROUP)
    out.persist([GroupDeleted(group.group_id)], AnswerDurable(command, DeleteReply(group.group_id)))
