"""A thin face over GroupAdmin, for the command line and for scripts."""

from __future__ import annotations

from types import TracebackType

import grpc

from coordinator.assignors import TopicPartition
from coordinator.v1 import admin_pb2 as pb
from coordinator.v1 import admin_pb2_grpc, group_pb2, group_pb2_grpc

TIMEOUT_S = 10.0


class GroupAdmin:
    """Questions about groups, blocking. Use it as a context manager.

    Every method raises grpc.RpcError when the coordinator cannot be reached.
    """

    def __init__(self, bootstrap: str) -> None:
        self._channel = grpc.insecure_channel(bootstrap)
        self._stub = admin_pb2_grpc.GroupAdminStub(self._channel)
        self._groups = group_pb2_grpc.GroupCoordinatorStub(self._channel)

    def __enter__(self) -> GroupAdmin:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._channel.close()

    def list_groups(self) -> list[pb.ListGroupsResponse.Group]:
        """All groups, by id."""
        response = self._stub.ListGroups(pb.ListGroupsRequest(), timeout=TIMEOUT_S)
        return list(response.groups)

    def describe_group(self, group_id: str) -> pb.DescribeGroupsResponse.Group:
        """One group with its members; state Dead if there is none."""
        request = pb.DescribeGroupsRequest(groups=[group_id])
        return self._stub.DescribeGroups(request, timeout=TIMEOUT_S).groups[0]

    def offsets(self, group_id: str) -> dict[TopicPartition, int]:
        """All committed offsets of a group."""
        request = group_pb2.OffsetFetchRequest(group_id=group_id)
        response = self._groups.OffsetFetch(request, timeout=TIMEOUT_S)
        return {
            TopicPartition(t.name, p.partition_index): p.committed_offset
            for t in response.topics
            for p in t.partitions
        }
