"""One caller cannot stop a node for all: judged by the order of answers, not by the clock."""

from __future__ import annotations

import asyncio
import contextlib

import grpc
import pytest

from coordinator.v1 import group_pb2 as pb
from coordinator.v1 import group_pb2_grpc
from tests.integration.waiting import until
from tests.kit import requests
from tests.kit.serving import running

BURST = 4_000


@contextlib.asynccontextmanager
async def connection(address: str):
    """A stub on a connection that nobody shares."""
    options = (("grpc.use_local_subchannel_pool", 1),)
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        yield group_pb2_grpc.GroupCoordinatorStub(channel)


def join(group_id: str) -> pb.JoinGroupRequest:
    return requests.join(
        group_id, require_known_member_id=True, protocol_type="work", protocols=[{"name": "share"}]
    )


@contextlib.asynccontextmanager
async def burst(stub, answered: list, calls: int = BURST):
    """Send `calls` joins at once, and note each when it has its answer."""

    async def one(number: int) -> None:
        with contextlib.suppress(grpc.aio.AioRpcError):
            await stub.JoinGroup(join(f"burst-{number}"))
        answered.append(number)

    tasks = [asyncio.create_task(one(number)) for number in range(calls)]
    await until(lambda: answered)
    yield
    await asyncio.gather(*tasks)


LIVELY = {
    "Heartbeat": pb.HeartbeatRequest(group_id="g", member_id="m"),
    "HeartbeatBatch": pb.HeartbeatBatchRequest(
        heartbeats=[pb.HeartbeatRequest(group_id="g", member_id="m")]
    ),
    "LeaveGroup": pb.LeaveGroupRequest(
        group_id="g", members=[pb.LeaveGroupRequest.MemberIdentity(member_id="m")]
    ),
    "FindCoordinator": pb.FindCoordinatorRequest(group_id="g"),
}


@pytest.mark.parametrize("method", LIVELY)
async def test_a_burst_of_joins_keeps_no_sign_of_life_waiting(method):
    async with running(max_pending_requests=100_000) as server:
        async with connection(server.address) as one, connection(server.address) as other:
            await getattr(other, method)(LIVELY[method])
            answered: list[int] = []
            async with burst(one, answered):
                before = len(answered)
                await getattr(other, method)(LIVELY[method])
                assert len(answered) - before < BURST / 4
