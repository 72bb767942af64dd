"""The least a heartbeat can cost: a server whose handlers return a constant.

    python -m tests.bench.constant       prints its port and serves until it is killed

It has the options and the event loop of the real one. Benchmarks run it beside that.
"""

from __future__ import annotations

from typing import Any

import grpc

from coordinator.cli.serve import run
from coordinator.service.grpc.group_service import ALIVE, all_alive
from coordinator.service.grpc.server import server_options
from coordinator.settings.sections import LimitsConfig
from coordinator.v1 import group_pb2 as pb
from coordinator.v1 import group_pb2_grpc


class Constant(group_pb2_grpc.GroupCoordinatorServicer):
    """Everybody is alive. Nothing else is asked."""

    async def Heartbeat(self, request: pb.HeartbeatRequest, context: Any) -> pb.HeartbeatResponse:
        return ALIVE

    async def HeartbeatBatch(
        self, request: pb.HeartbeatBatchRequest, context: Any
    ) -> pb.HeartbeatBatchResponse:
        return all_alive(len(request.heartbeats))


async def _serve() -> int:
    server = grpc.aio.server(options=server_options(LimitsConfig()))
    group_pb2_grpc.add_GroupCoordinatorServicer_to_server(Constant(), server)  # type: ignore[abstract]
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    await server.start()
    await server.wait_for_termination()
    return 0


if __name__ == "__main__":
    run(_serve())
