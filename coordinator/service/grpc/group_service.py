"""The RPCs of GroupCoordinator and GroupAdmin. Most become commands, and translated replies."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import aclosing
from functools import lru_cache, partial
from typing import Any

from coordinator.core.values.rebalance_journal import JOURNAL_LENGTH, RebalanceRecord
from coordinator.runtime.slices import in_slices
from coordinator.service.calls import Call
from coordinator.service.grpc import translate
from coordinator.service.grpc.serialized import is_large, serialized
from coordinator.service.grpc.translate import rebalance_message
from coordinator.service.grpc.translate.session_journal import session_message
from coordinator.service.pipeline import ALIVE as ALIVE_REPLY
from coordinator.service.pipeline import OK, Pipeline
from coordinator.v1 import admin_pb2 as admin
from coordinator.v1 import group_pb2 as pb


class CommandService:
    """Base of the services whose RPCs become commands."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    async def _answer(self, request: Any, call: Call) -> Any:
        """Answer a request of GroupCoordinator or GroupAdmin; a large response is `Serialized`."""
        replies = await self._pipeline.answer(
            call, partial(translate.translation, request, client_host=call.caller.host)
        )
        response = await in_slices(translate.response_work(request, replies))
        if is_large(replies):
            replies.clear()
            return await in_slices(serialized(response))
        return response


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


class AdminService(CommandService):
    """Handlers of the GroupAdmin service."""

    ListGroups = DescribeGroups = DeleteGroups = CommandService._answer
    OffsetDelete = RemoveMembers = ListLogEnds = ListRebalances = DescribePhase = (
        CommandService._answer
    )
    DescribeSessionGroup = SetGroupPolicy = EvictMember = CommandService._answer

    async def WatchRebalances(
        self, request: admin.WatchRebalancesRequest, call: Call
    ) -> AsyncIterator[admin.Rebalance]:
        earlier: dict[str, deque[RebalanceRecord]] = {}
        async with aclosing(self._pipeline.watch(call)) as records:
            async for record in records:
                if not isinstance(record, RebalanceRecord):
                    yield session_message(record)
                    continue
                before = earlier.setdefault(record.group_id, deque(maxlen=JOURNAL_LENGTH))
                yield rebalance_message(record, tuple(before))
                before.appendleft(record)
