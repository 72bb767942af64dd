"""Translation of replies to responses, with the core's error codes and messages."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from heapq import merge
from operator import attrgetter
from typing import Any

from google.protobuf.message import Message

from coordinator.core.values import replies as r
from coordinator.core.values.errors import ErrorCode
from coordinator.runtime.field_mapping import WriteFields
from coordinator.runtime.payloads import assignment_of
from coordinator.runtime.slices import PART, Work, at_once
from coordinator.service.grpc.translate import session_admin, session_journal
from coordinator.service.grpc.translate.projections import message_of, projection
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
    response = (
        _OF_SEVERAL[type(request)](request, replies) if row is None else row(request, *replies)
    )
    return (yield from response) if isinstance(response, Generator) else response


def error_code(error: ErrorCode) -> errors_pb2.ErrorCode.ValueType:
    """Convert an error code to the contract's enum, which has the same numbers."""
    return errors_pb2.ErrorCode.ValueType(error)


def _join_response(_: Message, reply: r.JoinReply) -> Work[Message]:
    response = message_of(group_pb2.JoinGroupResponse, reply, "members")
    yield from _fill(response, "members", reply.members)
    return response


def heartbeat_response(reply: r.HeartbeatReply) -> group_pb2.HeartbeatResponse:
    return message_of(group_pb2.HeartbeatResponse, reply)


def _heartbeat_batch_response(_: Message, replies: Sequence[r.HeartbeatReply]) -> Work[Message]:
    response = group_pb2.HeartbeatBatchResponse()
    yield from _fill(response, "heartbeats", replies)
    return response


def _leave_response(request: Message, reply: r.LeaveReply) -> Work[Message]:
    by_operator = isinstance(request, admin_pb2.RemoveMembersRequest)
    kind = admin_pb2.RemoveMembersResponse if by_operator else group_pb2.LeaveGroupResponse
    response = message_of(kind, reply, "members")
    yield from _fill(response, "members", reply.members)
    return response


def _commit_response(_: Message, reply: r.CommitReply) -> Work[Message]:
    response = message_of(group_pb2.OffsetCommitResponse, reply)
    yield from _fill_topics(
        response,
        reply.results,
        lambda x: {"committed_offset": x.found if x.error is ErrorCode.OFFSET_MISMATCH else 0},
    )
    return response


def _fetch_response(request: group_pb2.OffsetFetchRequest, reply: r.FetchReply) -> Work[Message]:
    response = message_of(group_pb2.OffsetFetchResponse, reply)
    if request.topics:
        yield from _fill_topics(response, reply.offsets)
    else:
        stored = yield from _sorted(reply.offsets, attrgetter("topic", "partition"))
        yield from _fill_topics(response, stored)
    return response


def _documents_response(_: Message, reply: r.DocumentsReply) -> Message:
    documents = [
        message_of(group_pb2.Document, document, "group_id") for document in reply.documents
    ]
    return message_of(group_pb2.FetchDocumentsResponse, reply, "documents", documents=documents)


def _list_response(_: Message, reply: r.ListReply) -> Work[Message]:
    response = message_of(admin_pb2.ListGroupsResponse, reply, "groups")
    yield from _fill(response, "groups", reply.groups)
    return response


def _describe_response(_: Message, replies: Sequence[r.DescribeReply]) -> Work[Message]:
    response = admin_pb2.DescribeGroupsResponse()
    for reply in replies:
        group = response.groups.add(**_projection_to(reply, response, "groups", "members")(reply))
        yield
        yield from _fill(
            group, "members", reply.members, lambda m: {"member_assignment": assignment_of(m)}
        )
    return response


def _delete_response(_: Message, replies: Sequence[r.DeleteReply]) -> Work[Message]:
    response = admin_pb2.DeleteGroupsResponse()
    yield from _fill(response, "results", replies)
    return response


def _delete_offsets_response(_: Message, reply: r.OffsetDeleteReply) -> Work[Message]:
    response = message_of(admin_pb2.OffsetDeleteResponse, reply)
    yield from _fill_topics(response, reply.results)
    return response


def _list_log_ends_response(_: Message, reply: r.ListLogEndsReply) -> Work[Message]:
    response = message_of(admin_pb2.ListLogEndsResponse, reply)
    ends = yield from _sorted(reply.ends, attrgetter("topic", "partition"))
    yield from _fill_topics(response, ends)
    return response


def _rebalances_response(
    request: admin_pb2.ListRebalancesRequest, reply: r.RebalancesReply
) -> Work[Message]:
    newest_first = reply.rebalances
    response = message_of(
        admin_pb2.ListRebalancesResponse,
        reply,
        *("rebalances", "refused_joins"),
        refused_joins=map(refused_join_message, reply.refused_joins),
    )
    for index, record in enumerate(newest_first[: request.limit or None]):
        response.rebalances.append(rebalance_message(record, newest_first[index + 1 :]))
        yield
    for journal_entry in session_journal.journal(
        request.group_id, reply.plans, reply.handoffs, request.limit
    ):
        if isinstance(journal_entry, admin_pb2.Rebalance):
            response.rebalances.append(journal_entry)
        else:
            response.session_handoffs.append(journal_entry)
        yield
    return response


def _phase_response(_: Message, reply: r.PhaseReply) -> Work[Message]:
    response = message_of(admin_pb2.DescribePhaseResponse, reply, "awaited")
    yield from _fill(response, "awaited", reply.awaited)
    return response


def _here(request: group_pb2.FindCoordinatorRequest, _: Sequence[r.Reply]) -> Message:
    """Answer FindCoordinator for a coordinator without a network (`coordinator.testing`)."""
    return find_response(found_coordinator(request.group_id, NodeInfo(0, "localhost", 0, "")))


def find_response(coordinator: FoundCoordinator) -> group_pb2.FindCoordinatorResponse:
    return message_of(group_pb2.FindCoordinatorResponse, coordinator)


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
    group_pb2.SyncGroupRequest: lambda _, reply: message_of(group_pb2.SyncGroupResponse, reply),
    group_pb2.HeartbeatRequest: lambda _, reply: heartbeat_response(reply),
    group_pb2.LeaveGroupRequest: _leave_response,
    group_pb2.OffsetCommitRequest: _commit_response,
    group_pb2.OffsetFetchRequest: _fetch_response,
    group_pb2.PutDocumentsRequest: lambda _, reply: message_of(
        group_pb2.PutDocumentsResponse, reply
    ),
    group_pb2.FetchDocumentsRequest: _documents_response,
    group_pb2.ReportLogEndsRequest: lambda _, reply: message_of(
        group_pb2.ReportLogEndsResponse, reply
    ),
    admin_pb2.ListLogEndsRequest: _list_log_ends_response,
    admin_pb2.ListGroupsRequest: _list_response,
    admin_pb2.OffsetDeleteRequest: _delete_offsets_response,
    admin_pb2.RemoveMembersRequest: _leave_response,
    admin_pb2.ListRebalancesRequest: _rebalances_response,
    admin_pb2.DescribePhaseRequest: _phase_response,
    **session_admin.RESPONSES,
}


# --- Slices -------------------------------------------------------------------------------------

More = Callable[[Any], dict[str, Any]] | None
"""Fields of a row's message, besides those that it has in common with the row. Any: the row."""


def _projection_to(row: Any, owner: Message, field: str, *but: str) -> WriteFields:
    """The projection of a row to the messages in a field."""
    return projection(type(row), owner.DESCRIPTOR.fields_by_name[field].message_type, *but)


def _fill(owner: Message, field: str, rows: Iterable[Any], more: More = None) -> Work[None]:
    """Add a message for each row in place: protobuf would copy messages that are made outside."""
    container, fields_of = getattr(owner, field), None
    for number, row in enumerate(rows, 1):
        fields_of = fields_of or _projection_to(row, owner, field)
        fields = fields_of(row)
        if more is not None:
            fields |= more(row)
        container.add(**fields)
        if number % PART == 0:
            yield


def _fill_topics(owner: Any, rows: Iterable[Any], more: More = None) -> Work[None]:
    """Group adjacent rows of one topic; the order of the rows is kept."""
    topic, fields_of = None, None
    for number, row in enumerate(rows, 1):
        if topic is None or topic.name != row.topic:
            topic = owner.topics.add(name=row.topic)
        fields_of = fields_of or _projection_to(row, topic, "partitions")
        fields = fields_of(row)
        if more is not None:
            fields |= more(row)
        topic.partitions.add(**fields)
        if number % PART == 0:
            yield


def _sorted(rows: Sequence[Any], key: Callable[[Any], Any]) -> Work[Iterator[Any]]:
    """Sort rows in slices: runs of `SORTED_AT_ONCE`, merged lazily."""
    runs = []
    for first in range(0, len(rows), SORTED_AT_ONCE):
        runs.append(sorted(rows[first : first + SORTED_AT_ONCE], key=key))
        yield
    return merge(*runs, key=key)
