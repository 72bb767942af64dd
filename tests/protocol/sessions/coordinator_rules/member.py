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
from tests.protocol.sessions.coordinator_rules.calls import GroupCalls
from tests.protocol.sessions.coordinator_rules.messages import (
    Ordered,
    Stream,
    held_topics,
    orders_of,
    text_of,
)
from tests.protocol.sessions.trial import ACTIVE, DRAIN, LOST, TOPIC, WARM, Failed, brief, now_s


class ScriptedMember:
    """One member of a group.

    Args:
        fields: of its Attach, besides those that every Attach has.
    """

    def __init__(
        self, group: GroupCalls, name: str, partitions: int, fields: dict[str, Any]
    ) -> None:
        self.group, self.name, self.partitions, self.fields = group, name, partitions, fields
        self.incarnation = os.urandom(16)
        self.started_at_ms = int(time.time() * 1_000)
        self.session_id = self.member_id = ""
        self.stream: Stream | None = None
        self.stream_number = self.number = self.epoch = self.version = 0
        self.orders: dict[int, Ordered] = {}
        self.history: list[tuple[int, Ordered]] = []
        self.held: dict[int, int] = {}
        """Tokens of partitions that it has not released."""
        self.sent: dict[int, float] = {}
        """Times at which its heartbeats were sent."""
        self.acks: list[pb.SessionHeartbeatAck] = []
        self.all_orders: list[pb.Orders] = []
        self.beats = True
        self.releases = self.readies = self.refuses = False
        """Acks that it sends without being told."""
        self._released: set[int] = set()
        """Tokens that it has released: also one whose first order was to drain it."""
        self.heard_s = 0.0
        self._tasks: set[asyncio.Task[None]] = set()

    # --- What it was told ---

    def with_order(self, order: int) -> list[int]:
        """Partitions with an order."""
        return sorted(p for p, each in self.orders.items() if each.order == order)

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

    async def attach(self, **fields: Any) -> pb.Attached:
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
        self.stream_number = fields.pop("stream_number", self.stream_number + 1)
        given: dict[str, Any] = {
            "group_id": self.group.group_id,
            "member_name": self.name,
            "incarnation": pb.Attach.Incarnation(
                id=self.incarnation, started_at_ms=self.started_at_ms
            ),
            "session_id": self.session_id,
            "stream_number": self.stream_number,
            "client_id": "conformance",
            "topics": [pb.Attach.Topic(name=TOPIC, partitions=self.partitions)],
            "coordinator_epoch": self.epoch,
            "held": held_topics(self.held),
            "wishes": self.group.policy,
            **self.fields,
            **fields,
        }
        stream = self.open()
        await self.send(pb.SessionRequest(attach=pb.Attach(**given)))
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

    async def beat(self, stream: Stream | None = None, **fields: Any) -> int:
        """Send a heartbeat; its number is returned."""
        self.number = fields.pop("number", self.number + 1)
        given: dict[str, Any] = {
            "number": self.number,
            "applied_epoch": self.epoch,
            "applied_version": self.version,
            "progress": int(now_s() * 1_000),
            **fields,
        }
        self.sent[self.number] = now_s()
        await self.send(
            pb.SessionRequest(heartbeat=pb.SessionHeartbeat(**given)), stream or self.last
        )
        return self.number

    async def beat_and_hear(self, **fields: Any) -> pb.SessionHeartbeatAck:
        """Send a heartbeat, and wait until it, or a later one, is acknowledged."""
        number = await self.beat(**fields)
        await self.group.until(
            lambda: bool(self.acks) and self.acks[-1].number >= number,
            f"{self.name}'s heartbeat {number} is acknowledged",
        )
        return self.acks[-1]

    async def ack(self, partition: int, kind: str = "RELEASED", **fields: Any) -> None:
        """Say what it has done, by default for the order that it has."""
        ordered = self.orders.get(partition)
        if ordered is not None:
            fields = {"token": ordered.token, "handoff_id": ordered.handoff_id, **fields}
        if kind != "READY":
            self._released.add(fields.get("token", 0))
            if fields.get("token") == self.held.get(partition):
                self.held.pop(partition, None)
        each = pb.SessionAck.Partition(
            topic=TOPIC, partition=partition, kind=pb.SessionAck.Kind.Value(kind), **fields
        )
        await self.send(pb.SessionRequest(ack=pb.SessionAck(partitions=[each])))

    async def leave(self, kind: str, within_ms: int = 0) -> None:
        """Leave; only a member that drains heartbeats on."""
        self.beats = kind == "DRAIN"
        leave = pb.SessionLeave(
            kind=pb.SessionLeave.Kind.Value(kind), within_ms=within_ms, reason="conformance"
        )
        await self.send(pb.SessionRequest(leave=leave))

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
        match said.WhichOneof("message"):
            case "attached":
                self._attached(said.attached)
                await self._answer_orders()
            case "heartbeat_ack":
                self.acks.append(said.heartbeat_ack)
            case "orders":
                self._orders(said.orders)
                await self._answer_orders()

    def _attached(self, attached: pb.Attached) -> None:
        if attached.session_id != self.session_id:
            self.number = 0
        self.session_id, self.member_id = attached.session_id, attached.member_id
        self.epoch = max(self.epoch, attached.coordinator_epoch)
        if attached.HasField("orders"):
            self._orders(attached.orders)
        if self.last.count("attached") == 1:
            self._start(self._beat_in_time(self.last, attached.heartbeat_interval_ms / 1_000))

    async def _beat_in_time(self, stream: Stream, interval_s: float) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time() + interval_s
        while True:
            await asyncio.sleep(due_s - loop.time())
            if not self.beats or stream is not self.stream or stream.has_ended:
                return
            await self.beat()
            due_s = loop.time() + interval_s

    def _orders(self, orders: pb.Orders) -> None:
        self.all_orders.append(orders)
        self.version = orders.version
        told = dict(orders_of(orders))
        if not orders.HasField("based_on"):
            self.orders.clear()
            self.held = {p: token for p, token in self.held.items() if p in told}
        for partition, each in told.items():
            self.history.append((partition, each))
            if each.order == LOST and not each.token:
                self.orders.pop(partition, None)
                self.held.pop(partition, None)
                continue
            self.orders[partition] = each
            if each.order == ACTIVE:
                self.held[partition] = each.token

    async def _answer_orders(self) -> None:
        for partition, each in list(self.orders.items()):
            is_due = each.token not in self._released
            if self.releases and is_due and each.order in (DRAIN, LOST):
                await self.ack(partition)
            elif self.readies and each.order == WARM:
                await self.ack(partition, "READY")
            elif self.refuses and each.order == WARM:
                await self.ack(partition, "REFUSED", reason="conformance")
