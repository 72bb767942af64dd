"""The RPCs of ClusterAdmin: which nodes there are, and who leads which shard."""

from __future__ import annotations

from collections.abc import Iterable

from coordinator.cluster.controller import ElectRequested, Event, MoveRequested
from coordinator.cluster.runner import NotController
from coordinator.core.errors import ErrorCode, advice
from coordinator.core.ids import ShardId
from coordinator.runtime.node import Node
from coordinator.service.grpc import translate
from coordinator.service.rpc import Context
from coordinator.storage.coordination import ClusterView
from coordinator.v1 import cluster_pb2 as pb
from coordinator.v1 import cluster_pb2_grpc

Said = tuple[ErrorCode, str]
DONE: Said = (ErrorCode.NONE, "")
ALONE: Said = (
    ErrorCode.INVALID_REQUEST,
    "this node has its store for itself: there are no other nodes to lead its shards",
)


class ClusterService(cluster_pb2_grpc.ClusterAdminServicer):
    """What operators ask of nodes that share a store."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def DescribeCluster(
        self, request: pb.DescribeClusterRequest, context: Context
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
        self, request: pb.ElectLeadersRequest, context: Context
    ) -> pb.ElectLeadersResponse:
        view = self._node.cluster_view()
        named = dict.fromkeys(ShardId(shard) for shard in request.shards)
        wanted = list(named) or sorted(view.shards)
        error, message = _check(view, wanted)
        if error is ErrorCode.NONE:
            error, message = await self._decide(ElectRequested(shard) for shard in wanted)
        return pb.ElectLeadersResponse(
            error_code=translate.error_code(error), error_message=message
        )

    async def MoveShard(
        self, request: pb.MoveShardRequest, context: Context
    ) -> pb.MoveShardResponse:
        shard, replicas = ShardId(request.shard), tuple(request.replicas)
        view = self._node.cluster_view()
        error, message = _check(view, [shard], replicas)
        if error is ErrorCode.NONE:
            error, message = await self._decide([MoveRequested(shard, replicas)])
        return pb.MoveShardResponse(error_code=translate.error_code(error), error_message=message)

    async def DrainNode(
        self, request: pb.DrainNodeRequest, context: Context
    ) -> pb.DrainNodeResponse:
        error, message = DONE
        cluster = self._node.cluster
        if cluster is None:
            error, message = ALONE
        elif request.node_id != cluster.node.node_id:
            error, message = ErrorCode.INVALID_REQUEST, f"this is node {cluster.node.node_id}"
        else:
            cluster.drain(undo=request.undo)
        return pb.DrainNodeResponse(error_code=translate.error_code(error), error_message=message)

    async def _decide(self, events: Iterable[Event]) -> Said:
        cluster = self._node.cluster
        if cluster is None:
            return ALONE
        try:
            for event in events:
                await cluster.decide(event)
        except NotController:
            return ErrorCode.NOT_CONTROLLER, advice(ErrorCode.NOT_CONTROLLER)
        return DONE


def _check(
    view: ClusterView, shards: Iterable[ShardId], replicas: tuple[int, ...] | None = None
) -> Said:
    """What is wrong with an operator's wish."""
    for shard in shards:
        if shard not in view.shards:
            return ErrorCode.INVALID_REQUEST, f"there is no shard {shard}"
    if replicas is not None:
        if not replicas or len(set(replicas)) < len(replicas):
            return ErrorCode.INVALID_REQUEST, "name each replica once, and at least one"
        for node in replicas:
            if node not in view.nodes:
                return ErrorCode.INVALID_REQUEST, f"there is no node {node}"
    return DONE
