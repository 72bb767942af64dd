"""A network in which each node is a function, so that some may be away or refuse."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import grpc
import pytest

from coordinator.client.transport.process_environment import ENVIRONMENT


class Away(grpc.RpcError):
    """A node that cannot be reached."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        return "connection refused"


class Network:
    """Nodes by address: each answers a request with a response. Addresses without one are away."""

    def __init__(self, nodes: Mapping[str, Callable[[object], object]]) -> None:
        self.nodes = nodes
        self.asked: list[tuple[str, object]] = []
        """Address and request of every call, in order."""

    def credentials(self, options: object) -> Network:
        return self

    def open(self, address: str, options: object = None) -> _Channel:
        return _Channel(self, address)

    def requests(self, kind: type) -> list[tuple[str, object]]:
        """Calls with requests of a type."""
        return [call for call in self.asked if isinstance(call[1], kind)]


class _Channel:
    def __init__(self, network: Network, address: str) -> None:
        self._network, self._address = network, address

    def unary_unary(self, path: str, **_: object):
        return self._answer

    unary_stream = stream_stream = unary_unary

    def _answer(self, request, timeout=None):
        self._network.asked.append((self._address, request))
        node = self._network.nodes.get(self._address)
        if node is None:
            raise Away
        return node(request)

    def close(self) -> None:
        pass


@pytest.fixture
def network():
    """A network without nodes; whatever opens a channel in the test is in it."""
    made = Network({})
    token = ENVIRONMENT.set(made)
    yield made
    ENVIRONMENT.reset(token)
