"""Groups that come, work and go, for measuring what a server keeps of them.

Every round makes a group with a name of its own, has three members join one after the other,
commit and beat, sends a call that is malformed and one that is given up, and deletes the group.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Iterator
from typing import Any

import grpc

from coordinator.v1 import admin_pb2, admin_pb2_grpc, group_pb2_grpc
from coordinator.v1 import group_pb2 as pb
from coordinator.v1.errors_pb2 import ErrorCode
from tests.bench.load import heartbeat, heartbeat_batch, join

A_BATCH = 512
ROUNDS_A_CONNECTION = 50
MEMBERS = 3
COMMITS = 5
GIVEN_UP_S = 0.02


async def name_groups(address: str, count: int) -> None:
    """Beat in so many groups that do not exist, so that caches of group ids are full."""
    async with grpc.aio.insecure_channel(address) as channel:
        stub: Any = group_pb2_grpc.GroupCoordinatorStub(channel)
        for start in range(0, count, A_BATCH):
            ids = (f"nobody-{number}" for number in range(start, start + A_BATCH))
            await stub.HeartbeatBatch(heartbeat_batch(heartbeat(group, "m", 1) for group in ids))


async def come_and_go(address: str, numbers: Iterator[int], until: float) -> None:
    """One round after the other, on a new connection now and then.

    Args:
        address: of the server.
        numbers: a group is named after each; several tasks may share them.
        until: when to end, in seconds of `time.monotonic`.
    Raises:
        RuntimeError: a call that should have been taken was refused.
    """
    while time.monotonic() < until:
        options = (("grpc.use_local_subchannel_pool", 1),)
        async with grpc.aio.insecure_channel(address, options=options) as channel:
            for number in itertools.islice(numbers, ROUNDS_A_CONNECTION):
                if time.monotonic() >= until:
                    return
                await _round(channel, f"churn-{number}")


async def _round(channel: grpc.aio.Channel, group_id: str) -> None:
    """One group, from its first member to its deletion."""
    stub: Any = group_pb2_grpc.GroupCoordinatorStub(channel)
    admin: Any = admin_pb2_grpc.GroupAdminStub(channel)
    members: list[str] = []
    generation = -1
    for _ in range(MEMBERS):
        asked = await stub.JoinGroup(join(group_id, two_phase=True))
        members.append(asked.member_id)
        joining = [
            stub.JoinGroup(join(group_id, two_phase=True, member_id=member)) for member in members
        ]
        joined = await asyncio.gather(*joining)
        await asyncio.gather(*(stub.SyncGroup(_sync(group_id, answer)) for answer in joined))
        generation = joined[0].generation_id
    for offset in range(COMMITS):
        await stub.Heartbeat(heartbeat(group_id, members[0], generation))
        committed = await stub.OffsetCommit(_commit(group_id, members[0], generation, offset))
        _expect_none(committed.topics[0].partitions[0].error_code)
    with contextlib.suppress(grpc.aio.AioRpcError):
        await stub.JoinGroup(pb.JoinGroupRequest())  # Malformed: answered INVALID_ARGUMENT.
    with contextlib.suppress(grpc.aio.AioRpcError):
        late = join(group_id, two_phase=True, member_id=members[0])
        late.protocols[0].metadata = b"another"  # A rebalance, for which the others are not there.
        await stub.JoinGroup(late, timeout=GIVEN_UP_S)
    leaving = [pb.LeaveGroupRequest.MemberIdentity(member_id=member) for member in members]
    await stub.LeaveGroup(pb.LeaveGroupRequest(group_id=group_id, members=leaving))
    deleted = await admin.DeleteGroups(admin_pb2.DeleteGroupsRequest(groups_names=[group_id]))
    _expect_none(deleted.results[0].error_code)


def _sync(group_id: str, joined: pb.JoinGroupResponse) -> pb.SyncGroupRequest:
    _expect_none(joined.error_code)
    shares = [
        pb.SyncGroupRequest.Assignment(member_id=member.member_id, assignment=b"share")
        for member in joined.members
    ]
    return pb.SyncGroupRequest(
        group_id=group_id,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=shares,
    )


def _commit(group_id: str, member_id: str, generation: int, offset: int) -> pb.OffsetCommitRequest:
    partition = pb.OffsetCommitRequest.Partition(partition_index=0, committed_offset=offset)
    return pb.OffsetCommitRequest(
        group_id=group_id,
        member_id=member_id,
        generation_id=generation,
        topics=[pb.OffsetCommitRequest.Topic(name="events", partitions=[partition])],
    )


def _expect_none(error: ErrorCode.ValueType) -> None:
    if error != ErrorCode.NONE:
        raise RuntimeError(f"a call of the benchmark was refused: {ErrorCode.Name(error)}")
