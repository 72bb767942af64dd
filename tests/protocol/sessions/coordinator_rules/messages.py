"""Messages to a scripted member, taken apart."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import grpc

from coordinator.v1 import errors_pb2
from coordinator.v1 import session_pb2 as pb
from tests.kit.session_member import held_topics


@dataclass(slots=True)
class Stream:
    """One stream, and what came on it."""

    call: Any  # grpc.aio's call; it has no public type.
    number: int
    said: list[pb.SessionResponse] = field(default_factory=list)
    status: grpc.StatusCode | None = None
    has_ended: bool = False
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """gRPC allows one write at a time."""

    def first(self, kind: str) -> Any:  # Any: one of the five messages.
        """The first message of a kind; None: there is none."""
        for message in self.said:
            if message.WhichOneof("message") == kind:
                return getattr(message, kind)
        return None

    def count(self, kind: str) -> int:
        """Number of messages of a kind."""
        return sum(message.WhichOneof("message") == kind for message in self.said)


def held_set(held: dict[int, int]) -> pb.SessionHeartbeat.Held:
    """A held set, as heartbeats carry it."""
    return pb.SessionHeartbeat.Held(topics=held_topics(held))


def listed(ack: pb.SessionHeartbeatAck) -> list[int]:
    """Partitions that an acknowledgement does not renew."""
    ranges = [partition for topic in ack.expiring for partition in topic.partitions]
    return sorted(p for span in ranges for p in range(span.first, span.last + 1))


def text_of(refused: pb.SessionRefused | None) -> str:
    """A refusal in words."""
    if refused is None:
        return "the stream has ended"
    return f"{errors_pb2.ErrorCode.Name(refused.error_code)}: {refused.error_message}"
