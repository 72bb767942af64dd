"""The RPCs of GroupCoordinator."""

from __future__ import annotations

from collections.abc import AsyncIterator

from coordinator.service.grpc import translate
from coordinator.service.rpc import Context, Rpc
from coordinator.v1 import group_pb2 as pb
from coordinator.v1 import group_pb2_grpc

_BATCH_OK = ("HeartbeatBatch", "OK")
_STREAM_OK = ("HeartbeatStream", "OK")


class GroupService(group_pb2_grpc.GroupCoordinatorServicer):
    """Membership, assignments, liveness and progress."""

    def __init__(self, rpc: Rpc) -> None:
        self._rpc = rpc

    async def FindCoordinator(
        self, request: pb.FindCoordinatorRequest, context: Context
    ) -> pb.FindCoordinatorResponse:
        found = self._rpc.node.coordinator_of(request.group_id)
        if found is None:
            return translate.nowhere_response()
        return translate.find_response(request, found.node_id, found.host, found.port)

    async def JoinGroup(
        self, request: pb.JoinGroupRequest, context: Context
    ) -> pb.JoinGroupResponse:
        return await self._rpc.answer(request, context, pb.JoinGroupResponse)

    async def SyncGroup(
        self, request: pb.SyncGroupRequest, context: Context
    ) -> pb.SyncGroupResponse:
        return await self._rpc.answer(request, context, pb.SyncGroupResponse)

    async def Heartbeat(
        self, request: pb.HeartbeatRequest, context: Context
    ) -> pb.HeartbeatResponse:
        if self._rpc.is_throttled:
            await self._rpc.admit("Heartbeat", context)
        try:
            return self._rpc.beat(request)
        except translate.Malformed as malformed:
            await self._rpc.refuse("Heartbeat", context, malformed)

    async def HeartbeatBatch(
        self, request: pb.HeartbeatBatchRequest, context: Context
    ) -> pb.HeartbeatBatchResponse:
        await self._rpc.admit("HeartbeatBatch", context)
        response = await self._rpc.beats("HeartbeatBatch", request, context)
        self._rpc.calls[_BATCH_OK] += 1
        return response

    async def HeartbeatStream(
        self, request_iterator: AsyncIterator[pb.HeartbeatBatchRequest], context: Context
    ) -> AsyncIterator[pb.HeartbeatBatchResponse]:
        async with self._rpc.streaming("HeartbeatStream", context):
            async for request in request_iterator:
                await self._rpc.admit("HeartbeatStream", context)
                yield await self._rpc.beats("HeartbeatStream", request, context)
            self._rpc.calls[_STREAM_OK] += 1

    async def LeaveGroup(
        self, request: pb.LeaveGroupRequest, context: Context
    ) -> pb.LeaveGroupResponse:
        return await self._rpc.answer(request, context, pb.LeaveGroupResponse)

    async def OffsetCommit(
        self, request: pb.OffsetCommitRequest, context: Context
    ) -> pb.OffsetCommitResponse:
        return await self._rpc.answer(request, context, pb.OffsetCommitResponse)

    async def OffsetFetch(
        self, request: pb.OffsetFetchRequest, context: Context
    ) -> pb.OffsetFetchResponse:
        return await self._rpc.answer(request, context, pb.OffsetFetchResponse)

    async def ReportLogEnds(
        self, request: pb.ReportLogEndsRequest, context: Context
    ) -> pb.ReportLogEndsResponse:
        return await self._rpc.answer(request, context, pb.ReportLogEndsResponse)
