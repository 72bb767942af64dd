"""Batched heartbeats: one call for all members on an event loop.

Members with the same coordinator and the same credentials share their calls. The first one that is
due wakes the others whose last heartbeat is at least half an interval old, and `GATHER_S` later one
HeartbeatBatch carries all of them: a process with a hundred members makes a hundredth of the
calls. A single member makes the plain Heartbeat call, at once.

A batch that is refused as a whole is sent again as single heartbeats: one of them may be the cause.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import grpc

from coordinator.v1 import group_pb2 as pb

GATHER_S = 0.02
BATCH_MAX = 500
ONE_BY_ONE = (
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNIMPLEMENTED,
)


class HeartbeatChannel(Protocol):
    """Connection of a member to its coordinator."""

    async def call(self, method: str, request: Any, timeout_s: float) -> Any:
        """Make one attempt; raises grpc.aio.AioRpcError."""


@dataclass(slots=True, eq=False)
class BatchedMember:
    """A member whose heartbeats may be batched. `wake` makes it send its next one now."""

    channel: HeartbeatChannel
    interval_s: float
    wake: Callable[[], object]
    beaten_at_s: float = 0.0


@dataclass(slots=True)
class _Beat:
    member: BatchedMember
    request: pb.HeartbeatRequest
    timeout_s: float
    answer: asyncio.Future[pb.HeartbeatResponse]


class HeartbeatBatcher:
    """Members on one event loop that send their heartbeats together."""

    def __init__(self) -> None:
        self._members: dict[BatchedMember, None] = {}  # A dict keeps their order; a set does not.
        self._gathered: list[_Beat] = []
        self._sending: set[asyncio.Task[None]] = set()

    def leave(self, member: BatchedMember) -> None:
        """Remove a member that has closed its connection; its pending heartbeat fails."""
        self._members.pop(member, None)
        for beat in self._gathered:
            if beat.member is member and not beat.answer.done():
                beat.answer.set_exception(closed_meanwhile())

    async def beat(
        self, member: BatchedMember, request: pb.HeartbeatRequest, timeout_s: float
    ) -> pb.HeartbeatResponse:
        """Send a member's heartbeat, alone or with others, and return its answer.

        Raises:
            grpc.aio.AioRpcError: the call failed.
        """
        loop = asyncio.get_running_loop()
        now_s = member.beaten_at_s = loop.time()
        self._members[member] = None
        if len(self._members) == 1:
            response: pb.HeartbeatResponse = await member.channel.call(
                "Heartbeat", request, timeout_s
            )
            return response
        if not self._gathered:
            loop.call_later(GATHER_S, self._send)
            for other in self._members:
                if now_s - other.beaten_at_s >= other.interval_s / 2:
                    other.wake()
        answer: asyncio.Future[pb.HeartbeatResponse] = loop.create_future()
        self._gathered.append(_Beat(member, request, timeout_s, answer))
        if len(self._gathered) == BATCH_MAX:
            self._send()
        return await answer

    def _send(self) -> None:
        # Members that were closed meanwhile do not wait any more.
        beats = [beat for beat in self._gathered if not beat.answer.done()]
        self._gathered = []
        if beats:
            task = asyncio.get_running_loop().create_task(self._carry(beats))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _carry(self, beats: list[_Beat]) -> None:
        try:
            if len(beats) > 1:
                await _together(beats)
            else:
                await _alone(beats[0])
        except Exception as error:  # noqa: BLE001  # Every waiting member has to hear of it.
            for beat in beats:
                if not beat.answer.done():
                    beat.answer.set_exception(error)


async def _together(beats: list[_Beat]) -> None:
    request = pb.HeartbeatBatchRequest(heartbeats=[beat.request for beat in beats])
    timeout_s = min(beat.timeout_s for beat in beats)
    try:
        batch = await beats[0].member.channel.call("HeartbeatBatch", request, timeout_s)
    except grpc.aio.AioRpcError as error:
        if error.code() not in ONE_BY_ONE:
            raise
        await asyncio.gather(*map(_alone, beats))
    else:
        for beat, response in zip(beats, batch.heartbeats, strict=True):
            _answer(beat, response)


async def _alone(beat: _Beat) -> None:
    """Send one heartbeat; its failure does not concern the others of its batch."""
    try:
        _answer(beat, await beat.member.channel.call("Heartbeat", beat.request, beat.timeout_s))
    except grpc.aio.AioRpcError as error:
        if not beat.answer.done():
            beat.answer.set_exception(error)


def closed_meanwhile() -> grpc.aio.AioRpcError:
    """Error of a call whose channel was closed by its own process."""
    nothing = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(
        grpc.StatusCode.UNAVAILABLE, nothing, nothing, "the connection was closed meanwhile"
    )


def _answer(beat: _Beat, response: pb.HeartbeatResponse) -> None:
    if not beat.answer.done():
        beat.answer.set_result(response)


# Batchers by event loop: members share nothing else, and a batcher ends with its loop.
_batchers: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Hashable, HeartbeatBatcher]] = (
    WeakKeyDictionary()
)


def batcher(key: Hashable) -> HeartbeatBatcher:
    """The batcher on the running loop of members with the same coordinator and credentials."""
    batchers = _batchers.setdefault(asyncio.get_running_loop(), {})
    return batchers.setdefault(key, HeartbeatBatcher())
