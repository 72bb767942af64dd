"""The token of a store's nodes goes with a member to the node that its coordinator has named."""

from __future__ import annotations

import grpc
import pytest

from coordinator.client.member.calls import FindCoordinator, MemberCall, RefusedCall
from coordinator.client.transport.connection import CoordinatorConnection
from coordinator.dial import Credentials
from coordinator.node_source import FoundNode


class Node(grpc.GenericRpcHandler):
    """A server that refuses all calls, and notes who called."""

    def __init__(self) -> None:
        self.authorizations: list[str | None] = []

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        self.authorizations.append(dict(details.invocation_metadata).get("authorization"))

        async def refuse(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "not today")

        return grpc.unary_unary_rpc_method_handler(refuse)


class Store:
    """Finds one node, by the text `sqlite:///jobs`."""

    def __init__(self, address: str) -> None:
        self.address = address

    def __str__(self) -> str:
        return "sqlite:///jobs"

    def find_node(self, timeout_s: float) -> FoundNode:
        return FoundNode(self.address, "secret")


@pytest.fixture
async def node():
    host = Node()
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((host,))
    host.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    yield host
    await server.stop(None)


async def test_a_node_that_the_coordinator_names_is_shown_the_token_too(node):
    nodes = Store(node.address)
    connection = CoordinatorConnection(Credentials(nodes=nodes), 1.0, lambda: None, lambda: 0.5)
    for address in (str(nodes), node.address):
        call = MemberCall(FindCoordinator("g", address), 5_000, 0, object())
        assert isinstance(await connection.carry_out(call), RefusedCall)
    assert node.authorizations == ["Bearer secret", "Bearer secret"]
