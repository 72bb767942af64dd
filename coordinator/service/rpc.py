"""What every RPC does: translate, ask the node, translate back; and refuse what is malformed."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Any, NoReturn, TypeVar, cast
from urllib.parse import unquote

import grpc
from google.protobuf.message import Message
from grpc_status import rpc_status

from coordinator.core.errors import ErrorCode
from coordinator.core.replies import HeartbeatReply, Reply
from coordinator.runtime.node import Node
from coordinator.runtime.slices import Slices, in_slices
from coordinator.service.admission_queue import Drop
from coordinator.service.callers import CALLER
from coordinator.service.grpc import statuses, translate
from coordinator.service.grpc.checked_server import RefusalSink
from coordinator.service.grpc.message_limits import MessageLimits
from coordinator.service.grpc.serialized import is_large, serialized
from coordinator.service.limits import RETRY_S, Exhausted, Limits
from coordinator.service.throttle import Throttle
from coordinator.service.tracing import NO_TRACES, Tracer
from coordinator.service.turns import Turns
from coordinator.v1 import group_pb2

Response = TypeVar("Response", bound=Message)
Context = grpc.aio.ServicerContext[Any, Any]  # Any: the message types of the RPC.

TURN_S = 0.001
"""What a turn takes, for telling a client when to try again."""

TIMED_HEARTBEATS = 64
"""One heartbeat of so many is timed: the path is too short to read a clock each time."""

AHEAD = frozenset({"LeaveGroup"})
"""Calls that `answer` serves without a turn: whoever leaves makes room for others."""

ALIVE = group_pb2.HeartbeatResponse()
"""What nearly every heartbeat is answered, made once. Nobody may write into it."""


BEATS_AT_ONCE = 50
"""Heartbeats of a batch between two chances to let others in."""
REMEMBERED_BATCH = 500
"""The largest batch whose answer is kept: that of our own clients."""


def all_alive(members: int) -> group_pb2.HeartbeatBatchResponse:
    """The answer to a batch of members that are all alive. Nobody may write into it."""
    return _remembered(members) if members <= REMEMBERED_BATCH else _all_alive(members)


def _all_alive(members: int) -> group_pb2.HeartbeatBatchResponse:
    return group_pb2.HeartbeatBatchResponse(heartbeats=[ALIVE] * members)


_remembered = lru_cache(maxsize=REMEMBERED_BATCH + 1)(_all_alive)


class Rpc:
    """The way from a request to its response, shared by all services.

    Args:
        on_malformed: told of every refused call.
        tracer: makes a span of every call but heartbeats.
        on_heartbeat: told how many seconds a heartbeat took, of one in `TIMED_HEARTBEATS`.
    """

    def __init__(
        self,
        node: Node,
        on_malformed: RefusalSink,
        on_heartbeat: Callable[[float], None] = lambda seconds: None,
        tracer: Tracer = NO_TRACES,
    ) -> None:
        self.node = node
        self._tracer = tracer
        self.calls: Counter[tuple[str, str]] = Counter()
        """Answered calls by request and gRPC status, but for lone heartbeats."""
        self.heartbeats = 0
        """Answered heartbeats, alone or in batches."""
        self.batched = 0
        """Those that came in batches."""
        self.limits = Limits(node.settings.limits, node)
        self.message_limits = MessageLimits(node.settings.limits)
        per_second = node.settings.limits.max_requests_per_second
        loop = asyncio.get_running_loop()
        self.turns = Turns(node.settings.limits.max_pending_requests, loop.time)
        self._throttle = Throttle(per_second, loop.time) if per_second else None
        self._on_malformed = on_malformed
        self._on_heartbeat = on_heartbeat

    @property
    def is_throttled(self) -> bool:
        """True if callers may be held back."""
        return self._throttle is not None

    def answered_calls(self) -> dict[tuple[str, str], int]:
        """Answered calls by request and gRPC status. Any thread may ask."""
        return {**self.calls, ("Heartbeat", "OK"): self.heartbeats - self.batched}

    async def admit(self, name: str, context: Context) -> None:
        """Hold a caller back that calls too often; the call may end here."""
        if self._throttle is None:
            return
        caller = CALLER.get() or client_host(context)
        admission = self._throttle.take(caller)
        if admission.wait_s:
            await asyncio.sleep(admission.wait_s)
        if admission.is_refused:
            most = self.node.settings.limits.max_requests_per_second
            message = f"{caller} makes more than {most} calls a second (max_requests_per_second)"
            await self.turn_away(name, context, Exhausted(message, admission.retry_after_s))

    async def _take_turn(self, name: str, context: Context, *, is_awaited: bool) -> None:
        """Wait until it is the caller's turn; the call may end here."""
        caller = CALLER.get() or context.peer()
        remaining_s = context.time_remaining()
        drop = await self.turns.take(caller, name, remaining_s, is_awaited=is_awaited)
        if drop is None:
            return
        if drop is Drop.FULL:
            waiting = len(self.turns.queue)
            message = f"{waiting} calls wait for their turn, and {caller} has its share of them"
            await self.turn_away(name, context, Exhausted(message, max(RETRY_S, waiting * TURN_S)))
        self.calls[(name, "DEADLINE_EXCEEDED")] += 1
        await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "nobody waits for the answer")

    async def turn_away(self, name: str, context: Context, error: Exhausted) -> NoReturn:
        """End a call for which there is no room."""
        self.calls[(name, "RESOURCE_EXHAUSTED")] += 1
        status = statuses.exhausted(str(error), error.retry_after_s)
        await context.abort_with_status(rpc_status.to_status(status))
        raise AssertionError("abort_with_status raises")

    @asynccontextmanager
    async def streaming(self, name: str, context: Context) -> AsyncIterator[None]:
        """While a stream is open; it ends at once if there are too many."""
        await self.admit(name, context)
        try:
            with self.limits.streaming():
                yield
        except Exhausted as error:
            await self.turn_away(name, context, error)

    def beat(self, request: group_pb2.HeartbeatRequest) -> group_pb2.HeartbeatResponse:
        """The hot path: one step of the shard in this turn of the loop, and nothing else.

        Raises:
            translate.Malformed: it makes no sense.
        """
        self.heartbeats += 1
        if self.heartbeats % TIMED_HEARTBEATS:
            return self._beat(request)
        began = time.perf_counter()
        response = self._beat(request)
        self._on_heartbeat(time.perf_counter() - began)
        return response

    async def beats(
        self, name: str, request: group_pb2.HeartbeatBatchRequest, context: Context
    ) -> group_pb2.HeartbeatBatchResponse:
        """As many heartbeats as a process has members, in slices."""
        heartbeats = request.heartbeats
        responses: list[group_pb2.HeartbeatResponse] = []
        slices = Slices()
        for first in range(0, len(heartbeats), BEATS_AT_ONCE):
            if first:
                await slices.pause()
            before = self.heartbeats
            try:
                try:
                    responses += map(self.beat, heartbeats[first : first + BEATS_AT_ONCE])
                finally:
                    self.batched += self.heartbeats - before
            except translate.Malformed as malformed:
                # Those before it have been answered.
                place = f"heartbeats[{len(responses)}]."
                await self.refuse(name, context, malformed.within(place))
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
        # Whose heartbeat was taken has an id that is right; of the others nobody has asked.
        self.message_limits.check(request)
        reply = node.answer_beat(translate.heartbeat_command(request, node.new_call_id()))
        assert isinstance(reply, HeartbeatReply)
        return translate.heartbeat_response(reply)

    async def answer(self, request: Message, context: Context, kind: type[Response]) -> Response:
        """The response to any request of GroupCoordinator or GroupAdmin."""
        name = type(request).__name__.removesuffix("Request")
        await self.admit(name, context)
        if name not in AHEAD:
            await self._take_turn(name, context, is_awaited=_is_awaited(request))
        host = client_host(context)
        try:
            commands = await in_slices(translate.translation(request, self.node.new_call_id, host))
        except translate.Malformed as malformed:
            await self.refuse(name, context, malformed)
        try:
            for command in commands:
                self.limits.check(command)
            self.limits.park(commands[0] if commands else None)
        except Exhausted as error:
            await self.turn_away(name, context, error)
        try:
            with self._tracer.call(name, _group_of(request), context.invocation_metadata) as span:
                replies = await self.node.ask(commands, span.parked)
                span.answered(_first_error(replies))
        finally:
            self.limits.unpark()
        self.calls[(name, "OK")] += 1
        response = await in_slices(translate.response_work(request, replies))
        assert isinstance(response, kind)
        if is_large(replies):
            replies.clear()
            return cast("Response", await in_slices(serialized(response)))
        return response

    async def refuse(self, name: str, context: Context, malformed: translate.Malformed) -> NoReturn:
        """End a call whose request makes no sense."""
        self.refused(name, context.peer(), str(malformed))
        await context.abort_with_status(rpc_status.to_status(statuses.malformed(malformed)))
        raise AssertionError("abort_with_status raises")

    def refused(self, name: str, peer: str, what: str) -> None:
        """Count a call that is refused as malformed, and tell of it.

        Args:
            name: of the RPC, with or without its service in front.
        """
        name = name.rpartition("/")[2]
        self.calls[(name, "INVALID_ARGUMENT")] += 1
        self._on_malformed(name, peer, what)


def _is_awaited(request: Message) -> bool:
    """True if a rebalance waits for a call: of a member that has its id, to join or to sync."""
    if isinstance(request, group_pb2.JoinGroupRequest):
        return bool(request.member_id)
    return isinstance(request, group_pb2.SyncGroupRequest)


def _group_of(request: Message) -> str:
    return str(getattr(request, "group_id", ""))


def _first_error(replies: Sequence[Reply]) -> str:
    """The first error code that is not NONE; replies have one for themselves or for each part."""
    for reply in replies:
        error = getattr(reply, "error", ErrorCode.NONE)
        if error is not ErrorCode.NONE:
            return str(error.name)
    return ErrorCode.NONE.name


def client_host(context: Context) -> str:
    """The peer as groups know it, `/127.0.0.1`, as Kafka's tools print it."""
    peer = unquote(context.peer())
    if peer.startswith(("ipv4:", "ipv6:")):
        return "/" + peer.split(":", 1)[1].rsplit(":", 1)[0].strip("[]")
    return "/" + peer
