"""Replies become responses. Codes and texts are the core's; nothing is decided here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

from google.protobuf.message import Message

from coordinator.core import replies as r
from coordinator.core.errors import ErrorCode, advice
from coordinator.service.translate.rebalances import rebalance_message, refused_join_message
from coordinator.v1 import admin_pb2, errors_pb2, group_pb2


def response_of(request: Message, replies: Sequence[r.Reply]) -> Message:
    """The response to a request, made of the replies to its commands, in their order.

    Raises:
        KeyError: the message is not a request of GroupCoordinator or GroupAdmin.
    """
    return _RESPONSES[type(request)](request, replies)


def error_code(error: ErrorCode) -> errors_pb2.ErrorCode.ValueType:
    """The contract's number of a code, which is the code's own."""
    return errors_pb2.ErrorCode.ValueType(error)


def _join_response(_: Message, replies: Sequence[r.JoinReply]) -> Message:
    (reply,) = replies
    return group_pb2.JoinGroupResponse(
        error_code=error_code(reply.error),
        error_message=reply.message,
        generation_id=reply.generation,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol_name,
        leader=reply.leader,
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id,
        members=[
            group_pb2.JoinGroupResponse.Member(
                member_id=m.member_id, group_instance_id=m.instance_id, metadata=m.metadata
            )
            for m in reply.members
        ],
    )


def _sync_response(_: Message, replies: Sequence[r.SyncReply]) -> Message:
    (reply,) = replies
    return group_pb2.SyncGroupResponse(
        error_code=error_code(reply.error),
        error_message=reply.message,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol_name,
        assignment=reply.assignment,
    )


def heartbeat_response(reply: r.HeartbeatReply) -> group_pb2.HeartbeatResponse:
    """The hot path's answer."""
    return group_pb2.HeartbeatResponse(
        error_code=error_code(reply.error), error_message=reply.message
    )


def _heartbeat_response(_: Message, replies: Sequence[r.HeartbeatReply]) -> Message:
    (reply,) = replies
    return heartbeat_response(reply)


def _heartbeat_batch_response(_: Message, replies: Sequence[r.HeartbeatReply]) -> Message:
    return group_pb2.HeartbeatBatchResponse(heartbeats=[heartbeat_response(x) for x in replies])


def _leave_response(_: Message, replies: Sequence[r.LeaveReply]) -> Message:
    (reply,) = replies
    return group_pb2.LeaveGroupResponse(
        error_code=error_code(reply.error),
        error_message=reply.message,
        members=[
            group_pb2.LeaveGroupResponse.MemberResponse(
                member_id=m.member_id,
                group_instance_id=m.instance_id,
                error_code=error_code(m.error),
            )
            for m in reply.members
        ],
    )


def _commit_response(_: Message, replies: Sequence[r.CommitReply]) -> Message:
    (reply,) = replies
    topics = [
        group_pb2.OffsetCommitResponse.Topic(
            name=topic,
            partitions=[
                group_pb2.OffsetCommitResponse.Partition(
                    partition_index=x.partition,
                    error_code=error_code(x.error),
                    committed_offset=x.found if x.error is ErrorCode.OFFSET_MISMATCH else 0,
                )
                for x in results
            ],
        )
        for topic, results in _by_topic(reply.results)
    ]
    return group_pb2.OffsetCommitResponse(topics=topics, error_message=reply.message)


def _fetch_response(_: Message, replies: Sequence[r.FetchReply]) -> Message:
    (reply,) = replies
    topics = [
        group_pb2.OffsetFetchResponse.Topic(
            name=topic,
            partitions=[
                group_pb2.OffsetFetchResponse.Partition(
                    partition_index=x.partition,
                    committed_offset=x.offset,
                    committed_leader_epoch=x.leader_epoch,
                    metadata=x.metadata,
                    error_code=error_code(x.error),
                )
                for x in offsets
            ],
        )
        for topic, offsets in _by_topic(reply.offsets)
    ]
    return group_pb2.OffsetFetchResponse(
        error_code=error_code(reply.error),
        error_message=reply.message,
        topics=topics,
        manifest=reply.manifest,
    )


def _list_response(request: admin_pb2.ListGroupsRequest, replies: Sequence[r.ListReply]) -> Message:
    """One reply from each shard; an error of one of them is the answer's."""
    failed = next((x for x in replies if x.error is not ErrorCode.NONE), None)
    groups = sorted((g for reply in replies for g in reply.groups), key=attrgetter("group_id"))
    if request.limit > 0:
        del groups[request.limit :]
    return admin_pb2.ListGroupsResponse(
        error_code=error_code(failed.error if failed else ErrorCode.NONE),
        error_message=failed.message if failed else "",
        groups=[
            admin_pb2.ListGroupsResponse.Group(
                group_id=g.group_id,
                protocol_type=g.protocol_type,
                group_state=g.state,
                group_type=g.group_type,
                member_count=g.member_count,
            )
            for g in groups
        ],
        matching=sum(reply.matching for reply in replies),
    )


def _describe_response(_: Message, replies: Sequence[r.DescribeReply]) -> Message:
    return admin_pb2.DescribeGroupsResponse(
        groups=[
            admin_pb2.DescribeGroupsResponse.Group(
                error_code=error_code(g.error),
                error_message=g.message,
                group_id=g.group_id,
                group_state=g.state,
                protocol_type=g.protocol_type,
                protocol_data=g.protocol_name,
                members=[
                    admin_pb2.DescribeGroupsResponse.Member(
                        member_id=m.member_id,
                        group_instance_id=m.instance_id,
                        client_id=m.client_id,
                        client_host=m.client_host,
                        member_metadata=m.metadata,
                        member_assignment=m.assignment,
                    )
                    for m in g.members
                ],
                generation_id=g.generation,
                leader=g.leader,
            )
            for g in replies
        ]
    )


def _delete_response(_: Message, replies: Sequence[r.DeleteReply]) -> Message:
    return admin_pb2.DeleteGroupsResponse(
        results=[
            admin_pb2.DeleteGroupsResponse.Result(
                group_id=x.group_id, error_code=error_code(x.error), error_message=x.message
            )
            for x in replies
        ]
    )


def _delete_offsets_response(_: Message, replies: Sequence[r.OffsetDeleteReply]) -> Message:
    (reply,) = replies
    return admin_pb2.OffsetDeleteResponse(
        error_code=error_code(reply.error),
        error_message=reply.message,
        topics=[
            admin_pb2.OffsetDeleteResponse.Topic(
                name=topic,
                partitions=[
                    admin_pb2.OffsetDeleteResponse.Partition(
                        partition_index=x.partition, error_code=error_code(x.error)
                    )
                    for x in results
                ],
            )
            for topic, results in _by_topic(reply.results)
        ],
    )


def _report_log_ends_response(_: Message, replies: Sequence[r.ReportLogEndsReply]) -> Message:
    (reply,) = replies
    return group_pb2.ReportLogEndsResponse(
        error_code=error_code(reply.error), error_message=reply.message
    )


def _list_log_ends_response(_: Message, replies: Sequence[r.ListLogEndsReply]) -> Message:
    (reply,) = replies
    topics = [
        admin_pb2.ListLogEndsResponse.Topic(
            name=topic,
            partitions=[
                admin_pb2.ListLogEndsResponse.Partition(
                    partition_index=x.partition, log_end_offset=x.offset, told_at_ms=x.told_at_ms
                )
                for x in ends
            ],
        )
        for topic, ends in _by_topic(reply.ends)
    ]
    return admin_pb2.ListLogEndsResponse(
        error_code=error_code(reply.error), error_message=reply.message, topics=topics
    )


def _rebalances_response(
    request: admin_pb2.ListRebalancesRequest, replies: Sequence[r.RebalancesReply]
) -> Message:
    (reply,) = replies
    newest_first = reply.rebalances
    return admin_pb2.ListRebalancesResponse(
        error_code=error_code(reply.error),
        error_message=reply.message,
        rebalances=[
            rebalance_message(record, newest_first[index + 1 :])
            for index, record in enumerate(newest_first[: request.limit or None])
        ],
        refused_joins=map(refused_join_message, reply.refused_joins),
    )


def _phase_response(_: Message, replies: Sequence[r.PhaseReply]) -> Message:
    (reply,) = replies
    return admin_pb2.DescribePhaseResponse(
        error_code=error_code(reply.error),
        error_message=reply.message,
        group_state=reply.state,
        since_ms=reply.since_ms,
        deadline_ms=reply.deadline_ms,
        is_initial_delay=reply.is_initial_delay,
        awaited=[
            admin_pb2.DescribePhaseResponse.Member(
                member_id=m.member_id,
                client_id=m.client_id,
                client_host=m.client_host,
                is_leader=m.is_leader,
                last_heard_ms=m.last_heard_ms,
                session_timeout_ms=m.session_timeout_ms,
            )
            for m in reply.awaited
        ],
    )


def _here(request: group_pb2.FindCoordinatorRequest, replies: Sequence[r.Reply]) -> Message:
    """A coordinator without a network is found where it is."""
    return find_response(request, 0, "localhost", 0)


def find_response(
    request: group_pb2.FindCoordinatorRequest, node_id: int, host: str, port: int
) -> group_pb2.FindCoordinatorResponse:
    """Where a group is coordinated."""
    if not request.group_id:
        error = ErrorCode.INVALID_GROUP_ID
        return group_pb2.FindCoordinatorResponse(
            error_code=error_code(error), error_message=advice(error), node_id=-1, port=-1
        )
    return group_pb2.FindCoordinatorResponse(node_id=node_id, host=host, port=port)


def nowhere_response() -> group_pb2.FindCoordinatorResponse:
    """Nobody coordinates the group at the moment."""
    error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return group_pb2.FindCoordinatorResponse(
        error_code=error_code(error), error_message=advice(error), node_id=-1, port=-1
    )


_RESPONSES: dict[type[Message], Callable[[Any, Any], Message]] = {
    group_pb2.FindCoordinatorRequest: _here,
    group_pb2.JoinGroupRequest: _join_response,
    group_pb2.SyncGroupRequest: _sync_response,
    group_pb2.HeartbeatRequest: _heartbeat_response,
    group_pb2.HeartbeatBatchRequest: _heartbeat_batch_response,
    group_pb2.LeaveGroupRequest: _leave_response,
    group_pb2.OffsetCommitRequest: _commit_response,
    group_pb2.OffsetFetchRequest: _fetch_response,
    group_pb2.ReportLogEndsRequest: _report_log_ends_response,
    admin_pb2.ListLogEndsRequest: _list_log_ends_response,
    admin_pb2.ListGroupsRequest: _list_response,
    admin_pb2.DescribeGroupsRequest: _describe_response,
    admin_pb2.DeleteGroupsRequest: _delete_response,
    admin_pb2.OffsetDeleteRequest: _delete_offsets_response,
    admin_pb2.ListRebalancesRequest: _rebalances_response,
    admin_pb2.DescribePhaseRequest: _phase_response,
}


def _by_topic(results: Iterable[Any]) -> list[tuple[str, list[Any]]]:
    """Neighbours of one topic together; the order stays that of the request."""
    return [(topic, list(rows)) for topic, rows in groupby(results, key=lambda x: str(x.topic))]
