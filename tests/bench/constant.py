"""The least a heartbeat can cost: a server whose handlers return a constant.

    python -m tests.bench.constant       prints its port and serves until it is killed

It has the options and the event loop of the real one. Benchmarks run it beside that.
"""

from __future__ import annotations

import sys
from typing import Any

import grpc

from coordinator.runtime.loop import run
from coordinator.service.grpc.group_service import ALIVE, all_alive
from coordinator.service.grpc.server import server_options
from coordinator.settings.sections import LimitsConfig
from coordinator.v1 import group_pb2
from coordinator.v1 import group_pb2 as pb

Context = grpc.aio.ServicerContext[Any, Any]  # Any: the message types of the RPC.


class Constant:
    """Everybody is alive. Nothing else is asked."""

    async def Heartbeat(
        self, request: pb.HeartbeatRequest, context: Context
    ) -> pb.HeartbeatResponse:
        return ALIVE

    async def HeartbeatBatch(
        self, request: pb.HeartbeatBatchRequest, context: Context
    ) -> pb.HeartbeatBatchResponse:
        return all_alive(len(request.heartbeats))


async def _serve() -> int:
    server = grpc.aio.server(options=server_options(LimitsConfig()))
    constant = Constant()
    kinds: dict[str, tuple[Any, Any, str]] = {  # Any: classes of messages.
        "Heartbeat": (pb.HeartbeatRequest, pb.HeartbeatResponse, "unary_unary"),
        "HeartbeatBatch": (pb.HeartbeatBatchRequest, pb.HeartbeatBatchResponse, "unary_unary"),
    }
    handlers = {
        name: getattr(grpc, f"{shape}_rpc_method_handler")(
            getattr(constant, name),
            request_deserializer=asked.FromString,
            response_serializer=answered.SerializeToString,
        )
        for name, (asked, answered, shape) in kinds.items()
    }
    service = group_pb2.DESCRIPTOR.services_by_name["GroupCoordinator"].full_name
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, handlers)])
    port = server.add_insecure_port("127.0.0.1:0")
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    await server.start()
    await server.wait_for_termination()
    return 0


if __name__ == "__main__":
    run(_serve())
