"""Splitting of commands into parts for the shards, and merging of the replies to the parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from heapq import merge
from operator import attrgetter

from coordinator.core.values import requests as c
from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.ids import CallId
from coordinator.core.values.replies import GroupListing, LeaveReply, LeaveResult, ListReply, Reply
from coordinator.runtime.slices import PART, Work

LEAVING_AT_ONCE = 100
"""Members that leave in one step: some 13 us each, and as much again for the entry in the log."""


def parts_of(
    requests: Sequence[c.Request], new_call_id: Callable[[], CallId]
) -> Sequence[c.Request]:
    """Split the commands of a call into steps.

    `LEAVING_AT_ONCE` members leave in a step; the first that leaves starts the rebalance for all. A
    group that is named twice is described, or deleted, once: otherwise a small request could ask
    for gigabytes.
    """
    if len(requests) == 1 and not isinstance(requests[0], c.LeaveGroup):
        return requests
    match requests:
        case [c.LeaveGroup(members=members) as whole] if len(members) > LEAVING_AT_ONCE:
            return [
                replace(
                    whole,
                    call_id=new_call_id(),
                    members=members[first : first + LEAVING_AT_ONCE],
                )
                for first in range(0, len(members), LEAVING_AT_ONCE)
            ]
        case [c.DescribeGroup() | c.DeleteGroup(), _, *_]:
            return list(
                {getattr(request, "group_id", ""): request for request in requests}.values()
            )
        case _:
            return requests


def merged(replies: list[Reply]) -> list[Reply]:
    """Merge the replies to the parts of a call. The first error of a part is the call's error."""
    if len(replies) < 2 or not isinstance(replies[0], LeaveReply):
        return replies
    results: list[LeaveResult] = []
    for reply in replies:
        assert isinstance(reply, LeaveReply)
        results += reply.members
    error, message = first_error(replies)
    return [LeaveReply(error, message, tuple(results))]


def merged_list(
    replies: Sequence[Reply], request: c.ListGroups, is_shown: Callable[[str], bool] | None
) -> Work[list[Reply]]:
    """Merge one reply of each shard, each sorted as requested. A node may lead no shard at all.

    Args:
        is_shown: True for groups that the caller may see; None: all of them. Hidden groups count
            neither for `skip` and `limit` nor in `matching`.
    """
    end = request.skip + request.limit if request.limit else None
    parts = [reply for reply in replies if isinstance(reply, ListReply)]
    groups: list[GroupListing] = []
    listings = merge(*(reply.groups for reply in parts), key=attrgetter("order_value", "group_id"))
    for number, group in enumerate(listings, 1):
        if is_shown is None or is_shown(group.group_id):
            groups.append(group)
        if is_shown is None and number == end:
            break
        if number % PART == 0:
            yield
    matching = sum(reply.matching for reply in parts) if is_shown is None else len(groups)
    error, message = first_error(replies)
    return [ListReply(error, message, tuple(groups[request.skip : end]), matching)]


def first_error(replies: Sequence[Reply]) -> tuple[ErrorCode, str]:
    """Code and message of the first error; NONE if no reply has one for itself as a whole."""
    for reply in replies:
        error: ErrorCode = getattr(reply, "error", ErrorCode.NONE)
        if error is not ErrorCode.NONE:
            return error, str(getattr(reply, "message", ""))
    return ErrorCode.NONE, ""
