"""The RPCs of GroupAdmin."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator

import grpc

from coordinator.core.records import JOURNAL_LENGTH, RebalanceRecord
from coordinator.service.rebalance_feed import RebalanceFeed, TooSlow
from coordinator.service.rpc import Context, Rpc
from coordinator.service.translate import rebalance_message
from coordinator.v1 import admin_pb2 as pb
from coordinator.v1 import admin_pb2_grpc


class AdminService(admin_pb2_grpc.GroupAdminServicer):
    """What operators ask."""

    def __init__(self, rpc: Rpc, feed: RebalanceFeed) -> None:
        self._rpc = rpc
        self._feed = feed

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

    async def DescribePhase(
        self, request: pb.DescribePhaseRequest, context: Context
    ) -> pb.DescribePhaseResponse:
        return await self._rpc.answer(request, context, pb.DescribePhaseResponse)

    async def WatchRebalances(
        self, request: pb.WatchRebalancesRequest, context: Context
    ) -> AsyncIterator[pb.Rebalance]:
        earlier: dict[str, deque[RebalanceRecord]] = {}
        try:
            async with self._rpc.streaming("WatchRebalances", context):
                async for record in self._feed.watch(frozenset(request.group_ids)):
                    before = earlier.setdefault(record.group_id, deque(maxlen=JOURNAL_LENGTH))
                    yield rebalance_message(record, tuple(before))
                    before.appendleft(record)
        except TooSlow:
            text = "rebalances come faster than you read them: list them, and watch again"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
