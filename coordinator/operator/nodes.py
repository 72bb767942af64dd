"""Blocking calls of the nodes of a coordinator cluster, for tools; a refusal is an exception."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Self, TypeVar

import grpc

from coordinator.client.codes import code_name
from coordinator.client.transport.process_environment import opener
from coordinator.dial import Credentials, address_of
from coordinator.node_source import NodeSource
from coordinator.v1 import cluster_pb2, cluster_pb2_grpc, group_pb2, group_pb2_grpc
from coordinator.v1.errors_pb2 import ErrorCode

TIMEOUT_S = 10.0
# A group of 10,000 members is described in more than gRPC's default of 4 MiB.
_OPTIONS = (("grpc.max_receive_message_length", -1),)
Q = TypeVar("Q")
T = TypeVar("T")


class Nodes:
    """Channels to nodes, by address. Use it as a context manager.

    Every method raises grpc.RpcError if no node can be reached.

    Args:
        bootstrap: HOST:PORT, or several separated by commas: the first that answers is used; or
            what `embedded` returns, whose nodes are found now, as those of the credentials are.
        remember: cache the coordinator of each group. If it moves, make a new object.
        credentials: TLS and token; None: from environment variables.
    """

    def __init__(
        self,
        bootstrap: str | NodeSource,
        *,
        remember: bool = False,
        credentials: Credentials | None = None,
    ) -> None:
        credentials = (credentials or Credentials.from_environment()).finding(bootstrap)
        addresses, credentials = credentials.dialed(str(bootstrap), TIMEOUT_S)
        self._bootstrap = addresses.split(",")
        self._credentials = opener(credentials)
        self._channels: dict[str, grpc.Channel] = {}
        self._remember = remember
        self._coordinators: dict[str, str] = {}

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

        def find(address: str) -> str:
            stub = group_pb2_grpc.GroupCoordinatorStub(self.channel(address))
            request = group_pb2.FindCoordinatorRequest(group_id=group_id)
            response = stub.FindCoordinator(request, timeout=TIMEOUT_S)
            if not response.host:
                raise LookupError(f"Nobody coordinates group '{group_id}' at present; try again.")
            return address_of(response.host, response.port)

        coordinator = self._coordinators.get(group_id) or self._first(self._bootstrap, find)
        if self._remember:
            self._coordinators[group_id] = coordinator
        return coordinator

    def describe(self) -> cluster_pb2.DescribeClusterResponse:
        """All nodes, and the leader of each shard, as known to the first node that answers."""
        request = cluster_pb2.DescribeClusterRequest()
        return self._first(
            self._bootstrap,
            lambda address: self._cluster(address).DescribeCluster(request, timeout=TIMEOUT_S),
        )

    def addresses(self) -> dict[int, str]:
        """HOST:PORT of every node by its number."""
        return {node.node_id: address_of(node.host, node.port) for node in self.describe().nodes}

    def _cluster(self, address: str) -> cluster_pb2_grpc.ClusterAdminStub:
        return cluster_pb2_grpc.ClusterAdminStub(self.channel(address))

    def _first(self, addresses: Iterable[str], ask: Callable[[str], T]) -> T:
        """The first node's answer; the error of the last one, if all fail or refuse."""
        *others, last = addresses
        for address in others:
            try:
                return ask(address)
            except (grpc.RpcError, LookupError):
                continue
        return ask(last)

    def _request(self, method: grpc.UnaryUnaryMultiCallable[Q, T], request: Q) -> T:
        """The response of a method, which may refuse. Raises what `_refusal` makes of that."""
        return self._accepted(request, method(request, timeout=TIMEOUT_S))

    def _accepted(self, request: object, response: T) -> T:
        reply: Any = response  # Any: a message with error code and message.
        if reply.error_code == ErrorCode.NONE:
            return response
        code = code_name(reply.error_code)
        raise self._refusal(request, reply.error_message or code, code)

    def _refusal(self, request: Any, message: str, code: str) -> LookupError:
        """Error that stands for an error code; `message` is the code's name if none was sent."""
        return LookupError(message)
