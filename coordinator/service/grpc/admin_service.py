"""The RPCs of GroupAdmin."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import aclosing

from coordinator.core.values.rebalance_journal import JOURNAL_LENGTH, RebalanceRecord
from coordinator.service.calls import Call
from coordinator.service.grpc.commands import CommandService
from coordinator.service.grpc.translate import rebalance_message
from coordinator.service.grpc.translate.session_journal import session_message
from coordinator.v1 import admin_pb2 as pb


class AdminService(CommandService):
    """Handlers of the GroupAdmin service."""

    ListGroups = DescribeGroups = DeleteGroups = CommandService._answer
    OffsetDelete = RemoveMembers = ListLogEnds = ListRebalances = DescribePhase = (
        CommandService._answer
    )
    DescribeSessionGroup = SetGroupPolicy = EvictMember = CommandService._answer

    async def WatchRebalances(
        self, request: pb.WatchRebalancesRequest, call: Call
    ) -> AsyncIterator[pb.Rebalance]:
        earlier: dict[str, deque[RebalanceRecord]] = {}
        async with aclosing(self._pipeline.watch(call)) as records:
            async for record in records:
                if not isinstance(record, RebalanceRecord):
                    yield session_message(record)
                    continue
                before = earlier.setdefault(record.group_id, deque(maxlen=JOURNAL_LENGTH))
                yield rebalance_message(record, tuple(before))
                before.appendleft(record)
