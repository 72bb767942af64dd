"""Translation of replies to responses, with the core's error codes and messages."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from heapq import merge
from operator import attrgetter
from typing import Any

from google.protobuf.message import Message

from coordinator.core import replies as r
from coordinator.core.errors import ErrorCode
from coordinator.core.records import OffsetCommitted
from coordinator.runtime.payloads import assignment_of
from coordinator.runtime.slices import PART, Work, at_once
from coordinator.service.grpc.translate import session_admin, session_journal
from coordinator.service.grpc.translate.rebalances import rebalance_message, refused_join_message
from coordinator.service.nodes import FoundCoordinator, found_coordinator
from coordinator.service.parts import merged
from coordinator.storage.coordination import NodeInfo
from coordinator.v1 import admin_pb2, errors_pb2, group_pb2

SORTED_AT_ONCE = 2_000
"""Rows that are sorted in one slice, in 2 ms."""


def response_of(request: Message, replies: Sequence[r.Reply]) -> Message:
    """Translate the replies to a request's commands, in their order, to its response.

    Raises:
        KeyError: the message is no request of GroupCoordinator or GroupAdmin.
    """
    return at_once(response_work(request, merged(list(replies))))


def response_work(request: Message, replies: Sequence[r.Reply]) -> Work[Message]:
    """Translate replies like `response_of`, a slice at a time."""
    row = _RESPONSES.get(type(request))
    found = _OF_SEVERAL[type(request)](request, replies) if row is None else row(request, *replies)
    return (yield from found) if isinstance(found, Generator) else found


def error_code(error: ErrorCode) -> errors_pb2.ErrorCode.ValueType:
    """Convert an error code to the contract's enum, which has the same numbers."""
    return errors_pb2.ErrorCode.ValueType(error)


def _error(reply: Any) -> dict[str, Any]:  # Any: replies and messages that have an error.
    return {"error_code": error_code(reply.error), "error_message": reply.message}


def _join_response(_: Message, reply: r.JoinReply) -> Work[Message]:
    response = group_pb2.JoinGroupResponse(
        **_error(reply),
        generation_id=reply.generation,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol_name,
        leader=reply.leader,
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id,
    )
    yield from _fill(
        response.members,
        reply.members,
        lambda m: {
            "member_id": m.member_id,
            "group_instance_id": m.instance_id,
            "metadata": m.metadata,
        },
    )
    return response


def _sync_response(_: Message, reply: r.SyncReply) -> Message:
    return group_pb2.SyncGroupResponse(
        **_error(reply),
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol_name,
        assignment=reply.assignment,
    )


def heartbeat_response(reply: r.HeartbeatReply) -> group_pb2.HeartbeatResponse:
    """Response to a heartbeat with an error."""
    return group_pb2.HeartbeatResponse(**_error(reply))


def _heartbeat_batch_response(_: Message, replies: Sequence[r.HeartbeatReply]) -> Work[Message]:
    response = group_pb2.HeartbeatBatchResponse()
    yield from _fill(
        response.heartbeats,
        replies,
        _error,
    )
    return response


def _leave_response(request: Message, reply: r.LeaveReply) -> Work[Message]:
    response = (
        admin_pb2.RemoveMembersResponse(**_error(reply))
        if isinstance(request, admin_pb2.RemoveMembersRequest)
        else group_pb2.LeaveGroupResponse(**_error(reply))
    )
    yield from _fill(
        response.members,
        reply.members,
        lambda m: {
            "member_id": m.member_id,
            "group_instance_id": m.instance_id,
            "error_code": error_code(m.error),
        },
    )
    return response


def _commit_response(_: Message, reply: r.CommitReply) -> Work[Message]:
    response = group_pb2.OffsetCommitResponse(error_message=reply.message)
    yield from _fill_topics(
        response.topics,
        reply.results,
        lambda x: {
            "partition_index": x.partition,
            "error_code": error_code(x.error),
            "committed_offset": x.found if x.error is ErrorCode.OFFSET_MISMATCH else 0,
            "holder_member_id": x.holder_id,
            "holder_member_name": x.holder_name,
        },
    )
    return response


def _fetch_response(request: group_pb2.OffsetFetchRequest, reply: r.FetchReply) -> Work[Message]:
    response = group_pb2.OffsetFetchResponse(**_error(reply), manifest=reply.manifest)
    if request.topics:
        yield from _fill_topics(
            response.topics,
            reply.offsets,
            lambda x: {**_stored_offset(x), "error_code": error_code(x.error)},
        )
    else:
        stored = yield from _sorted(reply.offsets, attrgetter("topic", "partition"))
        yield from _fill_topics(response.topics, stored, _stored_offset)
    return response


def _stored_offset(x: OffsetCommitted | r.FetchedOffset) -> dict[str, Any]:
    return {
        "partition_index": x.partition,
        "committed_offset": x.offset,
        "committed_leader_epoch": x.leader_epoch,
        "metadata": x.metadata,
    }


def _list_response(_: Message, reply: r.ListReply) -> Work[Message]:
    response = admin_pb2.ListGroupsResponse(**_error(reply), matching=reply.matching)
    yield from _fill(
        response.groups,
        reply.groups,
        lambda g: {
            "group_id": g.group_id,
            "protocol_type": g.protocol_type,
            "group_state": g.state,
            "group_type": g.group_type.capitalize(),
            "member_count": g.member_count,
            "protocol_data": g.protocol_name,
            "lag": g.lag,
            "last_rebalance_ms": g.last_rebalance_ms,
            "rebalancing_since_ms": g.rebalancing_since_ms,
            "order_value": g.order_value,
        },
    )
    return response


def _describe_response(_: Message, replies: Sequence[r.DescribeReply]) -> Work[Message]:
    response = admin_pb2.DescribeGroupsResponse()
    for g in replies:
        group = response.groups.add(
            **_error(g),
            group_id=g.group_id,
            group_state=g.state,
            protocol_type=g.protocol_type,
            protocol_data=g.protocol_name,
            generation_id=g.generation,
            leader=g.leader,
            group_type=g.group_type.capitalize(),
        )
        yield
        yield from _fill(
            group.members,
            g.members,
            lambda m: {
                "member_id": m.member_id,
                "group_instance_id": m.instance_id,
                "client_id": m.client_id,
                "client_host": m.client_host,
                "member_metadata": m.metadata,
                "member_assignment": assignment_of(m),
                "client_software": m.client_software,
            },
        )
    return response


def _delete_response(_: Message, replies: Sequence[r.DeleteReply]) -> Message:
    return admin_pb2.DeleteGroupsResponse(
        results=[
            admin_pb2.DeleteGroupsResponse.Result(group_id=x.group_id, **_error(x)) for x in replies
        ]
    )


def _delete_offsets_response(_: Message, reply: r.OffsetDeleteReply) -> Work[Message]:
    response = admin_pb2.OffsetDeleteResponse(**_error(reply))
    yield from _fill_topics(
        response.topics,
        reply.results,
        lambda x: {"partition_index": x.partition, "error_code": error_code(x.error)},
    )
    return response


def _report_log_ends_response(_: Message, reply: r.ReportLogEndsReply) -> Message:
    return group_pb2.ReportLogEndsResponse(**_error(reply))


def _list_log_ends_response(_: Message, reply: r.ListLogEndsReply) -> Work[Message]:
    response = admin_pb2.ListLogEndsResponse(**_error(reply))
    ends = yield from _sorted(reply.ends, attrgetter("topic", "partition"))
    yield from _fill_topics(
        response.topics,
        ends,
        lambda x: {
            "partition_index": x.partition,
            "log_end_offset": x.offset,
            "told_at_ms": x.told_at_ms,
        },
    )
    return response


def _rebalances_response(
    request: admin_pb2.ListRebalancesRequest, reply: r.RebalancesReply
) -> Work[Message]:
    newest_first = reply.rebalances
    response = admin_pb2.ListRebalancesResponse(
        **_error(reply),
        refused_joins=map(refused_join_message, reply.refused_joins),
    )
    for index, record in enumerate(newest_first[: request.limit or None]):
        response.rebalances.append(rebalance_message(record, newest_first[index + 1 :]))
        yield
    for each in session_journal.journal(
        request.group_id, reply.plans, reply.handoffs, request.limit
    ):
        if isinstance(each, admin_pb2.Rebalance):
            response.rebalances.append(each)
        else:
            response.session_handoffs.append(each)
        yield
    return response


def _phase_response(_: Message, reply: r.PhaseReply) -> Work[Message]:
    response = admin_pb2.DescribePhaseResponse(
        **_error(reply),
        group_state=reply.state,
        since_ms=reply.since_ms,
        deadline_ms=reply.deadline_ms,
        is_initial_delay=reply.is_initial_delay,
    )
    yield from _fill(
        response.awaited,
        reply.awaited,
        lambda m: {
            "member_id": m.member_id,
            "client_id": m.client_id,
            "client_host": m.client_host,
            "is_leader": m.is_leader,
            "last_heard_ms": m.last_heard_ms,
            "session_timeout_ms": m.session_timeout_ms,
        },
    )
    return response


def _here(request: group_pb2.FindCoordinatorRequest, _: Sequence[r.Reply]) -> Message:
    """Answer FindCoordinator for a coordinator without a network (`coordinator.testing`)."""
    return find_response(found_coordinator(request.group_id, NodeInfo(0, "localhost", 0, "")))


def find_response(found: FoundCoordinator) -> group_pb2.FindCoordinatorResponse:
    """Response of FindCoordinator."""
    return group_pb2.FindCoordinatorResponse(
        error_code=error_code(found.error),
        error_message=found.message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


# Any: each function takes the request of its row, and its reply or replies.
_Responses = dict[type[Message], Callable[[Any, Any], Message | Work[Message]]]
_OF_SEVERAL: _Responses = {
    group_pb2.FindCoordinatorRequest: _here,
    group_pb2.HeartbeatBatchRequest: _heartbeat_batch_response,
    admin_pb2.DescribeGroupsRequest: _describe_response,
    admin_pb2.DeleteGroupsRequest: _delete_response,
}
_RESPONSES: _Responses = {
    group_pb2.JoinGroupRequest: _join_response,
    group_pb2.SyncGroupRequest: _sync_response,
    group_pb2.HeartbeatRequest: lambda _, reply: heartbeat_response(reply),
    group_pb2.LeaveGroupRequest: _leave_response,
    group_pb2.OffsetCommitRequest: _commit_response,
    group_pb2.OffsetFetchRequest: _fetch_response,
    group_pb2.ReportLogEndsRequest: _report_log_ends_response,
    admin_pb2.ListLogEndsRequest: _list_log_ends_response,
    admin_pb2.ListGroupsRequest: _list_response,
    admin_pb2.OffsetDeleteRequest: _delete_offsets_response,
    admin_pb2.RemoveMembersRequest: _leave_response,
    admin_pb2.ListRebalancesRequest: _rebalances_response,
    admin_pb2.DescribePhaseRequest: _phase_response,
    **session_admin.RESPONSES,
}


# --- Slices -------------------------------------------------------------------------------------

Values = Callable[[Any], dict[str, Any]]  # Any: a row, and what its message's fields are set to.


def _fill(container: Any, rows: Iterable[Any], values: Values) -> Work[None]:
    """Add a message for each row in place: protobuf would copy messages that are made outside."""
    for number, row in enumerate(rows, 1):
        container.add(**values(row))
        if number % PART == 0:
            yield


def _fill_topics(topics: Any, rows: Iterable[Any], values: Values) -> Work[None]:
    """Group adjacent rows of one topic; the order of the rows is kept."""
    topic: Any = None
    for number, row in enumerate(rows, 1):
        if topic is None or topic.name != row.topic:
            topic = topics.add(name=row.topic)
        topic.partitions.add(**values(row))
        if number % PART == 0:
            yield


def _sorted(rows: Sequence[Any], key: Callable[[Any], Any]) -> Work[Iterator[Any]]:
    """Sort rows in slices: runs of `SORTED_AT_ONCE`, merged lazily."""
    runs = []
    for first in range(0, len(rows), SORTED_AT_ONCE):
        runs.append(sorted(rows[first : first + SORTED_AT_ONCE], key=key))
        yield
    return merge(*runs, key=key)
