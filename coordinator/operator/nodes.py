"""Blocking access to the nodes of a coordinator cluster, for tools."""

from __future__ import annotations

from typing import Self

import grpc

from coordinator.client.transport.surroundings import opener
from coordinator.dial import Credentials, address_of
from coordinator.v1 import cluster_pb2, cluster_pb2_grpc, group_pb2, group_pb2_grpc

TIMEOUT_S = 10.0
# A group of 10,000 members is described in more than gRPC's default of 4 MiB.
_OPTIONS = (("grpc.max_receive_message_length", -1),)


class Nodes:
    """Channels to nodes, by address. Use it as a context manager.

    Every method raises grpc.RpcError if no node can be reached.

    Args:
        bootstrap: HOST:PORT, or several separated by commas: the first that answers is used.
        remember: cache the coordinator of each group. If it moves, make a new object.
        credentials: TLS and token; None: from environment variables.
    """

    def __init__(
        self, bootstrap: str, *, remember: bool = False, credentials: Credentials | None = None
    ) -> None:
        self._bootstrap = bootstrap.split(",")
        self._credentials = opener(credentials or Credentials.from_environment())
        self._channels: dict[str, grpc.Channel] = {}
        self._remembered: dict[str, str] | None = {} if remember else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all channels."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    def channel(self, address: str) -> grpc.Channel:
        """Channel to one node, opened on first use.

        Raises:
            CannotDial: a certificate's file cannot be read, or a token would travel in plain text.
        """
        if address not in self._channels:
            self._channels[address] = self._credentials.open(address, _OPTIONS)
        return self._channels[address]

    def coordinator_of(self, group_id: str) -> str:
        """HOST:PORT of the node that coordinates a group.

        Raises:
            LookupError: no node does at present.
        """
        if self._remembered is None:
            return self._find(group_id)
        if group_id not in self._remembered:
            self._remembered[group_id] = self._find(group_id)
        return self._remembered[group_id]

    def _find(self, group_id: str) -> str:
        request = group_pb2.FindCoordinatorRequest(group_id=group_id)
        for address in self._bootstrap:
            stub = group_pb2_grpc.GroupCoordinatorStub(self.channel(address))
            try:
                found = stub.FindCoordinator(request, timeout=TIMEOUT_S)
            except grpc.RpcError:
                if address == self._bootstrap[-1]:
                    raise
                continue
            if found.host:
                return address_of(found.host, found.port)
        raise LookupError(f"Nobody coordinates group '{group_id}' at present; try again.")

    def describe(self) -> cluster_pb2.DescribeClusterResponse:
        """All nodes, and the leader of each shard, as known to the first node that answers."""
        request = cluster_pb2.DescribeClusterRequest()
        for address in self._bootstrap[:-1]:
            try:
                return self._cluster(address).DescribeCluster(request, timeout=TIMEOUT_S)
            except grpc.RpcError:
                continue
        return self._cluster(self._bootstrap[-1]).DescribeCluster(request, timeout=TIMEOUT_S)

    def addresses(self) -> dict[int, str]:
        """HOST:PORT of every node by its number."""
        return {node.node_id: address_of(node.host, node.port) for node in self.describe().nodes}

    def _cluster(self, address: str) -> cluster_pb2_grpc.ClusterAdminStub:
        return cluster_pb2_grpc.ClusterAdminStub(self.channel(address))
