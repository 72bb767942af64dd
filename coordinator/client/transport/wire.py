"""Translation of the requests of `calls.py` to protobuf, and of responses and gRPC errors back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import grpc

from coordinator.assignors import TopicPartition
from coordinator.client.codes import code_name
from coordinator.client.member import calls
from coordinator.client.offsets import OffsetAndMetadata, Offsets
from coordinator.dial import address_of
from coordinator.v1 import group_pb2 as pb
from coordinator.v1.errors_pb2 import ErrorCode

METHODS: dict[type[Any], str] = {
    calls.FindCoordinator: "FindCoordinator",
    calls.Join: "JoinGroup",
    calls.Sync: "SyncGroup",
    calls.Beat: "Heartbeat",
    calls.LeaveCall: "LeaveGroup",
    calls.CommitCall: "OffsetCommit",
    calls.FetchCall: "OffsetFetch",
    calls.ReportCall: "ReportLogEnds",
}
"""Name of the stub's method, by type of request."""

DROPPED = grpc.StatusCode.CANCELLED
"""Status of a dropped call; see `calls.Dropped`."""

_REFUSED = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNAUTHENTICATED,
)


# --- Requests ---


def encode(request: calls.Request) -> Any:  # Any: one of the stub's messages.
    """Protobuf message of a request."""
    match request:
        case calls.FindCoordinator(group_id):
            return pb.FindCoordinatorRequest(group_id=group_id)
        case calls.Join(member):
            return pb.JoinGroupRequest(
                group_id=member.group_id,
                session_timeout_ms=request.session_timeout_ms,
                rebalance_timeout_ms=request.rebalance_timeout_ms,
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                protocol_type=request.protocol_type,
                protocols=[
                    pb.JoinGroupRequest.Protocol(name=name, metadata=metadata)
                    for name, metadata in request.protocols
                ],
                reason=request.reason,
                client_id=request.client_id,
                stopped=request_topics(
                    pb.JoinGroupRequest,
                    {p: {"stopped_ms_ago": ago_ms} for p, ago_ms in request.stopped.items()},
                ),
            )
        case calls.Sync(member, protocol_type, protocol_name, assignments):
            return pb.SyncGroupRequest(
                **_named(member),
                protocol_type=protocol_type,
                protocol_name=protocol_name,
                assignments=[
                    pb.SyncGroupRequest.Assignment(member_id=member_id, assignment=assignment)
                    for member_id, assignment in assignments
                ],
            )
        case calls.Beat(member):
            return pb.HeartbeatRequest(**_named(member))
        case calls.LeaveCall(member, reason):
            identity = pb.LeaveGroupRequest.MemberIdentity(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                reason=reason[:255],
            )
            return pb.LeaveGroupRequest(group_id=member.group_id, members=[identity])
        case calls.CommitCall(member, commit, tokens, waited_ms):
            return pb.OffsetCommitRequest(
                **_named(member),
                topics=commit_topics(commit.offsets, commit.expected, tokens, waited_ms),
                atomic=commit.atomic,
                manifest=commit.manifest,
            )
        case calls.FetchCall(group_id, partitions):
            return fetch_request(group_id, partitions or ())
        case calls.ReportCall(member, logs):
            message = pb.ReportLogEndsRequest
            messages = {
                p: {"log_begin_offset": log.start, "log_end_offset": log.stop}
                for p, log in logs.items()
            }
            return message(**_named(member), topics=request_topics(message, messages))


def _named(member: calls.Identity) -> dict[str, Any]:  # Any: the fields' own types.
    return {
        "group_id": member.group_id,
        "generation_id": member.generation,
        "member_id": member.member_id,
        "group_instance_id": member.instance_id,
    }


def commit_topics(
    offsets: Offsets,
    expected: Mapping[TopicPartition, int],
    tokens: Mapping[TopicPartition, int] | None = None,
    waited_ms: int = 0,
) -> list[pb.OffsetCommitRequest.Topic]:
    """Topics of an OffsetCommitRequest; `tokens`: of a session member's holdings."""
    messages: dict[TopicPartition, dict[str, Any]] = {}  # Any: the fields' own types.
    for key, offset in offsets.items():
        commit = OffsetAndMetadata(offset) if isinstance(offset, int) else offset
        messages[key] = {
            "committed_offset": commit.offset,
            "committed_leader_epoch": commit.leader_epoch,
            "committed_metadata": commit.metadata,
            "expected_committed_offset": expected.get(key),
            "token": (tokens or {}).get(key),
            "waited_ms": waited_ms,
        }
    return request_topics(pb.OffsetCommitRequest, messages)


def request_topics(
    message: Any,  # Any: a request with nested messages Topic and Partition.
    partitions: Mapping[TopicPartition, Mapping[str, Any]],
) -> list[Any]:
    """Topics of a request, with the fields of each partition."""
    return [
        message.Topic(
            name=topic,
            partitions=[
                message.Partition(partition_index=p.partition, **partitions[p]) for p in of_topic
            ],
        )
        for topic, of_topic in _by_topic(partitions)
    ]


def fetch_request(group_id: str, partitions: Iterable[TopicPartition]) -> pb.OffsetFetchRequest:
    """Request for the committed offsets of some partitions; of all, if none is named."""
    topics = [
        pb.OffsetFetchRequest.Topic(name=topic, partition_indexes=[p.partition for p in of_topic])
        for topic, of_topic in _by_topic(partitions)
    ]
    return pb.OffsetFetchRequest(group_id=group_id, topics=topics, require_stable=True)


def _by_topic(partitions: Iterable[TopicPartition]) -> Iterable[tuple[str, list[TopicPartition]]]:
    topics: dict[str, list[TopicPartition]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition)
    return topics.items()


# --- Replies ---


def decode(
    response: Any, asked_at: str = ""
) -> calls.CallReply:  # Any: one of the stub's messages.
    """Value of a response.

    Args:
        asked_at: the address that was asked; used if the response names none.
    """
    match response:
        case pb.FindCoordinatorResponse(host=host, port=port):
            return calls.Found(address_of(host, port) if host and port > 0 else asked_at)
        case pb.JoinGroupResponse():
            return _joined(response)
        case pb.SyncGroupResponse():
            return calls.Synced(**_verdict(response), assignment=response.assignment)
        case pb.OffsetCommitResponse():
            return _committed(response)
        case pb.OffsetFetchResponse():
            return calls.Fetched(**_verdict(response), offsets=fetched_offsets(response))
        case _:
            return calls.Acknowledged(**_verdict(response))


def _verdict(response: Any) -> dict[str, str]:  # Any: a response with an error code.
    return {"code": code_name(response.error_code), "message": response.error_message}


def by_partition(response: Any) -> dict[TopicPartition, Any]:  # Any: a response with topics.
    """Partitions of a response, each with its message."""
    return {
        TopicPartition(t.name, p.partition_index): p for t in response.topics for p in t.partitions
    }


def _joined(response: pb.JoinGroupResponse) -> calls.Joined:
    return calls.Joined(
        **_verdict(response),
        member_id=response.member_id,
        generation=response.generation_id,
        leader=response.leader,
        protocol_name=response.protocol_name,
        members=tuple(
            calls.GenerationMember(
                m.member_id,
                m.group_instance_id if m.HasField("group_instance_id") else None,
                m.metadata,
            )
            for m in response.members
        ),
        skip_assignment=response.skip_assignment,
    )


def _committed(response: pb.OffsetCommitResponse) -> calls.Committed:
    answers = by_partition(response)
    return calls.Committed(
        codes=tuple(code_name(code) for code in sorted({a.error_code for a in answers.values()})),
        stored={
            p: answer.committed_offset
            for p, answer in answers.items()
            if answer.error_code == ErrorCode.OFFSET_MISMATCH
        },
        message=response.error_message,
        holders={
            p: (answer.holder_member_id, answer.holder_member_name)
            for p, answer in answers.items()
            if answer.error_code == ErrorCode.FENCED_TOKEN
        },
    )


def fetched_offsets(
    response: pb.OffsetFetchResponse,
) -> dict[TopicPartition, OffsetAndMetadata]:
    return {
        key: OffsetAndMetadata(p.committed_offset, p.metadata, p.committed_leader_epoch)
        for key, p in by_partition(response).items()
    }


# --- Failures ---


def failure_of(error: grpc.aio.AioRpcError, detail: str = "") -> calls.Failure:
    """Failure that a gRPC error stands for.

    Args:
        detail: why the coordinator cannot be reached, if that is known.
    """
    code, reason = error.code(), error.details() or ""
    if code is DROPPED:
        return calls.Dropped(reason)
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return calls.Unimplemented(reason)
    if code not in _REFUSED:
        return calls.CallUnanswered(detail or reason)
    room_s = retry_after_of(error)
    return (
        calls.RefusedCall(reason, code.name)
        if room_s is None
        else calls.Overloaded(reason, round(room_s * 1000))
    )


def retry_after_of(error: grpc.aio.AioRpcError) -> float | None:
    """Seconds until a coordinator that has no room expects to have some; None: it does not say.

    Source: google.rpc.RetryInfo.
    """
    if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
        return None
    # Imported here, since few processes ever need it.
    from google.rpc import error_details_pb2
    from grpc_status import rpc_status

    status = rpc_status.from_call(error)
    info = error_details_pb2.RetryInfo()
    if status is None or not any(detail.Unpack(info) for detail in status.details):
        return None
    return float(info.retry_delay.ToMilliseconds()) / 1000
