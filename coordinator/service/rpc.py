"""What every RPC does: translate, ask the node, translate back; and refuse what is malformed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NoReturn, TypeVar
from urllib.parse import unquote

import grpc
from google.protobuf import any_pb2
from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from coordinator.core.replies import HeartbeatReply
from coordinator.runtime.node import Node
from coordinator.service import translate
from coordinator.service.checked_server import RefusalSink
from coordinator.v1 import group_pb2

Response = TypeVar("Response", bound=Message)
Context = grpc.aio.ServicerContext[Any, Any]  # Any: the message types of the RPC.

TIMED_HEARTBEATS = 64
"""One heartbeat of so many is timed: the path is too short to read a clock each time."""


ALIVE = group_pb2.HeartbeatResponse()
"""What nearly every heartbeat is answered, made once. Nobody may write into it."""


@lru_cache(maxsize=1_000)
def all_alive(members: int) -> group_pb2.HeartbeatBatchResponse:
    """The answer to a batch of members that are all alive, made once for each size."""
    return group_pb2.HeartbeatBatchResponse(heartbeats=[ALIVE] * members)


class Rpc:
    """The way from a request to its response, shared by all services.

    Args:
        on_malformed: told of every refused call.
        on_heartbeat: told how many seconds a heartbeat took, of one in `TIMED_HEARTBEATS`.
    """

    def __init__(
        self,
        node: Node,
        on_malformed: RefusalSink,
        on_heartbeat: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        self.node = node
        self.calls: Counter[tuple[str, str]] = Counter()
        """Answered calls by request and gRPC status, but for lone heartbeats."""
        self.heartbeats = 0
        """Answered heartbeats, alone or in batches."""
        self.batched = 0
        """Those that came in batches."""
        self._on_malformed = on_malformed
        self._on_heartbeat = on_heartbeat

    def answered_calls(self) -> dict[tuple[str, str], int]:
        """Answered calls by request and gRPC status. Any thread may ask."""
        return {**self.calls, ("Heartbeat", "OK"): self.heartbeats - self.batched}

    def beat(self, request: group_pb2.HeartbeatRequest) -> group_pb2.HeartbeatResponse:
        """The hot path: one step of the shard in this turn of the loop, and nothing else."""
        self.heartbeats += 1
        if self.heartbeats % TIMED_HEARTBEATS:
            return self._beat(request)
        began = time.perf_counter()
        response = self._beat(request)
        self._on_heartbeat(time.perf_counter() - began)
        return response

    def beats(self, request: group_pb2.HeartbeatBatchRequest) -> group_pb2.HeartbeatBatchResponse:
        """As many heartbeats as a process has members."""
        self.batched += len(request.heartbeats)
        responses = [self.beat(heartbeat) for heartbeat in request.heartbeats]
        if all(response is ALIVE for response in responses):
            return all_alive(len(responses))
        return group_pb2.HeartbeatBatchResponse(heartbeats=responses)

    def _beat(self, request: group_pb2.HeartbeatRequest) -> group_pb2.HeartbeatResponse:
        node = self.node
        if node.beat(
            request.group_id,
            request.member_id,
            request.group_instance_id if request.HasField("group_instance_id") else None,
            request.generation_id,
        ):
            return ALIVE
        reply = node.answer_beat(translate.heartbeat_command(request, node.new_call_id()))
        assert isinstance(reply, HeartbeatReply)
        return translate.heartbeat_response(reply)

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
