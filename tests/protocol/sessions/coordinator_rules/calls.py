"""Calls about one group at the server under test."""

from __future__ import annotations

from typing import Any

import grpc

from coordinator.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    errors_pb2,
    group_pb2,
    group_pb2_grpc,
    session_pb2_grpc,
)
from coordinator.v1 import session_pb2 as pb
from tests.kit import requests
from tests.protocol.sessions.trial import TOPIC, Trial


class GroupCalls(Trial):
    """One group.

    last_holder: who holds the partition of the last commit, if that was fenced: id and name.
    """

    def __init__(
        self, channel: grpc.aio.Channel, metadata: Any, group_id: str, lease_ms: int
    ) -> None:
        super().__init__()
        self._channel, self._metadata, self.group_id = channel, metadata, group_id
        self.lease_ms = lease_ms
        self.policy = pb.GroupPolicy(
            lease_ms=lease_ms, join_quiet_ms=0, initial_delay_ms=0, plan_interval_ms=100
        )
        self.last_holder: tuple[str, str] = ("", "")

    @property
    def lease_s(self) -> float:
        """Lease of the group."""
        return self.lease_ms / 1_000

    def session_call(self) -> Any:  # Any: grpc.aio's call has no public type.
        """A new stream."""
        stub = session_pb2_grpc.GroupSessionsStub(self._channel)
        return stub.Session(metadata=self._metadata)

    async def commit(self, member_id: str, partition: int, offset: int, token: int | None) -> str:
        """Commit one partition; returns the name of its error, or of the call's status."""
        each = group_pb2.OffsetCommitRequest.Partition(
            partition_index=partition, committed_offset=offset
        )
        if token is not None:
            each.token = token
        request = group_pb2.OffsetCommitRequest(
            group_id=self.group_id,
            member_id=member_id,
            topics=[group_pb2.OffsetCommitRequest.Topic(name=TOPIC, partitions=[each])],
        )
        stub = group_pb2_grpc.GroupCoordinatorStub(self._channel)
        answer = await stub.OffsetCommit(request, metadata=self._metadata)
        found = answer.topics[0].partitions[0]
        name: str = errors_pb2.ErrorCode.Name(found.error_code)
        self.transcript.add(f"commit of {partition} at {offset} under {token}: {name}")
        self.last_holder = found.holder_member_id, found.holder_member_name
        return name

    async def join(self) -> str:
        """The name of the error that a classic member gets."""
        stub = group_pb2_grpc.GroupCoordinatorStub(self._channel)
        answer = await stub.JoinGroup(
            requests.join(self.group_id, session_timeout_ms=30_000),
            metadata=self._metadata,
        )
        return str(errors_pb2.ErrorCode.Name(answer.error_code))

    async def set_policy(self, **settings: Any) -> str:
        """Change settings of the group's policy; returns the name of the error."""
        stub = admin_pb2_grpc.GroupAdminStub(self._channel)
        request = admin_pb2.SetGroupPolicyRequest(
            group_id=self.group_id, policy=pb.GroupPolicy(**settings)
        )
        answer = await stub.SetGroupPolicy(request, metadata=self._metadata)
        name: str = errors_pb2.ErrorCode.Name(answer.error_code)
        self.transcript.add(f"policy {settings}: {name}")
        return name

    async def evict(self, member_name: str, *, gone: bool = False) -> str:
        """Evict a member; returns the name of the error."""
        stub = admin_pb2_grpc.GroupAdminStub(self._channel)
        request = admin_pb2.EvictMemberRequest(
            group_id=self.group_id, member_name=member_name, gone=gone
        )
        answer = await stub.EvictMember(request, metadata=self._metadata)
        name: str = errors_pb2.ErrorCode.Name(answer.error_code)
        self.transcript.add(f"eviction of {member_name}, gone: {gone}: {name}")
        return name

    async def delete(self) -> str:
        """Delete the group; returns the name of the error."""
        stub = admin_pb2_grpc.GroupAdminStub(self._channel)
        request = admin_pb2.DeleteGroupsRequest(groups_names=[self.group_id])
        answer = await stub.DeleteGroups(request, metadata=self._metadata)
        return str(errors_pb2.ErrorCode.Name(answer.results[0].error_code))
