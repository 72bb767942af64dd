"""The wire: requests of `calls.py` as protobuf, and responses and gRPC errors as its values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import grpc

from coordinator.assignors import TopicPartition
from coordinator.client.calls import (
    Acknowledged,
    Beat,
    Code,
    CommitOffsets,
    Committed,
    Dropped,
    Failure,
    Fetched,
    FetchOffsets,
    FindCoordinator,
    Found,
    Identity,
    Join,
    Joined,
    JoinedMember,
    Leave,
    Malformed,
    NoRoom,
    Refused,
    Reply,
    ReportLogEnds,
    Request,
    Sync,
    Synced,
    Unimplemented,
    Unreachable,
)
from coordinator.client.offsets import OffsetAndMetadata, Offsets
from coordinator.v1 import group_pb2 as pb
from coordinator.v1.errors_pb2 import ErrorCode

METHODS: dict[type[Any], str] = {
    FindCoordinator: "FindCoordinator",
    Join: "JoinGroup",
    Sync: "SyncGroup",
    Beat: "Heartbeat",
    Leave: "LeaveGroup",
    CommitOffsets: "OffsetCommit",
    FetchOffsets: "OffsetFetch",
    ReportLogEnds: "ReportLogEnds",
}
"""The stub's method for each request."""

DROPPED = grpc.StatusCode.CANCELLED
"""See `calls.Dropped`."""

_FAILURES: dict[grpc.StatusCode, type[Malformed | Dropped | Unimplemented]] = {
    grpc.StatusCode.INVALID_ARGUMENT: Malformed,
    DROPPED: Dropped,
    grpc.StatusCode.UNIMPLEMENTED: Unimplemented,
}
_REFUSED = (
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
)


# --- Requests ---


def encode(request: Request) -> Any:  # Any: one of the stub's messages.
    """The message of a request."""
    match request:
        case FindCoordinator(group_id):
            return pb.FindCoordinatorRequest(group_id=group_id)
        case Join():
            return _join(request)
        case Sync():
            return _sync(request)
        case Beat(member):
            return pb.HeartbeatRequest(**_named(member))
        case Leave(member, reason):
            identity = pb.LeaveGroupRequest.MemberIdentity(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                reason=reason[:255],
            )
            return pb.LeaveGroupRequest(group_id=member.group_id, members=[identity])
        case CommitOffsets(member, commit):
            return pb.OffsetCommitRequest(
                **_named(member),
                topics=commit_topics(commit.offsets, commit.expected),
                atomic=commit.atomic,
                manifest=commit.manifest,
            )
        case FetchOffsets(group_id, partitions):
            topics = [
                pb.OffsetFetchRequest.Topic(
                    name=topic, partition_indexes=[p.partition for p in asked]
                )
                for topic, asked in _by_topic(partitions or ())
            ]
            return pb.OffsetFetchRequest(group_id=group_id, topics=topics, require_stable=True)
        case ReportLogEnds(member, ends):
            return _report(member, ends)


def _named(member: Identity) -> dict[str, Any]:  # Any: the fields' own types.
    return {
        "group_id": member.group_id,
        "generation_id": member.generation,
        "member_id": member.member_id,
        "group_instance_id": member.instance_id,
    }


def _join(request: Join) -> pb.JoinGroupRequest:
    return pb.JoinGroupRequest(
        group_id=request.member.group_id,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        member_id=request.member.member_id,
        group_instance_id=request.member.instance_id,
        protocol_type=request.protocol_type,
        protocols=[
            pb.JoinGroupRequest.Protocol(name=name, metadata=metadata)
            for name, metadata in request.protocols
        ],
        reason=request.reason,
        client_id=request.client_id,
    )


def _sync(request: Sync) -> pb.SyncGroupRequest:
    return pb.SyncGroupRequest(
        **_named(request.member),
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments=[
            pb.SyncGroupRequest.Assignment(member_id=member_id, assignment=assignment)
            for member_id, assignment in request.assignments
        ],
    )


def _report(member: Identity, ends: Mapping[TopicPartition, int]) -> pb.ReportLogEndsRequest:
    message = pb.ReportLogEndsRequest
    return message(
        **_named(member),
        topics=[
            message.Topic(
                name=topic,
                partitions=[
                    message.Partition(partition_index=p.partition, log_end_offset=ends[p])
                    for p in partitions
                ],
            )
            for topic, partitions in _by_topic(ends)
        ],
    )


def commit_topics(
    offsets: Offsets, expected: Mapping[TopicPartition, int]
) -> list[pb.OffsetCommitRequest.Topic]:
    """The topics of a commit request."""
    message = pb.OffsetCommitRequest
    told = {
        p: OffsetAndMetadata(offset) if isinstance(offset, int) else offset
        for p, offset in offsets.items()
    }
    return [
        message.Topic(
            name=topic,
            partitions=[
                message.Partition(
                    partition_index=p.partition,
                    committed_offset=told[p].offset,
                    committed_leader_epoch=told[p].leader_epoch,
                    committed_metadata=told[p].metadata,
                    expected_committed_offset=expected.get(p),
                )
                for p in partitions
            ],
        )
        for topic, partitions in _by_topic(told)
    ]


def _by_topic(partitions: Iterable[TopicPartition]) -> Iterable[tuple[str, list[TopicPartition]]]:
    topics: dict[str, list[TopicPartition]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition)
    return topics.items()


# --- Replies ---


def decode(response: Any, asked_at: str = "") -> Reply:  # Any: one of the stub's messages.
    """What a response says.

    Args:
        asked_at: the address that was asked; it coordinates the group if it names nobody.
    """
    match response:
        case pb.FindCoordinatorResponse(host=host, port=port):
            return Found(f"{host}:{port}" if host and port > 0 else asked_at)
        case pb.JoinGroupResponse():
            return _joined(response)
        case pb.SyncGroupResponse():
            return Synced(**_verdict(response), assignment=response.assignment)
        case pb.OffsetCommitResponse():
            return _committed(response)
        case pb.OffsetFetchResponse():
            return fetched(response)
        case _:
            return Acknowledged(**_verdict(response))


def _verdict(response: Any) -> dict[str, str]:  # Any: a response with an error code.
    return {"code": code_name(response.error_code), "message": response.error_message}


def code_name(code: int) -> str:
    """The name of an error code; its number, if it is of a later version."""
    known = code in ErrorCode.values()
    return str(ErrorCode.Name(ErrorCode.ValueType(code))) if known else str(code)


def _joined(response: pb.JoinGroupResponse) -> Joined:
    return Joined(
        **_verdict(response),
        member_id=response.member_id,
        generation=response.generation_id,
        leader=response.leader,
        protocol_name=response.protocol_name,
        members=tuple(
            JoinedMember(
                m.member_id,
                m.group_instance_id if m.HasField("group_instance_id") else None,
                m.metadata,
            )
            for m in response.members
        ),
        skip_assignment=response.skip_assignment,
    )


def _committed(response: pb.OffsetCommitResponse) -> Committed:
    answers = {
        TopicPartition(t.name, p.partition_index): p for t in response.topics for p in t.partitions
    }
    names = {p: code_name(answer.error_code) for p, answer in answers.items()}
    return Committed(
        codes=tuple(code_name(code) for code in sorted({a.error_code for a in answers.values()})),
        stored={
            p: answers[p].committed_offset for p in answers if names[p] == Code.OFFSET_MISMATCH
        },
        message=response.error_message,
    )


def fetched(response: pb.OffsetFetchResponse) -> Fetched:
    """What an OffsetFetch has found."""
    return Fetched(
        **_verdict(response),
        offsets={
            TopicPartition(t.name, p.partition_index): OffsetAndMetadata(
                p.committed_offset, p.metadata, p.committed_leader_epoch
            )
            for t in response.topics
            for p in t.partitions
        },
    )


# --- Failures ---


def failure_of(error: grpc.aio.AioRpcError, detail: str = "") -> Failure:
    """Why a call has no response; `detail`: said of one that found nobody, if it is known."""
    code, told = error.code(), error.details() or ""
    if code in _FAILURES:
        return _FAILURES[code](told)
    if code in _REFUSED:
        room_s = room_after_s(error)
        return Refused(told, code.name) if room_s is None else NoRoom(told, round(room_s * 1000))
    return Unreachable(detail or told)


def room_after_s(error: grpc.aio.AioRpcError) -> float | None:
    """When a coordinator that has no room says that it may have some; None: it does not say.

    Source: google.rpc.RetryInfo.
    """
    if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
        return None
    # What it takes to read the details is not needed before there are some.
    from google.rpc import error_details_pb2
    from grpc_status import rpc_status

    status = rpc_status.from_call(error)
    info = error_details_pb2.RetryInfo()
    if status is None or not any(detail.Unpack(info) for detail in status.details):
        return None
    return float(info.retry_delay.ToMilliseconds()) / 1000
