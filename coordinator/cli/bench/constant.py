"""The least a heartbeat can cost: a server whose handlers return a constant.

    python -m coordinator.cli.bench.constant       prints its port and serves until it is killed

It has the options and the event loop of the real one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc

from coordinator.cli.serve import event_loop
from coordinator.service.rpc import ALIVE, all_alive
from coordinator.service.server import server_options
from coordinator.settings import Settings
from coordinator.v1 import group_pb2 as pb
from coordinator.v1 import group_pb2_grpc

Context = grpc.aio.ServicerContext[Any, Any]  # Any: the message types of the RPC.


class Constant(group_pb2_grpc.GroupCoordinatorServicer):
    """Everybody is alive."""

    async def Heartbeat(
        self, request: pb.HeartbeatRequest, context: Context
    ) -> pb.HeartbeatResponse:
        return ALIVE

    async def HeartbeatBatch(
        self, request: pb.HeartbeatBatchRequest, context: Context
    ) -> pb.HeartbeatBatchResponse:
        return all_alive(len(request.heartbeats))

    async def HeartbeatStream(
        self, request_iterator: AsyncIterator[pb.HeartbeatBatchRequest], context: Context
    ) -> AsyncIterator[pb.HeartbeatBatchResponse]:
        async for request in request_iterator:
            yield all_alive(len(request.heartbeats))


async def _serve() -> int:
    server = grpc.aio.server(options=server_options(Settings()))
    group_pb2_grpc.add_GroupCoordinatorServicer_to_server(Constant(), server)
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    await server.start()
    await server.wait_for_termination()
    return 0


if __name__ == "__main__":
    event_loop()(_serve())
