"""Pipeline of calls: from a transport to the node, and the answer back.

    authenticate ─► authorise ─► throttle ─► take a turn ─► check ─► limit ─► ask ─► count, trace
    └─────────────── admit ────────────────┘ └───────────────── answer ─────────────────────────┘

The pipeline knows no transport. A transport makes a `Call` of a request, has it admitted, and
passes a function that translates the request. That one is called at the call's turn, so a call that
is refused before costs no translation. The transport gets the core's replies, or a `CallRefused`,
which it maps to its own statuses or codes.

Heartbeats skip most of it: after `admit`, which they need only on a node with a guard or a
throttle, `beat` answers them in the same iteration of the event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from coordinator.core import limits
from coordinator.core.values import requests as c
from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.ids import TOPICS_GROUP, CallId
from coordinator.core.values.replies import DeleteReply, HeartbeatReply, Reply
from coordinator.core.values.session_messages import Attach, AttachReply, StreamEnded
from coordinator.runtime.node import Node
from coordinator.runtime.shard_runner import ShardRunner, StreamListener
from coordinator.runtime.slices import Result, Slices, Work, in_slices
from coordinator.security.guard import Guard
from coordinator.security.rules import Operation
from coordinator.service.access import Access
from coordinator.service.call_queue import Drop
from coordinator.service.call_scheduler import CallScheduler
from coordinator.service.calls import HEARTBEAT, SESSION, Call, Kind
from coordinator.service.latency import Latency
from coordinator.service.nodes import FoundCoordinator, found_coordinator
from coordinator.service.parts import first_error, merged, merged_list, parts_of
from coordinator.service.quotas import Quotas
from coordinator.service.rebalance_feed import Journaled, RebalanceFeed
from coordinator.service.refusals import (
    RETRY_S,
    CallRefused,
    Exhausted,
    GaveUp,
    Malformed,
    Violation,
    too_long,
)
from coordinator.service.throttle import Throttle
from coordinator.service.tracing import NO_TRACES, Tracer
from coordinator.service.validation.commands import CommandValidator, check_heartbeat

OK = "OK"
TURN_S = 0.001
"""Estimated seconds of a turn, from which a refused client is told when to retry."""
TIMED_HEARTBEATS = 64
"""Every 64th heartbeat or batch is timed: the path is too short to read a clock each time."""
BEATS_AT_ONCE = 50
"""Heartbeats of a batch that are answered before the event loop may run other calls."""
ALIVE = HeartbeatReply()
"""Answer to a heartbeat without an error."""

MalformedSink = Callable[[str, str, str], None]
"""Callback for a malformed call: its kind's name, the peer, what is wrong."""
DeletionSink = Callable[[str, str, str, bool], None]
"""Callback for each deleted group: the group, the caller's principal (empty without a guard), the
peer, and whether the result is known: False if the caller went away before the answer, so the
deletion may or may not be in the log."""
Translation = Callable[[Callable[[], CallId]], Work[Sequence[c.Request]]]
"""Translates a request to commands; its argument makes their call ids."""
Beat = TypeVar("Beat")
Answer = TypeVar("Answer")


class Pipeline:
    """Pipeline of a node's calls, shared by its transports.

    Args:
        guard: None: callers are not authenticated, and may do everything.
        on_heartbeat: called with the seconds that every `TIMED_HEARTBEATS`th heartbeat took.
        tracer: makes a span for every call that `answer` serves.
    """

    def __init__(
        self,
        node: Node,
        *,
        guard: Guard | None = None,
        tracer: Tracer = NO_TRACES,
        on_malformed: MalformedSink,
        on_heartbeat: Callable[[float], None] = lambda seconds: None,
        on_deleted: DeletionSink = lambda group, principal, peer, is_known: None,
    ) -> None:
        settings = node.settings
        clock = asyncio.get_running_loop().time
        self.node = node
        self.calls: Counter[tuple[str, str]] = Counter()
        """Ended calls by kind and outcome, without lone heartbeats that were answered."""
        self.latencies: dict[str, Latency] = {}
        """Latencies of calls by kind: of those that have been called."""
        self.heartbeats = 0
        """Answered heartbeats, alone or in batches."""
        self.batches = 0
        """Batches of heartbeats, answered or not."""
        self.batched = 0
        """Answered heartbeats that came in batches."""
        self.quotas = Quotas(settings.limits, node)
        self.turns = CallScheduler(settings.limits.max_pending_requests, clock)
        self.feed = RebalanceFeed()
        node.listen(self.feed)
        per_second = settings.limits.max_requests_per_second
        self._throttle = Throttle(per_second, clock) if per_second else None
        # A member that is not heard for longer could lose its session.
        self._pause_most_s = settings.groups.group_min_session_timeout_ms / 3 / 1000
        self._access = None if guard is None else Access(guard)
        self.admits_all = self._access is None and self._throttle is None
        """True if `admit` never refuses or delays a call: there is neither guard nor throttle."""
        self.validator = CommandValidator(settings.limits)
        self._tracer = tracer
        self._on_malformed = on_malformed
        self._on_heartbeat = on_heartbeat
        self._on_deleted = on_deleted

    def answered_calls(self) -> dict[tuple[str, str], int]:
        """Ended calls by kind and outcome. Any thread may ask."""
        return {**self.calls, (HEARTBEAT.name, OK): self.heartbeats - self.batched}

    def latency(self, kind: Kind) -> Latency:
        """Return the histogram to which a transport reports how long calls of a kind took."""
        return self.latencies.setdefault(kind.name, Latency())

    def refused(self, call: Call, error: CallRefused) -> None:
        """Count a refused call, once; report a malformed one."""
        if error.is_counted:
            return
        error.is_counted = True
        self.calls[(call.kind.name, error.outcome)] += 1
        if isinstance(error, Malformed):
            self._on_malformed(call.kind.name, call.caller.peer, str(error))

    # --- Calls ---

    async def admit(self, call: Call) -> None:
        """Authenticate, authorise and throttle a call.

        Raises:
            Unauthenticated, Unavailable, Denied: see `Access`.
            Exhausted: its caller has made more than `max_requests_per_second`.
        """
        if not self.admits_all and not call.is_admitted:
            with _Counting(self, call):
                if self._access is not None and not call.kind.is_open:
                    await self._access.authenticate(call)
                    await self._access.authorise(call)
                await self._hold(call)
        call.is_admitted = True

    async def admit_message(self, call: Call) -> None:
        """Admit the last message of a stream: a stream may outlive a token or a rule."""
        call.is_admitted = False
        await self.admit(call)

    async def answer(self, call: Call, translate: Translation) -> list[Reply]:
        """Return the replies to the commands of a call, one for each, in their order.

        A group that is named twice has one reply. If the task is cancelled while it waits, parked
        commands are cancelled in their groups.

        Raises:
            CallRefused: as `admit`; Malformed; GaveUp: the deadline has passed before its turn.
        """
        with _Counting(self, call):
            if not call.is_admitted:
                await self.admit(call)
            if not call.kind.is_urgent:
                await self._take_turn(call)
            requests = await in_slices(self._checked(call, translate(self.node.new_call_id)))
            for request in requests:
                self.quotas.check(request)
            replies = await self._request(call, requests)
        self.calls[(call.kind.name, OK)] += 1
        return replies

    async def open_session(
        self, call: Call, attach: Attach, listener: StreamListener
    ) -> tuple[AttachReply, ShardRunner | None]:
        """Attach a process to a session group: the one door for the streams of its members.

        Args:
            listener: is told when there is something to be told on the stream.
        Returns:
            The answer, and the runner to which the member speaks from then on, also to say that
            the stream has ended; None: this node does not lead the group.
        Raises:
            CallRefused: as `answer`. The stream has ended then.
        """

        def translation(_: Callable[[], CallId]) -> Work[Sequence[c.Request]]:
            yield from ()
            return [attach]

        runner = self.node.runner_of(attach.group_id)
        if runner is not None:
            runner.listen(attach.call_id, listener)
        try:
            (reply,) = await self.answer(call, translation)
        except BaseException:
            if runner is not None:
                runner.receive(StreamEnded(stream_id=attach.call_id, group_id=attach.group_id))
            raise
        assert isinstance(reply, AttachReply)
        return reply, runner

    async def in_turns(self, call: Call, work: Work[Result]) -> Result:
        """Do the work of a stream's message; after the first slice, each waits for its turn.

        Raises:
            Exhausted: too many calls wait.
        """
        return await in_slices(work, partial(self._take_turn, call))

    def streaming(self, call: Call) -> _Streaming:
        """Admit a stream, and count it as open inside the context.

        Raises:
            CallRefused: on entry; as `admit`; Exhausted: there are too many streams.
        """
        return _Streaming(self, call)

    async def watch(self, call: Call) -> AsyncGenerator[Journaled]:
        """Yield rebalances from now on: of the groups that the call names, or of all it may see.

        Raises:
            CallRefused: as `admit`; Malformed; Exhausted: they come faster than they are taken.
        """
        group_ids = [group for group in call.groups if group is not None]
        async with self.streaming(call):
            self.validator.check_groups("group_ids", group_ids)
            async for record in self.feed.watch(set(group_ids)):
                if self._access is not None:
                    await self._access.authenticate(call)
                is_shown = self._filter(call)
                if is_shown is None or is_shown(record.group_id):
                    yield record

    def find_coordinator(self, group_id: str) -> FoundCoordinator:
        """Return the node that coordinates a group.

        Raises:
            Malformed: the id is too long.
        """
        if (wrong := too_long("group_id", group_id, limits.GROUP_ID)) is not None:
            raise Malformed([wrong])
        return found_coordinator(group_id, self.node.coordinator_of(group_id))

    def may(self, call: Call, operation: Operation, group_id: str) -> bool:
        """True if the caller of an admitted call has an operation on a group."""
        return self._access is None or self._access.may(call.caller, operation, group_id)

    # --- Heartbeats ---

    def beat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> HeartbeatReply:
        """Answer a heartbeat of an admitted call; without an error the reply is `ALIVE` itself.

        Raises:
            Malformed: an id is too long, or the instance id is empty.
        """
        self.heartbeats += 1
        if not self.heartbeats % TIMED_HEARTBEATS:
            return self._timed_beat(group_id, member_id, instance_id, generation)
        if self.node.beat(group_id, member_id, instance_id, generation):
            return ALIVE
        return self._beat_in_a_step(group_id, member_id, instance_id, generation)

    async def beats(
        self, call: Call, beats: Sequence[Beat], beat: Callable[[Beat], Answer]
    ) -> list[Answer]:
        """Answer a batch of heartbeats, in slices.

        Args:
            beat: answers one, by `Pipeline.beat`.
        Raises:
            Malformed: as `beat`, or there are too many. Heartbeats before the malformed one count.
        """
        answers: list[Answer] = []
        began_s = 0.0 if self.batches % TIMED_HEARTBEATS else time.perf_counter()
        self.batches += 1
        slices = Slices() if len(beats) > BEATS_AT_ONCE else None
        with _Counting(self, call):
            self.validator.check_count("heartbeats", len(beats), limits.MEMBERS)
            for first in range(0, len(beats), BEATS_AT_ONCE):
                if slices is not None:
                    await slices.pause()
                before = self.heartbeats
                try:
                    answers += map(beat, beats[first : first + BEATS_AT_ONCE])
                except Malformed as malformed:
                    raise malformed.within(f"heartbeats[{len(answers)}].") from None
                finally:
                    self.batched += self.heartbeats - before
        if began_s:
            self.latency(call.kind).observe(time.perf_counter() - began_s)
        return answers

    # --- Inside ---

    async def _hold(self, call: Call) -> None:
        if self._throttle is None or not call.kind.is_throttled:
            return
        caller = call.caller.principal or call.caller.host
        if call.is_paid_later:
            call.pause(self._throttle.serve(caller, self._pause_most_s))
            return
        turn = self._throttle.take(caller)
        if turn.wait_s:
            await asyncio.sleep(turn.wait_s)
        if turn.is_refused:
            most = self.node.settings.limits.max_requests_per_second
            message = f"{caller} makes more than {most} calls a second (max_requests_per_second)"
            raise Exhausted(message, turn.retry_after_s)

    async def _take_turn(self, call: Call) -> None:
        caller = call.caller
        name = caller.principal or caller.peer
        drop = await self.turns.take(
            name, call.kind.name, call.remaining_s(), is_awaited=call.is_awaited
        )
        if drop is None:
            return
        if drop is Drop.FULL:
            waiting = len(self.turns.queue)
            message = f"{waiting} calls wait for their turn, and {name} has its share of them"
            raise Exhausted(message, max(RETRY_S, waiting * TURN_S))
        raise GaveUp("nobody waits for the answer")

    def _checked(
        self, call: Call, translation: Work[Sequence[c.Request]]
    ) -> Work[Sequence[c.Request]]:
        requests = yield from translation
        assert call.covers(requests), f"a {call.kind.name} names other groups than it asks for"
        if not call.kind.changes_reserved:
            _check_reserved(requests)
        return (yield from self.validator.check(requests))

    async def _request(self, call: Call, requests: Sequence[c.Request]) -> list[Reply]:
        first = requests[0] if requests else None
        is_shown = self._filter(call)
        if isinstance(first, c.ListGroups):
            # Each shard is asked for the whole beginning. Hidden groups do not count for the limit.
            end = first.skip + first.limit if first.limit and is_shown is None else 0
            requests = [replace(first, limit=end, skip=0)]
        parts = parts_of(requests, self.node.new_call_id)
        with self.quotas.parking(first), self._tracer.call(call) as span:
            try:
                replies = await self.node.ask(parts, span.parked)
            except asyncio.CancelledError:
                self._announce_deletions(call, parts, None)
                raise
            span.answered(first_error(replies)[0].name)
        self._announce_deletions(call, parts, replies)
        if isinstance(first, c.ListGroups):
            return await in_slices(merged_list(replies, first, is_shown))
        return merged(replies)

    def _filter(self, call: Call) -> Callable[[str], bool] | None:
        """Return a predicate for groups that the caller may see; None: it may see all."""
        access = self._access
        if access is None or not call.kind.shows_readable or access.sees_all(call.caller):
            return None
        return partial(access.may_read, call.caller)

    def _announce_deletions(
        self, call: Call, requests: Sequence[c.Request], replies: Sequence[Reply] | None
    ) -> None:
        if call.kind.command is not c.DeleteGroup:
            return
        caller = call.caller
        deleted: Sequence[c.Request | Reply] = requests if replies is None else replies
        for reply in deleted:
            if isinstance(reply, c.DeleteGroup) or (
                isinstance(reply, DeleteReply) and reply.error is ErrorCode.NONE
            ):
                self._on_deleted(reply.group_id, caller.principal, caller.peer, replies is not None)

    def _timed_beat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> HeartbeatReply:
        began_s = time.perf_counter()
        reply = ALIVE
        if not self.node.beat(group_id, member_id, instance_id, generation):
            reply = self._beat_in_a_step(group_id, member_id, instance_id, generation)
        seconds = time.perf_counter() - began_s
        self._on_heartbeat(seconds)
        self.latency(HEARTBEAT).observe(seconds)
        return reply

    def _beat_in_a_step(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> HeartbeatReply:
        command = c.Heartbeat(
            call_id=self.node.new_call_id(),
            group_id=group_id,
            generation=generation,
            member_id=member_id,
            instance_id=instance_id,
        )
        # `Node.beat` knew the ids of the member; these ids have not been checked yet.
        check_heartbeat(command)
        reply = self.node.answer_beat(command)
        assert isinstance(reply, HeartbeatReply)
        return reply


def _check_reserved(requests: Sequence[c.Request]) -> None:
    """Refuse requests for the group that keeps the counts of topics. Raises `Malformed`."""
    if any(getattr(request, "group_id", "") == TOPICS_GROUP for request in requests):
        reason = "is reserved for the numbers of partitions that `coordinator topics` sets"
        raise Malformed([Violation("group_id", reason)])


class _Streaming:
    """Context of an open stream. It is kept as long as the stream, and a generator is larger."""

    __slots__ = ("_call", "_counting", "_open", "_pipeline")

    def __init__(self, pipeline: Pipeline, call: Call) -> None:
        self._pipeline = pipeline
        self._call = call
        self._counting = _Counting(pipeline, call)
        self._open = pipeline.quotas.streaming(is_of_member=call.kind is SESSION)

    async def __aenter__(self) -> None:
        with self._counting:
            await self._pipeline.admit(self._call)
            self._open.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        self._open.__exit__(kind, error, trace)
        self._counting.__exit__(kind, error, trace)


class _Counting:
    """Context that counts a call which is refused in it.

    It is a class because a generator's context costs a heartbeat batch 1 us more.
    """

    __slots__ = ("_call", "_pipeline")

    def __init__(self, pipeline: Pipeline, call: Call) -> None:
        self._pipeline = pipeline
        self._call = call

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, CallRefused):
            self._pipeline.refused(self._call, error)
