"""The RPCs of GroupAdmin."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc

from coordinator.service.rpc import Context, Rpc
from coordinator.v1 import admin_pb2 as pb
from coordinator.v1 import admin_pb2_grpc


class AdminService(admin_pb2_grpc.GroupAdminServicer):
    """What operators ask."""

    def __init__(self, rpc: Rpc) -> None:
        self._rpc = rpc

    async def ListGroups(
        self, request: pb.ListGroupsRequest, context: Context
    ) -> pb.ListGroupsResponse:
        return await self._rpc.answer(request, context, pb.ListGroupsResponse)

    async def DescribeGroups(
        self, request: pb.DescribeGroupsRequest, context: Context
    ) -> pb.DescribeGroupsResponse:
        return await self._rpc.answer(request, context, pb.DescribeGroupsResponse)

    async def DeleteGroups(
        self, request: pb.DeleteGroupsRequest, context: Context
    ) -> pb.DeleteGroupsResponse:
        return await self._rpc.answer(request, context, pb.DeleteGroupsResponse)

    async def OffsetDelete(
        self, request: pb.OffsetDeleteRequest, context: Context
    ) -> pb.OffsetDeleteResponse:
        return await self._rpc.answer(request, context, pb.OffsetDeleteResponse)

    async def ListLogEnds(
        self, request: pb.ListLogEndsRequest, context: Context
    ) -> pb.ListLogEndsResponse:
        return await self._rpc.answer(request, context, pb.ListLogEndsResponse)

    async def ListRebalances(
        self, request: pb.ListRebalancesRequest, context: Context
    ) -> pb.ListRebalancesResponse:
        return await self._rpc.answer(request, context, pb.ListRebalancesResponse)

    async def WatchRebalances(
        self, request: pb.WatchRebalancesRequest, context: Context
    ) -> AsyncIterator[pb.Rebalance]:
        journal: list[pb.Rebalance] = []
        for rebalance in journal:
            yield rebalance
        await context.abort(
            grpc.StatusCode.UNIMPLEMENTED, "UNSUPPORTED_VERSION: there is no rebalance journal yet"
        )
