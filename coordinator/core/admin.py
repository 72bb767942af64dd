"""Admin requests for groups of any kind: listing and deletion.

Source: Kafka `GroupMetadataManager.listGroups`, `deleteGroups`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from heapq import nsmallest

from coordinator.core.group import Group, GroupState
from coordinator.core.step import Step
from coordinator.core.values.commands import AnswerRequest
from coordinator.core.values.errors import ErrorCode, Refused
from coordinator.core.values.ids import TOPICS_GROUP
from coordinator.core.values.records import GroupDeleted
from coordinator.core.values.replies import (
    UNKNOWN_LAG,
    DeleteReply,
    DescribeReply,
    GroupListing,
    ListReply,
)
from coordinator.core.values.requests import DeleteGroup, DescribeGroup, ListGroups, ListOrder


def list_groups(groups: Iterable[Group], command: ListGroups, step: Step) -> None:
    """Answer with the groups that pass all filters; an unknown state or type matches nothing."""
    states = {state.lower() for state in command.states}
    types = {type_.lower() for type_ in command.types}
    contains = command.contains.lower()
    wanted = command.skip + command.limit if command.limit else sys.maxsize
    listings = [
        group
        for group in groups
        if group.group_id != TOPICS_GROUP
        and (not states or group.state.value.lower() in states)
        and (not types or group.kind in types)
        and contains in group.group_id.lower()
    ]
    matching = len(listings)
    first = nsmallest(wanted, listings, key=_sort_key(command.order))
    rows = first[command.skip :]  # Only these become listings, which takes most of the time.
    listed = tuple(_listing(group, command) for group in rows)
    step.out.reply(command.call_id, ListReply(groups=listed, matching=matching))


def _sort_key(order: ListOrder) -> Callable[[Group], tuple[int, str]]:
    return lambda group: (_order_value(group, order), group.group_id)


def _order_value(group: Group, order: ListOrder) -> int:
    match order:
        case ListOrder.STATE:
            return _STATES.index(group.state)
        case ListOrder.MEMBERS:
            return -group.member_count
        case ListOrder.LAG:
            return -group.lag()
        case ListOrder.LAST_REBALANCE:
            return -max(group.rebalancing_since_ms, group.last_rebalance_ms)
        case ListOrder.GROUP_ID:
            return 0


def _listing(group: Group, command: ListGroups) -> GroupListing:
    with_lag = command.with_lag or command.order is ListOrder.LAG
    lag = group.lag() if with_lag else UNKNOWN_LAG
    return GroupListing(
        group.group_id,
        group.protocol_type or "",
        group.state.value,
        group.kind,
        group.member_count,
        group.selected_protocol,
        lag,
        group.last_rebalance_ms,
        group.rebalancing_since_ms,
        _order_value(group, command.order),
    )


_STATES = (
    GroupState.PREPARING_REBALANCE,
    GroupState.AWAITING_SYNC,
    GroupState.STABLE,
    GroupState.EMPTY,
    GroupState.DEAD,
)
"""States in `ListOrder.STATE`."""


def describe_no_group(_: None, command: DescribeGroup, step: Step) -> None:
    """Answer for a group that does not exist, with state Dead.

    Raises:
        Refused: GROUP_ID_NOT_FOUND, if `report_unknown`.
    """
    if command.report_unknown:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND)
    step.out.reply(command.call_id, DescribeReply(command.group_id, state=GroupState.DEAD.value))


def delete_group(group: Group, command: DeleteGroup, step: Step) -> None:
    """Delete a group without members, and its offsets.

    Raises:
        Refused: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
    """
    if group.state is GroupState.DEAD:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND)
    if group.state is not GroupState.EMPTY:
        raise Refused(ErrorCode.NON_EMPTY_GROUP)
    group.deletions += 1
    step.out.persist(
        [GroupDeleted(group.group_id)], AnswerRequest(command, DeleteReply(group.group_id))
    )


def answer_request(_: None, done: AnswerRequest, step: Step) -> None:
    """Answer a request whose records are durable or refused."""
    refused = done.error is not ErrorCode.NONE
    reply = done.request.refusal(Refused(done.error)) if refused else done.reply
    step.out.reply(done.request.call_id, reply)
