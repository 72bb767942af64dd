"""The RPC of GroupSessions: one stream is one member.

A stream has a reader and a writer. The reader hands in what the member says; the writer takes what
there is to be told when it can write, so a slow reader gets the newest state and costs one flag.

Messages that name many partitions are worked off in slices that wait for their turn, as calls do,
and the stream is not read for a while afterwards (KIP-219 does so with connections): a member that
sends one after the other gets a fifth of a node.

A stream that the shard has ended is let go at once. Its last message waits for a member that reads
nothing, since grpc.aio cannot reset a stream: until it reads or its connection ends, it costs that
one message and its place in `max_streams`.

Rules of the protocol are refused in messages (`Refused`, `GoAway`), after which the stream ends
with OK. Authentication, rights and limits of the node end it with a status, as other calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TypeAlias

from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.session_messages import (
    Attach,
    GoAway,
    GoAwayReason,
    SessionAck,
    SessionHeartbeat,
    StreamEnd,
    StreamRefused,
)
from coordinator.runtime.shard_runner import ShardRunner
from coordinator.runtime.slices import Slices, Work, let_others_be_answered
from coordinator.service.calls import Call
from coordinator.service.grpc.calls import GrpcCall
from coordinator.service.grpc.conversation import Conversation
from coordinator.service.grpc.translate import sessions as translate
from coordinator.service.grpc.translate.sessions import MemberStream, refusal
from coordinator.service.pipeline import Pipeline
from coordinator.service.refusals import CallRefused, GaveUp, Malformed
from coordinator.v1 import session_pb2 as pb

Messages: TypeAlias = Conversation[pb.SessionRequest, pb.SessionResponse]
FIRST_MESSAGE_S = 10.0
"""Time in which a stream's first message has to come."""
NAMED_AT_ONCE = 1_000
"""Partitions that a member may name without a rest."""
REST_S = 20e-6
"""Rest for each named partition, four times what it costs to hear and to tell of it; at most the
heartbeat interval of the shortest lease, a quarter of it."""
MOVED = GoAway(GoAwayReason.MOVED)


class SessionService:
    """Handlers of the GroupSessions service."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    async def Session(self, messages: Messages, call: Call) -> None:
        async with self._pipeline.streaming(call):
            stream = _Stream(self._pipeline, messages, call)
            try:
                await stream.serve()
            finally:
                stream.close()


class _Stream:
    """One stream of a member, of which this is the writer."""

    __slots__ = (
        "_call",
        "_end",
        "_has_hung_up",
        "_has_pending",
        "_member",
        "_messages",
        "_named",
        "_node",
        "_pipeline",
        "_reader",
        "_refused",
        "_runner",
        "_waits",
    )

    def __init__(self, pipeline: Pipeline, messages: Messages, call: Call) -> None:
        self._pipeline = pipeline
        self._messages = messages
        self._node = pipeline.node
        self._call = call
        self._member = MemberStream(self._node.new_call_id(), call.caller.host)
        self._runner: ShardRunner | None = None
        self._named = 0  # Partitions that it has named, or was told at its wish, since its rest.
        self._has_pending = False
        self._waits: asyncio.Future[None] | None = None
        self._end: StreamEnd | None = None
        self._refused: CallRefused | None = None
        self._has_hung_up = False
        self._reader: asyncio.Task[None] | None = None

    # --- StreamListener ---

    def wake(self) -> None:
        """See `StreamListener`."""
        self._has_pending = True
        if self._waits is not None and not self._waits.done():
            self._waits.set_result(None)

    def end(self, last: StreamEnd) -> None:
        """See `StreamListener`."""
        if self._end is None:
            self._end = last
            self.wake()
            self._stop_reading()

    # --- Both ways ---

    async def serve(self) -> None:
        """Write to the member until the stream ends."""
        write = self._messages.write
        try:
            attach = await self._first()
            reply, runner = await self._pipeline.open_session(self._call, attach, self)
        except Malformed as malformed:
            await write(self._refusal_of(malformed))
            return
        self._runner = runner
        if self._end is not None and reply.error is not ErrorCode.NONE:
            await write(self._last(self._end))  # It ended while its Attach waited for the log.
            return
        if reply.error is not ErrorCode.NONE or runner is None:
            refused = StreamRefused(reply.error, reply.message, reply.retry_after_ms)
            await write(translate.last_of(refused))
            return
        self._reader = asyncio.create_task(self._read(runner))
        slices = Slices(rest=let_others_be_answered)
        await self._write_all(self._member.answered(reply, runner.fence_epoch), slices)
        del attach, reply  # They would be kept as long as the stream.
        await self._write_pending(runner, slices)

    async def _write_pending(self, runner: ShardRunner, slices: Slices) -> None:
        """Write pending messages whenever there are some."""
        while True:
            self._has_pending = False
            slices.begin()
            if self._end is None and not self._node.may_answer():
                # Another node may lead the group by now: what it says counts.
                self.end(MOVED)
            elif self._end is None and (pending := runner.take(self._member.stream_id)) is not None:
                if pending.orders is not None and pending.orders.answers >= 0:
                    self._named += len(pending.orders.partitions)
                await slices.pause()
                await self._write_all(self._member.outgoing(pending, runner.fence_epoch), slices)
                continue
            if self._end is not None:
                await self._messages.write(self._last(self._end))
                return
            if self._refused is not None:
                raise self._refused
            if self._has_hung_up:
                return
            if not self._has_pending:
                self._waits = asyncio.get_running_loop().create_future()
                await self._waits
                self._waits = None

    async def _write_all(self, pages: Iterable[pb.SessionResponse], slices: Slices) -> None:
        """Write pages, and yield to other calls between them."""
        for page in pages:
            await self._messages.write(page)
            await slices.pause()

    def close(self) -> None:
        """Report the end of the stream; the member itself may live on."""
        self._stop_reading()
        if self._runner is not None:
            self._runner.receive(self._member.ended())

    # --- Inside ---

    def _stop_reading(self) -> None:
        if self._reader is not None and self._reader is not asyncio.current_task():
            self._reader.cancel()

    async def _first(self) -> Attach:
        try:
            async with asyncio.timeout(FIRST_MESSAGE_S):
                first = await self._messages.read()
        except TimeoutError:
            raise GaveUp(f"the first message has not come within {FIRST_MESSAGE_S:g} s") from None
        if first is None:
            raise Malformed([], "the stream has ended before its first message")
        translation = self._member.attach(first, self._call.caller.principal)
        attach = await self._pipeline.in_turns(self._call, translation)
        if isinstance(self._call, GrpcCall):
            self._call.names(attach.group_id)
        return attach

    async def _read(self, runner: ShardRunner) -> None:
        """Hand the member's messages to the shard until it closes its side."""
        member = self._member
        try:
            while (request := await self._messages.read()) is not None:
                await self._pipeline.in_turns(self._call, self._receive(runner, request))
                if self._named > NAMED_AT_ONCE:
                    most_s = self._node.settings.groups.group_min_lease_ms / 4_000
                    rest_s, self._named = min(most_s, self._named * REST_S), 0
                    await asyncio.sleep(rest_s)
        except Malformed as malformed:
            self._pipeline.refused(self._call, malformed)
            self.end(refusal(malformed))
        except CallRefused as refused:
            self._refused = refused
        else:
            self._has_hung_up = True
        runner.receive(member.ended())  # Now: the writer may still wait for the member to read.
        self.wake()

    def _receive(self, runner: ShardRunner, request: pb.SessionRequest) -> Work[None]:
        """Hand one message to the shard, and count the partitions that it names."""
        self._named += len(request.heartbeat.loads)
        for message in (yield from self._member.receive(request)):
            match message:
                case SessionAck():
                    self._named += len(message.partitions)
                case SessionHeartbeat():
                    self._named += len(message.held or ()) + len(message.log_ends)
            runner.receive(message)
            yield

    def _refusal_of(self, malformed: Malformed) -> pb.SessionResponse:
        self._pipeline.refused(self._call, malformed)
        return translate.last_of(refusal(malformed))

    def _last(self, end: StreamEnd) -> pb.SessionResponse:
        if end != MOVED:
            return translate.last_of(end)
        leader = self._node.leader_elsewhere(self._member.group_id)
        return translate.last_of(end, *(("", 0) if leader is None else (leader.host, leader.port)))
