"""A thin face over ClusterAdmin: which nodes lead what, and having them do otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coordinator.client.nodes import TIMEOUT_S, Nodes
from coordinator.client.wire import code_name
from coordinator.v1 import cluster_pb2 as pb
from coordinator.v1 import cluster_pb2_grpc
from coordinator.v1.errors_pb2 import ErrorCode


class ClusterAdmin(Nodes):
    """Questions and orders about nodes, blocking. Use it as a context manager.

    Orders raise LookupError, in the coordinator's words, when they are refused.
    """

    def elect(self, shards: Sequence[int] = ()) -> None:
        """Have the preferred leaders lead, where they are in sync; none named: of all shards."""
        request = pb.ElectLeadersRequest(shards=shards)
        _judge(self._controller().ElectLeaders(request, timeout=TIMEOUT_S))

    def move(self, shard: int, replicas: Sequence[int]) -> None:
        """Give a shard other replicas, the preferred one first."""
        request = pb.MoveShardRequest(shard=shard, replicas=replicas)
        _judge(self._controller().MoveShard(request, timeout=TIMEOUT_S))

    def drain(self, node: int, *, undo: bool = False) -> None:
        """Have a node lead nothing any more while others can; or let it lead again."""
        addresses = self.addresses()
        if node not in addresses:
            raise LookupError(f"there is no node {node}")
        stub = cluster_pb2_grpc.ClusterAdminStub(self.channel(addresses[node]))
        _judge(stub.DrainNode(pb.DrainNodeRequest(node_id=node, undo=undo), timeout=TIMEOUT_S))

    def _controller(self) -> cluster_pb2_grpc.ClusterAdminStub:
        cluster = self.describe()
        for node in cluster.nodes:
            if node.node_id == cluster.controller:
                address = f"{node.host}:{node.port}"
                return cluster_pb2_grpc.ClusterAdminStub(self.channel(address))
        return self._cluster(self._bootstrap[0])  # It says what is the matter.


def _judge(response: Any) -> None:  # Any: whatever has an error code and message.
    if response.error_code != ErrorCode.NONE:
        raise LookupError(f"{response.error_message} ({code_name(response.error_code)})")
