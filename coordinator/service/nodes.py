"""Requests about nodes: a group's coordinator, leaders of shards, draining a node."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from coordinator.cluster.controller import ElectRequested, Event, MoveRequested
from coordinator.cluster.runner import NotController
from coordinator.core.values.errors import ErrorCode, advice
from coordinator.core.values.ids import ShardId
from coordinator.runtime.node import Node
from coordinator.storage.coordination import ClusterView, NodeInfo

Said = tuple[ErrorCode, str]
DONE: Said = (ErrorCode.NONE, "")
ALONE: Said = (
    ErrorCode.INVALID_REQUEST,
    "this node has its store for itself: there are no other nodes to lead its shards",
)


@dataclass(frozen=True, slots=True)
class FoundCoordinator:
    """Answer of FindCoordinator: the node that coordinates a group, or an error."""

    error: ErrorCode = ErrorCode.NONE
    node_id: int = -1
    host: str = ""
    port: int = -1

    @property
    def message(self) -> str:
        """Advice for the error; empty without one."""
        return "" if self.error is ErrorCode.NONE else advice(self.error)


def found_coordinator(group_id: str, node: NodeInfo | None) -> FoundCoordinator:
    """Return the answer of FindCoordinator.

    Args:
        node: the group's coordinator; None: it has none at the moment.
    """
    if node is None:
        return FoundCoordinator(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if not group_id:
        return FoundCoordinator(ErrorCode.INVALID_GROUP_ID)
    return FoundCoordinator(node_id=node.node_id, host=node.host, port=node.port)


async def elect_leaders(node: Node, shards: Sequence[int]) -> Said:
    """Elect the preferred replicas of some shards as leaders; of all shards if none is named."""
    view = node.cluster_view()
    named = dict.fromkeys(ShardId(shard) for shard in shards)
    wanted = list(named) or sorted(view.shards)
    error, message = _check(view, wanted)
    if error is ErrorCode.NONE:
        return await _decide(node, (ElectRequested(shard) for shard in wanted))
    return error, message


async def move_shard(node: Node, shard: ShardId, replicas: tuple[int, ...]) -> Said:
    """Replace a shard's replicas; the first is the preferred one."""
    error, message = _check(node.cluster_view(), [shard], replicas)
    if error is ErrorCode.NONE:
        return await _decide(node, [MoveRequested(shard, replicas)])
    return error, message


def drain(node: Node, node_id: int, *, undo: bool) -> Said:
    """Drain this node: move its shards away and keep it running; `undo` ends it."""
    cluster = node.cluster
    if cluster is None:
        return ALONE
    if node_id != cluster.node.node_id:
        return ErrorCode.INVALID_REQUEST, f"this is node {cluster.node.node_id}"
    cluster.drain(undo=undo)
    return DONE


async def _decide(node: Node, events: Iterable[Event]) -> Said:
    cluster = node.cluster
    if cluster is None:
        return ALONE
    try:
        await cluster.decide(*events)
    except NotController:
        return ErrorCode.NOT_CONTROLLER, advice(ErrorCode.NOT_CONTROLLER)
    return DONE


def _check(
    view: ClusterView, shards: Iterable[ShardId], replicas: tuple[int, ...] | None = None
) -> Said:
    """Validate shards and replicas; `DONE` if they exist."""
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
