"""The RPCs of GroupAdmin."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable

import grpc

from coordinator.core.errors import ErrorCode
from coordinator.core.records import JOURNAL_LENGTH, RebalanceRecord
from coordinator.service.callers import CALLER
from coordinator.service.grpc.translate import rebalance_message
from coordinator.service.rebalance_feed import RebalanceFeed, TooSlow
from coordinator.service.rpc import Context, Rpc
from coordinator.v1 import admin_pb2 as pb
from coordinator.v1 import admin_pb2_grpc

DeletionSink = Callable[[str, str, str, bool], None]
"""Told of each group that was deleted: the group, the caller's principal (empty where callers do
not say who they are), the peer, and whether it is known: False if the caller has gone away before
the answer, so that the log may or may not have taken the deletion."""


class AdminService(admin_pb2_grpc.GroupAdminServicer):
    """What operators ask."""

    def __init__(self, rpc: Rpc, feed: RebalanceFeed, on_deleted: DeletionSink) -> None:
        self._rpc = rpc
        self._feed = feed
        self._on_deleted = on_deleted

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
        caller, peer = CALLER.get(), context.peer()
        try:
            response = await self._rpc.answer(request, context, pb.DeleteGroupsResponse)
        except asyncio.CancelledError:
            for group_id in request.groups_names:
                self._on_deleted(group_id, caller, peer, False)
            raise
        for result in response.results:
            if result.error_code == ErrorCode.NONE.value:
                self._on_deleted(result.group_id, caller, peer, True)
        return response

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
