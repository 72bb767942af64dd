"""The RPCs of GroupCoordinator."""

from __future__ import annotations

from functools import lru_cache

from coordinator.service.calls import Call
from coordinator.service.grpc import translate
from coordinator.service.grpc.commands import CommandService
from coordinator.service.pipeline import ALIVE as ALIVE_REPLY
from coordinator.service.pipeline import OK
from coordinator.v1 import group_pb2 as pb

ALIVE = pb.HeartbeatResponse()
"""Response to a heartbeat without an error, shared by all: never to be modified."""
REMEMBERED_BATCH = 500
"""Largest batch whose response is cached: the batch size of our own clients."""


def all_alive(members: int) -> pb.HeartbeatBatchResponse:
    """Response to a batch of heartbeats without errors, shared by all: never to be modified."""
    return _remembered(members) if members <= REMEMBERED_BATCH else _all_alive(members)


def _all_alive(members: int) -> pb.HeartbeatBatchResponse:
    return pb.HeartbeatBatchResponse(heartbeats=[ALIVE] * members)


_remembered = lru_cache(maxsize=REMEMBERED_BATCH + 1)(_all_alive)


class GroupService(CommandService):
    """Handlers of the GroupCoordinator service."""

    JoinGroup = SyncGroup = LeaveGroup = CommandService._answer
    OffsetCommit = OffsetFetch = ReportLogEnds = CommandService._answer
    PutDocuments = FetchDocuments = CommandService._answer

    async def FindCoordinator(
        self, request: pb.FindCoordinatorRequest, call: Call
    ) -> pb.FindCoordinatorResponse:
        return translate.find_response(self._pipeline.find_coordinator(request.group_id))

    def beat(self, request: pb.HeartbeatRequest) -> pb.HeartbeatResponse:
        """Answer a heartbeat, on the hot path: synchronously, without a `Call`.

        Raises:
            Malformed: as `Pipeline.beat`.
        """
        reply = self._pipeline.beat(
            request.group_id,
            request.member_id,
            request.group_instance_id if request.HasField("group_instance_id") else None,
            request.generation_id,
        )
        return ALIVE if reply is ALIVE_REPLY else translate.heartbeat_response(reply)

    async def Heartbeat(self, request: pb.HeartbeatRequest, call: Call) -> pb.HeartbeatResponse:
        return self.beat(request)

    async def HeartbeatBatch(
        self, request: pb.HeartbeatBatchRequest, call: Call
    ) -> pb.HeartbeatBatchResponse:
        responses = await self._pipeline.beats(call, request.heartbeats, self.beat)
        self._pipeline.calls[(call.kind.name, OK)] += 1
        if all(response is ALIVE for response in responses):
            return all_alive(len(responses))
        return pb.HeartbeatBatchResponse(heartbeats=responses)
