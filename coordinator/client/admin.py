"""A thin face over GroupAdmin, for the command line and for scripts."""

from __future__ import annotations

from types import TracebackType

import grpc

from coordinator.v1 import admin_pb2 as pb
from coordinator.v1 import admin_pb2_grpc

TIMEOUT_S = 10.0


class GroupAdmin:
    """Questions about groups, blocking. Use it as a context manager.

    Every method raises grpc.RpcError when the coordinator cannot be reached.
    """

    def __init__(self, bootstrap: str) -> None:
        self._channel = grpc.insecure_channel(bootstrap)
        self._stub = admin_pb2_grpc.GroupAdminStub(self._channel)

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
