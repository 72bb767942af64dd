"""The RPCs of ClusterAdmin: nodes, leaders of shards, draining."""

from __future__ import annotations

from coordinator.core.values.ids import ShardId
from coordinator.runtime.node import Node
from coordinator.service import nodes
from coordinator.service.calls import Call
from coordinator.service.grpc import translate
from coordinator.v1 import cluster_pb2 as pb


class ClusterService:
    """Handlers of the ClusterAdmin service."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def DescribeCluster(
        self, request: pb.DescribeClusterRequest, call: Call
    ) -> pb.DescribeClusterResponse:
        view = self._node.cluster_view()
        return pb.DescribeClusterResponse(
            nodes=[
                pb.DescribeClusterResponse.Node(
                    node_id=number, host=info.host, port=info.port, draining=info.stopping
                )
                for number, info in sorted(view.nodes.items())
            ],
            controller=view.controller,
            controller_epoch=view.controller_epoch,
            store_lineage=view.lineage_number,
            shards=[
                pb.DescribeClusterResponse.Shard(
                    shard=shard,
                    leader=state.leader,
                    epoch=state.leader_epoch,
                    replicas=state.replicas,
                    in_sync=state.in_sync,
                )
                for shard, state in sorted(view.shards.items())
            ],
        )

    async def ElectLeaders(
        self, request: pb.ElectLeadersRequest, call: Call
    ) -> pb.ElectLeadersResponse:
        error, message = await nodes.elect_leaders(self._node, request.shards)
        return pb.ElectLeadersResponse(
            error_code=translate.error_code(error), error_message=message
        )

    async def MoveShard(self, request: pb.MoveShardRequest, call: Call) -> pb.MoveShardResponse:
        shard, replicas = ShardId(request.shard), tuple(request.replicas)
        error, message = await nodes.move_shard(self._node, shard, replicas)
        return pb.MoveShardResponse(error_code=translate.error_code(error), error_message=message)

    async def DrainNode(self, request: pb.DrainNodeRequest, call: Call) -> pb.DrainNodeResponse:
        error, message = nodes.drain(self._node, request.node_id, undo=request.undo)
        return pb.DrainNodeResponse(error_code=translate.error_code(error), error_message=message)
