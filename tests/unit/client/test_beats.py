"""Members that share a call: what the call is, and what of it is each one's own."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from coordinator.client.transport.heartbeats import BatchedMember, HeartbeatBatcher
from coordinator.v1 import group_pb2 as pb

pytestmark = pytest.mark.virtual_time


class Channel:
    """A connection that answers each heartbeat with its generation as the error code."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, float]] = []
        self.refusals: list[grpc.StatusCode] = []

    async def call(self, method, request, timeout_s):
        self.calls.append((method, timeout_s))
        if self.refusals:
            nothing = grpc.aio.Metadata()
            raise grpc.aio.AioRpcError(self.refusals.pop(0), nothing, nothing, "")
        if method == "Heartbeat":
            return pb.HeartbeatResponse(error_code=request.generation_id)
        answers = [pb.HeartbeatResponse(error_code=b.generation_id) for b in request.heartbeats]
        return pb.HeartbeatBatchResponse(heartbeats=answers)


class Two:
    """Two members that have sent one heartbeat each."""

    def __init__(self) -> None:
        self.channel = Channel()
        self.batcher = HeartbeatBatcher()
        self.members = [BatchedMember(self.channel, 3.0, lambda: None) for _ in range(2)]

    async def beat(self, *timeouts_s):
        """Heartbeats of both at a time; the codes that they are answered."""
        answers = await asyncio.gather(
            *(
                self.batcher.beat(member, pb.HeartbeatRequest(generation_id=number), timeout_s)
                for number, (member, timeout_s) in enumerate(
                    zip(self.members, timeouts_s, strict=True), start=25
                )
            )
        )
        return [answer.error_code for answer in answers]


async def two() -> Two:
    found = Two()
    await found.beat(9.0, 9.0)
    found.channel.calls.clear()
    return found


async def test_a_batch_has_the_shortest_time_out_of_its_heartbeats():
    pair = await two()
    assert await pair.beat(2.0, 5.0) == [25, 26]
    assert await pair.beat(5.0, 2.0) == [25, 26]
    assert pair.channel.calls == [("HeartbeatBatch", 2.0)] * 2


async def test_heartbeats_of_a_batch_that_is_refused_have_their_own_time_outs():
    pair = await two()
    pair.channel.refusals.append(grpc.StatusCode.PERMISSION_DENIED)
    assert await pair.beat(2.0, 5.0) == [25, 26]
    assert pair.channel.calls == [("HeartbeatBatch", 2.0), ("Heartbeat", 2.0), ("Heartbeat", 5.0)]
