"""Blocking client of the ClusterAdmin service: elect leaders, move shards, drain nodes."""

from __future__ import annotations

from collections.abc import Sequence

from coordinator.dial import address_of
from coordinator.operator.nodes import Nodes
from coordinator.v1 import cluster_pb2 as pb
from coordinator.v1 import cluster_pb2_grpc


class ClusterAdmin(Nodes):
    """Changes of the cluster, blocking. Use it as a context manager.

    Every method raises LookupError, with the coordinator's message, if it is refused.
    """

    def elect(self, shards: Sequence[int] = ()) -> None:
        """Elect the preferred leaders that are in sync; of all shards, if none is named."""
        self._request(self._controller().ElectLeaders, pb.ElectLeadersRequest(shards=shards))

    def move(self, shard: int, replicas: Sequence[int]) -> None:
        """Assign other replicas to a shard, the preferred leader first."""
        request = pb.MoveShardRequest(shard=shard, replicas=replicas)
        self._request(self._controller().MoveShard, request)

    def drain(self, node: int, *, undo: bool = False) -> None:
        """Drain a node: move its shards away and keep it running; `undo` lets it lead again."""
        addresses = self.addresses()
        if node not in addresses:
            raise LookupError(f"there is no node {node}")
        request = pb.DrainNodeRequest(node_id=node, undo=undo)
        self._request(self._cluster(addresses[node]).DrainNode, request)

    def _controller(self) -> cluster_pb2_grpc.ClusterAdminStub:
        cluster = self.describe()
        for node in cluster.nodes:
            if node.node_id == cluster.controller:
                return self._cluster(address_of(node.host, node.port))
        return self._cluster(self._bootstrap[0])  # Its refusal says why there is no controller.
