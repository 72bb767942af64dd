"""Messages as large as a server takes them, and larger ones, for measuring what they cost it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from google.protobuf.message import Message

from coordinator.v1 import admin_pb2 as admin
from coordinator.v1 import group_pb2 as pb

MESSAGE_BYTES = 2_097_000
"""A little less than the largest message of a server's defaults."""
_ADMIN = admin.DESCRIPTOR.services_by_name["GroupAdmin"]
_GROUPS = pb.DESCRIPTOR.services_by_name["GroupCoordinator"]


@dataclass(frozen=True, slots=True)
class LargeMessage:
    """Description, full method name, and the request bytes to send one after the other."""

    what: str
    method: str
    sent: Sequence[bytes]


def _large(what: str, rpc: str, *sent: Message | bytes) -> LargeMessage:
    service = _ADMIN if rpc in _ADMIN.methods_by_name else _GROUPS
    data = [
        message if isinstance(message, bytes) else message.SerializeToString() for message in sent
    ]
    return LargeMessage(what, f"/{service.full_name}/{rpc}", data)


def large_messages(scale: int) -> Iterator[LargeMessage]:
    """Every kind, in an order in which some build what others ask for.

    Args:
        scale: limits and sizes are divided by it.
    """
    partitions, members, groups = 10_000 // scale, 20_000 // scale, 1_000 // scale
    yield from _offsets(partitions)
    stranger = pb.HeartbeatRequest(group_id="g", member_id="m")
    beats = pb.HeartbeatBatchRequest(heartbeats=[stranger] * members)
    yield _large(f"HeartbeatBatch of {members:,} strangers", "HeartbeatBatch", beats)
    leaving = [pb.LeaveGroupRequest.MemberIdentity(member_id=f"m{n}") for n in range(members)]
    leave = pb.LeaveGroupRequest(group_id="large", members=leaving)
    yield _large(f"LeaveGroup of {members:,} strangers", "LeaveGroup", leave)
    assigned = [pb.SyncGroupRequest.Assignment(member_id=f"m{n}") for n in range(members)]
    sync = pb.SyncGroupRequest(group_id="large", assignments=assigned)
    yield _large(f"SyncGroup with {members:,} assignments", "SyncGroup", sync)
    names = [f"group-{n}" for n in range(groups)]
    described = admin.DescribeGroupsRequest(groups=names)
    yield _large(f"DescribeGroups of {groups:,}", "DescribeGroups", described)
    deleted = admin.DeleteGroupsRequest(groups_names=names)
    yield _large(f"DeleteGroups of {groups:,}", "DeleteGroups", deleted)
    size = MESSAGE_BYTES // scale
    for rpc, field in _REPEATED.items():
        empty = bytes([field << 3 | 2, 0]) * (size // 2)
        yield _large(f"{rpc}, {size:,} bytes of empty items", rpc, empty)
    junk = b"\x7b\x7c" * (size // 2)
    strange = pb.JoinGroupRequest(protocols=[pb.JoinGroupRequest.Protocol.FromString(junk)])
    what = f"JoinGroup, {size:,} bytes of unknown fields in a protocol"
    yield _large(what, "JoinGroup", strange)


def _offsets(partitions: int) -> Iterator[LargeMessage]:
    commits = [_commit(f"t{n}", partitions) for n in range(100)]
    yield _large(f"OffsetCommit of {partitions:,} partitions", "OffsetCommit", commits[0])
    stored = f"{100 * partitions:,}"
    yield _large(f"100 such commits, {stored} in all", "OffsetCommit", *commits)
    everything = pb.OffsetFetchRequest(group_id="large")
    yield _large(f"OffsetFetch of all {stored}", "OffsetFetch", everything)
    named = pb.OffsetFetchRequest(group_id="large")
    named.topics.add(name="t0", partition_indexes=range(partitions))
    yield _large(f"OffsetFetch of {partitions:,}", "OffsetFetch", named)
    doomed = admin.OffsetDeleteRequest(group_id="large")
    indexes = doomed.topics.add(name="t0").partitions
    for number in range(partitions):
        indexes.add(partition_index=number)
    yield _large(f"OffsetDelete of {partitions:,}", "OffsetDelete", doomed)


_REPEATED = {
    "JoinGroup": 7,
    "SyncGroup": 7,
    "HeartbeatBatch": 1,
    "LeaveGroup": 2,
    "OffsetCommit": 5,
    "OffsetFetch": 2,
    "ReportLogEnds": 5,
    "DescribeGroups": 1,
    "DeleteGroups": 1,
    "OffsetDelete": 2,
    "ListGroups": 1,
}
"""RPCs, and the number of a repeated field of each."""


def _commit(topic: str, partitions: int) -> pb.OffsetCommitRequest:
    request = pb.OffsetCommitRequest(group_id="large")
    committed = request.topics.add(name=topic).partitions
    for number in range(partitions):
        committed.add(partition_index=number, committed_offset=number)
    return request
