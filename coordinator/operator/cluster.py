"""Blocking client of the ClusterAdmin service: elect leaders, move shards, drain nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coordinator.client.transport.wire import code_name
from coordinator.dial import address_of
from coordinator.operator.nodes import TIMEOUT_S, Nodes
from coordinator.v1 import cluster_pb2 as pb
from coordinator.v1 import cluster_pb2_grpc
from coordinator.v1.errors_pb2 import ErrorCode


class ClusterAdmin(Nodes):
    """Changes of the cluster, blocking. Use it as a context manager.

    Every method raises LookupError, with the coordinator's message, if it is refused.
    """

    def elect(self, shards: Sequence[int] = ()) -> None:
        """Elect the preferred leaders that are in sync; of all shards, if none is named."""
        request = pb.ElectLeadersRequest(shards=shards)
        _judge(self._controller().ElectLeaders(request, timeout=TIMEOUT_S))

    def move(self, shard: int, replicas: Sequence[int]) -> None:
        """Assign other replicas to a shard, the preferred leader first."""
        request = pb.MoveShardRequest(shard=shard, replicas=replicas)
        _judge(self._controller().MoveShard(request, timeout=TIMEOUT_S))

    def drain(self, node: int, *, undo: bool = False) -> None:
        """Drain a node: move its shards away and keep it running; `undo` lets it lead again."""
        addresses = self.addresses()
        if node not in addresses:
            raise LookupError(f"there is no node {node}")
        stub = cluster_pb2_grpc.ClusterAdminStub(self.channel(addresses[node]))
        _judge(stub.DrainNode(pb.DrainNodeRequest(node_id=node, undo=undo), timeout=TIMEOUT_S))

    def _controller(self) -> cluster_pb2_grpc.ClusterAdminStub:
        cluster = self.describe()
        for node in cluster.nodes:
            if node.node_id == cluster.controller:
                address = address_of(node.host, node.port)
                return cluster_pb2_grpc.ClusterAdminStub(self.channel(address))
        return self._cluster(self._bootstrap[0])  # Its refusal says why there is no controller.


def _judge(response: Any) -> None:  # Any: a response with error code and message.
    if response.error_code != ErrorCode.NONE:
        told = response.error_message or code_name(response.error_code)
        raise LookupError(told)
