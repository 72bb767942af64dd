"""Checks of requests that need no group, and the answers while a shard is loading."""

from __future__ import annotations

from coordinator.core.config import GroupConfig
from coordinator.core.group import Group, GroupState
from coordinator.core.values.errors import ErrorCode, Refused
from coordinator.core.values.replies import HeartbeatReply, Reply
from coordinator.core.values.requests import (
    CommitOffsets,
    DeleteGroup,
    DescribeGroup,
    FetchOffsets,
    Heartbeat,
    JoinGroup,
    ListGroups,
    Request,
    SyncGroup,
)

# Simple consumers that only keep offsets may do so under the empty id, as in Kafka.
_MAY_HAVE_EMPTY_ID = (CommitOffsets, FetchOffsets, DescribeGroup, DeleteGroup)


def check(request: Request, config: GroupConfig) -> None:
    """Check the fields of a request that do not depend on its group.

    Raises:
        Refused: INVALID_GROUP_ID, INVALID_SESSION_TIMEOUT.
    """
    check_group_id(request)
    low, high = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
    if isinstance(request, JoinGroup) and not low <= request.session_timeout_ms <= high:
        raise Refused(
            ErrorCode.INVALID_SESSION_TIMEOUT,
            f"session_timeout_ms is {request.session_timeout_ms}; ask for {low} to {high}",
        )


def check_group_id(request: Request) -> None:
    """Refuse the empty group id where it is not allowed.

    Raises:
        Refused: INVALID_GROUP_ID.
    """
    if isinstance(request, ListGroups):
        return
    if not request.group_id and not isinstance(request, _MAY_HAVE_EMPTY_ID):
        raise Refused(ErrorCode.INVALID_GROUP_ID)


def check_alive(group: Group) -> None:
    """Refuse requests for a Dead group.

    Raises:
        Refused: COORDINATOR_NOT_AVAILABLE.
    """
    if group.state is GroupState.DEAD:
        raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)


def answer_while_loading(request: Request) -> Reply:
    """Return the answer to a request while its shard is loading.

    Heartbeats succeed unchecked, so that healthy members are not disturbed. SyncGroup gets
    REBALANCE_IN_PROGRESS: the member joins again, and retries that until the load has ended.
    """
    if isinstance(request, Heartbeat):
        return HeartbeatReply()
    if isinstance(request, SyncGroup):
        return request.refusal(Refused(ErrorCode.REBALANCE_IN_PROGRESS))
    return request.refusal(Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
