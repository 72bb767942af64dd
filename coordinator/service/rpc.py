"""What every RPC does: translate, ask the node, translate back; and refuse what is malformed."""

from __future__ import annotations

from collections import Counter
from typing import Any, NoReturn, TypeVar
from urllib.parse import unquote

import grpc
from google.protobuf import any_pb2
from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from coordinator.runtime.node import Node
from coordinator.service import translate
from coordinator.service.checked_server import RefusalSink

Response = TypeVar("Response", bound=Message)
Context = grpc.aio.ServicerContext[Any, Any]  # Any: the message types of the RPC.


class Rpc:
    """The way from a request to its response, shared by all services.

    Args:
        on_malformed: told of every refused call.
    """

    def __init__(self, node: Node, on_malformed: RefusalSink) -> None:
        self.node = node
        self.calls: Counter[tuple[str, str]] = Counter()
        """Answered calls by request and gRPC status."""
        self._on_malformed = on_malformed

    async def answer(self, request: Message, context: Context, kind: type[Response]) -> Response:
        """The response to any request of GroupCoordinator or GroupAdmin."""
        name = type(request).__name__.removesuffix("Request")
        try:
            commands = translate.commands_of(request, self.node.new_call_id, client_host(context))
        except translate.Malformed as malformed:
            self.refused(name, context.peer(), str(malformed))
            await _abort(context, malformed)
        replies = await self.node.ask(commands)
        self.calls[(name, "OK")] += 1
        response = translate.response_of(request, replies)
        assert isinstance(response, kind)
        return response

    def refused(self, name: str, peer: str, what: str) -> None:
        """Count a call that is refused as malformed, and tell of it.

        Args:
            name: of the RPC, with or without its service in front.
        """
        name = name.rpartition("/")[2]
        self.calls[(name, "INVALID_ARGUMENT")] += 1
        self._on_malformed(name, peer, what)


def client_host(context: Context) -> str:
    """The peer as groups know it, `/127.0.0.1`, as Kafka's tools print it."""
    peer = unquote(context.peer())
    if peer.startswith(("ipv4:", "ipv6:")):
        return "/" + peer.split(":", 1)[1].rsplit(":", 1)[0].strip("[]")
    return "/" + peer


async def _abort(context: Context, malformed: translate.Malformed) -> NoReturn:
    bad_request = error_details_pb2.BadRequest(
        field_violations=[
            error_details_pb2.BadRequest.FieldViolation(field=v.field, description=v.description)
            for v in malformed.violations
        ]
    )
    detail = any_pb2.Any()
    detail.Pack(bad_request)
    status = status_pb2.Status(
        code=code_pb2.INVALID_ARGUMENT, message=str(malformed), details=[detail]
    )
    await context.abort_with_status(rpc_status.to_status(status))
    raise AssertionError("abort_with_status raises")
