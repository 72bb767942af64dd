"""A member as a case plays it: it heartbeats in time, and does everything else when it is told."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from typing import Any

import grpc

from coordinator.v1 import errors_pb2
from coordinator.v1 import session_pb2 as pb
from tests.kit.session_member import ACTIVE, Ordered, ScriptedMember, orders_of
from tests.protocol.sessions.coordinator_rules.calls import GroupCalls
from tests.protocol.sessions.coordinator_rules.messages import Stream, text_of
from tests.protocol.sessions.trial import TOPIC, Failed, brief, now_s


class TrialMember(ScriptedMember):
    """One member of a group, on a stream of its own.

    Args:
        fields: of its Attach, besides those that every Attach has.
    """

    def __init__(
        self, group: GroupCalls, name: str, partitions: int, fields: dict[str, Any]
    ) -> None:
        fields = {"client_id": "conformance", "wishes": group.policy, **fields}
        super().__init__(
            name, partitions, group_id=group.group_id, topic=TOPIC,
            incarnation=os.urandom(16), **fields,
        )  # fmt: skip
        self.group = group
        self.started_at_ms = int(time.time() * 1_000)
        self.stream: Stream | None = None
        self.history: list[tuple[int, Ordered]] = []
        self.ordered_s: dict[int, float] = {}
        """Time of the last order about each partition."""
        self.sent: dict[int, float] = {}
        """Times at which its heartbeats were sent."""
        self.acks: list[pb.SessionHeartbeatAck] = []
        self.all_orders: list[pb.Orders] = []
        self.beats = True
        self.heard_s = 0.0
        self._tasks: set[asyncio.Task[None]] = set()

    # --- What it was told ---

    @property
    def active(self) -> list[int]:
        """Partitions that are its own to work on."""
        return self.with_order(ACTIVE)

    @property
    def last(self) -> Stream:
        """Its newest stream."""
        assert self.stream is not None
        return self.stream

    @property
    def go_away(self) -> int | None:
        """Reason of the GoAway on the newest stream."""
        said = self.last.first("go_away")
        return None if said is None else said.reason

    @property
    def refused(self) -> pb.SessionRefused | None:
        """The refusal on the newest stream."""
        found: pb.SessionRefused | None = self.last.first("refused")
        return found

    # --- What it says ---

    async def attached(self, **fields: Any) -> pb.Attached:
        """Attach on a new stream, and wait for the answer.

        Raises:
            Failed: it was refused.
        """
        stream = await self.send_attach(**fields)
        await self.group.until(
            lambda: stream.has_ended or stream.first("attached") is not None,
            f"{self.name} is answered Attached",
        )
        attached: pb.Attached | None = stream.first("attached")
        if attached is None:
            raise Failed(f"{self.name} was refused: {text_of(stream.first('refused'))}")
        return attached

    async def attach_refused(self, code: str, **fields: Any) -> pb.SessionRefused:
        """Attach on a new stream, which is to be refused.

        Raises:
            Failed: it was not, or with another code.
        """
        stream = await self.send_attach(**fields)
        await self.group.until(
            lambda: stream.has_ended or bool(stream.said), f"{self.name} is refused"
        )
        refused: pb.SessionRefused | None = stream.first("refused")
        if refused is None:
            said = "Attached" if stream.said else f"status {stream.status}"
            raise Failed(f"expected Refused({code}), got {said}")
        self.group.check(
            errors_pb2.ErrorCode.Name(refused.error_code) == code,
            f"Refused is {code}: it was {text_of(refused)}",
        )
        return refused

    async def send_attach(self, **fields: Any) -> Stream:
        """Attach on a new stream."""
        request = self.attach(**fields)
        stream = self.open()
        await self.send(request)
        self.heard_s = now_s()
        return stream

    def open(self) -> Stream:
        """Open a stream, and say nothing."""
        stream = Stream(self.group.session_call(), self.stream_number)
        self.stream = stream
        self._start(self._read(stream))
        return stream

    async def send(self, request: pb.SessionRequest, stream: Stream | None = None) -> None:
        """Say something; on a stream that has ended it is not heard."""
        stream = stream or self.last
        self.group.transcript.add(f"{self.name} ->  {brief(request)}")
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            async with stream.writing:
                await stream.call.write(request)

    async def send_beat(self, stream: Stream | None = None, **fields: Any) -> int:
        """Send a heartbeat; its number is returned."""
        beat = self.beat(**{"progress": int(now_s() * 1_000), **fields})
        self.sent[self.number] = now_s()
        await self.send(beat, stream or self.last)
        return self.number

    async def beat_and_hear(self, **fields: Any) -> pb.SessionHeartbeatAck:
        """Send a heartbeat, and wait until it, or a later one, is acknowledged."""
        number = await self.send_beat(**fields)
        await self.group.until(
            lambda: bool(self.acks) and self.acks[-1].number >= number,
            f"{self.name}'s heartbeat {number} is acknowledged",
        )
        return self.acks[-1]

    async def send_ack(self, partition: int, kind: str = "RELEASED", **fields: Any) -> None:
        """Say what it has done, by default for the order that it has."""
        await self.send(self.ack(kind, partition, **fields))

    async def send_leave(self, kind: str, within_ms: int = 0) -> None:
        """Leave; only a member that drains heartbeats on."""
        self.beats = kind == "DRAIN"
        await self.send(self.leave(kind, within_ms, "conformance"))

    async def fall_silent(self) -> float:
        """Send one more heartbeat, and no others; returns when that was."""
        self.beats = False
        ack = await self.beat_and_hear()
        return self.sent[ack.number]

    def heartbeat_again(self) -> None:
        """Go on after `fall_silent`."""
        self.beats = True
        self._start(self._beat_in_time(self.last, self.group.lease_s / 4))

    def cut(self) -> None:
        """End the stream, without a word."""
        self.beats = False
        self.last.call.cancel()

    async def commit(self, partition: int, offset: int, token: int | None = None) -> str:
        """Commit under a token, by default that of its order; returns the error's name."""
        if token is None:
            ordered = self.orders.get(partition)
            token = ordered.token if ordered is not None else 0
        return await self.group.commit(self.member_id, partition, offset, token or None)

    async def close(self) -> None:
        """End everything."""
        self.beats = False
        if self.stream is not None:
            self.stream.call.cancel()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- Inside ---

    def _start(self, work: Any) -> None:  # Any: a coroutine.
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _read(self, stream: Stream) -> None:
        try:
            while True:
                said = await stream.call.read()
                if said is grpc.aio.EOF:
                    break
                stream.said.append(said)
                self.group.transcript.add(f"{self.name} <-  {brief(said)}")
                if stream is self.stream:
                    await self._receive(said)
                self.group.news.set()
            stream.status = await stream.call.code()
        except grpc.aio.AioRpcError as error:
            stream.status = error.code()
        finally:
            stream.has_ended = True
            self.group.transcript.add(f"{self.name}     its stream has ended ({stream.status})")
            self.group.news.set()

    async def _receive(self, said: pb.SessionResponse) -> None:
        answers = self.hear(said)
        match said.WhichOneof("message"):
            case "attached":
                if said.attached.HasField("orders"):
                    self._note_orders(said.attached.orders)
                if self.last.count("attached") == 1:
                    interval_s = said.attached.heartbeat_interval_ms / 1_000
                    self._start(self._beat_in_time(self.last, interval_s))
            case "heartbeat_ack":
                self.acks.append(said.heartbeat_ack)
            case "orders":
                self._note_orders(said.orders)
        for answer in answers:
            await self.send(answer)

    async def _beat_in_time(self, stream: Stream, interval_s: float) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time() + interval_s
        while True:
            await asyncio.sleep(due_s - loop.time())
            if not self.beats or stream is not self.stream or stream.has_ended:
                return
            await self.send_beat()
            due_s = loop.time() + interval_s

    def _note_orders(self, orders: pb.Orders) -> None:
        self.all_orders.append(orders)
        ordered = orders_of(orders)
        self.history += ordered.items()
        self.ordered_s |= dict.fromkeys(ordered, now_s())
