"""A member's side of a stream, as a test plays it: raw messages over gRPC."""

from __future__ import annotations

import asyncio

import grpc

from coordinator.v1 import session_pb2 as pb
from coordinator.v1 import session_pb2_grpc
from tests.kit.patience import HANG_S
from tests.kit.requests import attach

POLICY = pb.GroupPolicy(lease_ms=60_000, join_quiet_ms=0, initial_delay_ms=0)


class Stream:
    """One stream of a member."""

    def __init__(self, channel, group: str = "g", metadata=None) -> None:
        self.group, self.channel = group, channel
        self.call = session_pb2_grpc.GroupSessionsStub(channel).Session(metadata=metadata)
        self.seen: list[pb.SessionResponse] = []

    async def send(self, message: pb.SessionRequest) -> None:
        await self.call.write(message)

    async def say(self, **message) -> None:
        await self.send(pb.SessionRequest(**message))

    async def open(self, name: str, incarnation: bytes, number: int = 1, **fields) -> None:
        """Send an Attach."""
        given = {"wishes": POLICY, **fields}
        await self.send(
            attach(name, self.group, number, 3, incarnation={"id": incarnation}, **given)
        )

    async def attach(self, name: str, incarnation: bytes, number: int = 1, **fields) -> pb.Attached:
        await self.open(name, incarnation, number, **fields)
        return (await self.next("attached")).attached

    async def beat(self, number: int, **fields) -> None:
        await self.say(heartbeat=pb.SessionHeartbeat(number=number, **fields))

    async def next(self, kind: str) -> pb.SessionResponse:
        """The next message of a kind; what comes before it is kept in `seen`."""
        async with asyncio.timeout(HANG_S):
            while True:
                message = await self.call.read()
                assert message is not grpc.aio.EOF, self.seen
                self.seen.append(message)
                if message.WhichOneof("message") == kind:
                    return message

    async def code(self) -> grpc.StatusCode:
        """The status with which the stream ends."""
        async with asyncio.timeout(HANG_S):
            return await self.call.code()


def orders(message: pb.Orders) -> dict[int, str]:
    """Order of each partition, by its number."""
    return {
        partition: pb.Orders.Order.Name(span.order)
        for topic in message.topics
        for span in topic.ranges
        for partition in range(span.partitions.first, span.partitions.last + 1)
    }
