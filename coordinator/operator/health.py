"""Health of nodes, as their gRPC servers report it."""

from __future__ import annotations

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from coordinator.operator.nodes import Nodes

UNREACHABLE = "UNREACHABLE"
SERVING = "SERVING"


class Health(Nodes):
    """Health checks of nodes, blocking. Use it as a context manager."""

    def statuses(self, timeout_s: float) -> dict[str, str]:
        """Health of every node named in `bootstrap`, by address.

        Args:
            timeout_s: seconds to wait for each node's answer.
        Returns:
            SERVING; NOT_SERVING of a node that loads or drains; UNREACHABLE without an answer in
            time, or if the server is not a coordinator.
        Source: gRPC Health Checking Protocol, `grpc.health.v1`.
        """
        return {address: self._status(address, timeout_s) for address in self._bootstrap}

    def _status(self, address: str, timeout_s: float) -> str:
        stub = health_pb2_grpc.HealthStub(self.channel(address))
        try:
            answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=timeout_s)
        except grpc.RpcError:
            return UNREACHABLE
        return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))
