"""Work of one message of a session member, without gRPC: said first on a new stream, and on one
that is attached. The member that is attached has some partitions.

Plans are made elsewhere, as a node has it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Protocol

from coordinator.core.config import GroupConfig
from coordinator.core.ids import CallId
from coordinator.core.session_values.commands import PlanComputed
from coordinator.core.session_values.requests import AttachReply
from coordinator.core.sessions.plan.allocator import plan
from coordinator.runtime.clock import RandomIds
from coordinator.runtime.payloads import PAYLOADS
from coordinator.service.grpc.member_stream import MemberStream
from coordinator.service.refusals import Malformed
from coordinator.shard.outbox import Appended, Input, Tick
from coordinator.shard.shard import Shard
from coordinator.v1 import session_pb2 as pb

AFTER_MS = 300
"""Time in which the plan of an arrival is taken."""
CLAIMED_MAX = 50_000
"""Partitions that the ranges of a message name: how long a step takes depends on them, and few
bytes name many."""
ATTACH = pb.SessionRequest(
    attach=pb.Attach(
        group_id="g",
        member_name="w-a",
        incarnation={"id": b"1"},
        stream_number=1,
        topics=[pb.Attach.Topic(name="t", partitions=40)],
        wishes=pb.GroupPolicy(join_quiet_ms=0, initial_delay_ms=0),
    )
)


class Meter(Protocol):
    """Measures what is done at a time. Any: what the work is for."""

    def once(self, work: Callable[[], Any]) -> Any: ...
    def parts(self, work: Generator[None, None, Any]) -> Any: ...


def play(message: pb.SessionRequest, new_meter: Callable[[], Meter], meter: Meter) -> None:
    """Say a message in both places, and tell what follows."""
    ranges = [*message.attach.held, *message.heartbeat.held.topics]
    named = sum(each.last - each.first + 1 for topic in ranges for each in topic.partitions)
    if named > CLAIMED_MAX:
        return
    for is_attached in (False, True):
        node = _Node(new_meter())
        if is_attached:
            node.say(ATTACH)
        node.meter = meter
        node.say(message)


class _Node:
    """A stream, and a shard whose log takes everything at once."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self._now_ms = 0
        self._shard = Shard(GroupConfig(), RandomIds(), PAYLOADS, now_ms=0)
        self._shard.restore(0, sequence=0, next_offset=0)
        self._stream = MemberStream(CallId(1), "/h")
        self._is_attached = False

    def say(self, message: pb.SessionRequest) -> None:
        """Say a message, let what is due be done, and tell the member what there is."""
        work = self._stream.hear(message) if self._is_attached else None
        try:
            said = self.meter.parts(work or self._stream.attach(message, ""))
        except Malformed:
            return
        for command in said if self._is_attached else [said]:
            self._step(command)
        self._tell()
        until_ms = self._now_ms + AFTER_MS
        while self._due_ms is not None and self._due_ms <= until_ms:
            self._now_ms = max(self._now_ms, self._due_ms)
            self._step(Tick())
            self._tell()
        self._now_ms = until_ms

    def _step(self, command: Input) -> None:
        inputs = [command]
        while inputs:
            outbox = self.meter.once(partial(self._shard.step, inputs.pop(0), self._now_ms))
            self._due_ms = outbox.next_deadline_ms
            if outbox.append is not None:
                inputs.append(Appended(outbox.append.sequence))
            for ask in outbox.computes:
                inputs.append(PlanComputed(ask.group_id, ask.number, plan(ask.state)))
            for _, reply in outbox.replies:
                if isinstance(reply, AttachReply) and reply.member_id:
                    self._is_attached = True
                    self.meter.parts(None for _ in self._stream.answered(reply, 1))

    def _tell(self) -> None:
        stream_id = self._stream.stream_id
        take = partial(self._shard.take, stream_id, self._now_ms)
        while (news := self.meter.once(take)) is not None:
            self.meter.parts(None for _ in self._stream.told(news, 1))
