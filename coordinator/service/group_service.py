"""The RPCs of GroupCoordinator."""

from __future__ import annotations

from collections.abc import AsyncIterator

from coordinator.core.replies import HeartbeatReply
from coordinator.service import translate
from coordinator.service.rpc import Context, Rpc
from coordinator.v1 import group_pb2 as pb
from coordinator.v1 import group_pb2_grpc

_BEAT_OK = ("Heartbeat", "OK")


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
        return self._beat(request)

    async def HeartbeatBatch(
        self, request: pb.HeartbeatBatchRequest, context: Context
    ) -> pb.HeartbeatBatchResponse:
        return pb.HeartbeatBatchResponse(heartbeats=map(self._beat, request.heartbeats))

    async def HeartbeatStream(
        self, request_iterator: AsyncIterator[pb.HeartbeatBatchRequest], context: Context
    ) -> AsyncIterator[pb.HeartbeatBatchResponse]:
        async for request in request_iterator:
            yield pb.HeartbeatBatchResponse(heartbeats=map(self._beat, request.heartbeats))

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

    def _beat(self, request: pb.HeartbeatRequest) -> pb.HeartbeatResponse:
        """The hot path: one step of the shard in this turn of the loop, and nothing else."""
        node = self._rpc.node
        self._rpc.calls[_BEAT_OK] += 1
        reply = node.beat(translate.heartbeat_command(request, node.new_call_id()))
        assert isinstance(reply, HeartbeatReply)
        return translate.heartbeat_response(reply)
