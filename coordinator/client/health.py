"""Do nodes serve? Each is asked for the health of its gRPC server."""

from __future__ import annotations

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from coordinator.client.nodes import Nodes

UNREACHABLE = "UNREACHABLE"
SERVING = "SERVING"


class Health(Nodes):
    """Asks after the health of nodes, blocking. Use it as a context manager."""

    def statuses(self, timeout_s: float) -> dict[str, str]:
        """By address, of every node named in `bootstrap`.

        Args:
            timeout_s: seconds that each node is given for its answer.
        Returns:
            SERVING; NOT_SERVING of a node that loads or drains; UNREACHABLE if there was no
            answer in time, or none of a coordinator.
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
