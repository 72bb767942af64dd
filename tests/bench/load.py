"""Many members at once, for measuring: bare calls, no machines, one connection a hundred."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any

import grpc

from coordinator.client.member.retry import BackOff
from coordinator.client.transport.wire import DROPPED
from coordinator.v1 import admin_pb2, admin_pb2_grpc, group_pb2_grpc
from coordinator.v1 import group_pb2 as pb
from coordinator.v1.errors_pb2 import ErrorCode
from tests.bench.figures import percentile
from tests.kit import requests

MEMBERS_A_CONNECTION = 100
JOIN_TIMEOUT_S = 120.0
BEAT_TIMEOUT_S = 30.0
SESSION_TIMEOUT_MS = 60_000
PARKED_POLL_S = 0.05


@dataclass(slots=True)
class Timings:
    """Durations of the calls of a measurement."""

    milliseconds: list[float] = field(default_factory=list)
    failed: int = 0

    def percentile(self, percent: float) -> float:
        """A percentile in milliseconds; 0 if nothing was measured."""
        return percentile(self.milliseconds, percent)


@dataclass(slots=True)
class Barrier:
    """Time until a group was formed, in seconds from the first join.

    `failed` counts members that did not get their share.
    """

    parked_s: float = 0.0
    first_released_s: float = 0.0
    last_released_s: float = 0.0
    assigned_s: float = 0.0
    failed: int = 0

    @property
    def work_s(self) -> float:
        """All of it but the wait of those who were parked for the initial delay to be over."""
        return self.assigned_s - max(0.0, self.first_released_s - self.parked_s)


@dataclass(frozen=True, slots=True)
class _Member:
    stub: Any  # Any: the stub's calls are awaitable only on grpc.aio channels.
    group_id: str
    member_id: str
    generation: int


class Fleet:
    """Members of many groups at one coordinator. Use it as an async context manager."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._channels: list[grpc.aio.Channel] = []
        self._members: list[_Member] = []

    async def __aenter__(self) -> Fleet:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for channel in self._channels:
            await channel.close()

    def adopt(self, members: Iterable[tuple[str, str]], *, generation: int) -> None:
        """Speak for members that are there already, by group and member id."""
        for number, (group_id, member_id) in enumerate(members):
            self._members.append(_Member(self._stub(number), group_id, member_id, generation))

    async def form_group(self, group_id: str, members: int, *, two_phase: bool = True) -> Barrier:
        """One group, from the first join to the last assignment.

        Args:
            two_phase: members ask for their ids first (KIP-394).
        """
        barrier = Barrier()
        began = time.monotonic()
        stubs = [self._stub(number) for number in range(members)]

        async def join(stub: Any) -> pb.JoinGroupResponse:
            answer = await self._join(stub, group_id, two_phase=two_phase)
            barrier.last_released_s = time.monotonic() - began
            barrier.first_released_s = barrier.first_released_s or barrier.last_released_s
            return answer

        async def watch() -> None:
            """Until all are parked: then the rest of the initial delay is spent waiting."""
            admin = admin_pb2_grpc.GroupAdminStub(self._channels[0])
            request = admin_pb2.ListGroupsRequest(group_id_contains=group_id)
            while not barrier.parked_s:
                reply = await admin.ListGroups(request)
                if sum(group.member_count for group in reply.groups) >= members:
                    barrier.parked_s = time.monotonic() - began
                await asyncio.sleep(PARKED_POLL_S)

        watching = asyncio.create_task(watch())
        joined = await asyncio.gather(*map(join, stubs))
        await watching
        barrier.failed += sum(answer.error_code != ErrorCode.NONE for answer in joined)
        everyone = [
            pb.SyncGroupRequest.Assignment(member_id=answer.member_id, assignment=b"share")
            for answer in joined
        ]
        synced = await asyncio.gather(
            *(
                _until_served(
                    stub.SyncGroup,
                    pb.SyncGroupRequest(
                        group_id=group_id,
                        generation_id=answer.generation_id,
                        member_id=answer.member_id,
                        assignments=everyone if answer.leader == answer.member_id else (),
                    ),
                )
                for stub, answer in zip(stubs, joined, strict=True)
            )
        )
        barrier.assigned_s = time.monotonic() - began
        barrier.failed += sum(answer.assignment != b"share" for answer in synced)
        return barrier

    async def sync_alone(self, group_id: str, times: int) -> Timings:
        """One member that joins and syncs again and again; the time of each SyncGroup."""
        timings = Timings()
        stub = self._stub(0)
        member_id = ""
        for _ in range(times):
            joined = await self._join(stub, group_id, member_id)
            member_id = joined.member_id
            assignment = pb.SyncGroupRequest.Assignment(member_id=member_id, assignment=b"share")
            request = pb.SyncGroupRequest(
                group_id=group_id,
                generation_id=joined.generation_id,
                member_id=member_id,
                assignments=[assignment],
            )
            began = time.perf_counter()
            answer = await stub.SyncGroup(request, timeout=JOIN_TIMEOUT_S)
            timings.milliseconds.append((time.perf_counter() - began) * 1000)
            timings.failed += answer.error_code != ErrorCode.NONE
        return timings

    async def beat(
        self,
        *,
        every_s: float,
        seconds: float,
        on_steady: Callable[[], object] = lambda: None,
    ) -> Timings:
        """Let every member beat, evenly spread, and time each call.

        Args:
            on_steady: called when each has beaten once; what is timed begins there.
        """
        beats = [partial(self._beat_once, member) for member in self._members]
        return await _beat_all(beats, every_s, seconds, on_steady)

    async def beat_in_batches(
        self,
        batch: int,
        *,
        every_s: float,
        seconds: float,
        on_steady: Callable[[], object] = lambda: None,
    ) -> Timings:
        """Batched heartbeats of processes with several members each; measures batches."""
        beats: list[Callable[[], Awaitable[int]]] = []
        for number, start in enumerate(range(0, len(self._members), batch)):
            request = heartbeat_batch(map(_heartbeat_of, self._members[start : start + batch]))
            stub = self._stub(number)
            beats.append(partial(self._beat_batch, stub, request))
        return await _beat_all(beats, every_s, seconds, on_steady)

    async def _beat_once(self, member: _Member) -> int:
        answer = await member.stub.Heartbeat(_heartbeat_of(member), timeout=BEAT_TIMEOUT_S)
        return int(answer.error_code != ErrorCode.NONE)

    async def _beat_batch(self, stub: Any, request: pb.HeartbeatBatchRequest) -> int:
        answer = await stub.HeartbeatBatch(request, timeout=BEAT_TIMEOUT_S)
        return _refused(answer)

    async def _join(
        self, stub: Any, group_id: str, member_id: str = "", *, two_phase: bool = True
    ) -> pb.JoinGroupResponse:
        request = join(group_id, two_phase=two_phase, member_id=member_id)
        answer = await _until_served(stub.JoinGroup, request)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            request.member_id = answer.member_id
            answer = await _until_served(stub.JoinGroup, request)
        response: pb.JoinGroupResponse = answer
        return response

    def _stub(self, number: int) -> Any:
        index = number // MEMBERS_A_CONNECTION
        while len(self._channels) <= index:
            # Without an option of their own, channels to one address share a connection.
            options = (("grpc.use_local_subchannel_pool", 1),)
            self._channels.append(grpc.aio.insecure_channel(self._address, options=options))
        return group_pb2_grpc.GroupCoordinatorStub(self._channels[index])


def heartbeat(group_id: str, member_id: str, generation: int) -> pb.HeartbeatRequest:
    """The message of a member."""
    return pb.HeartbeatRequest(group_id=group_id, generation_id=generation, member_id=member_id)


def heartbeat_batch(beats: Iterable[pb.HeartbeatRequest]) -> pb.HeartbeatBatchRequest:
    """The message of a process with several members."""
    return pb.HeartbeatBatchRequest(heartbeats=beats)


def join(group_id: str, *, two_phase: bool, member_id: str = "") -> pb.JoinGroupRequest:
    """The message of a member that wants a share."""
    return requests.join(
        group_id,
        member_id=member_id,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        rebalance_timeout_ms=SESSION_TIMEOUT_MS,
        require_known_member_id=two_phase,
        protocol_type="load",
        protocols=[{"name": "share"}],
    )


def _heartbeat_of(member: _Member) -> pb.HeartbeatRequest:
    return heartbeat(member.group_id, member.member_id, member.generation)


def _refused(answer: pb.HeartbeatBatchResponse) -> int:
    return sum(beat.error_code != ErrorCode.NONE for beat in answer.heartbeats)


async def _until_served(call: Callable[..., Awaitable[Any]], request: Any) -> Any:
    """The answer, again after a pause where a coordinator with too much to do drops the call."""
    back_off = BackOff(random.random)
    while True:
        try:
            return await call(request, timeout=JOIN_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            if error.code() is not DROPPED:
                raise
        await asyncio.sleep(back_off.next_ms() / 1000)


async def _beat_all(
    beats: Sequence[Callable[[], Awaitable[int]]],
    every_s: float,
    seconds: float,
    on_steady: Callable[[], object],
) -> Timings:
    """Each again and again, evenly spread; a beat says how many of its members were refused."""
    timings = Timings()
    began = time.monotonic()
    steady = began + every_s
    until = steady + seconds

    async def go_on(beat: Callable[[], Awaitable[int]]) -> None:
        due = began + every_s * random.random()  # noqa: S311  # Spreads load.
        while due < until:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            sent = time.perf_counter()
            try:
                timings.failed += await beat()
            except grpc.aio.AioRpcError:
                timings.failed += 1
            if due >= steady:
                timings.milliseconds.append((time.perf_counter() - sent) * 1000)
            due += every_s

    async def tell() -> None:
        await asyncio.sleep(every_s)
        on_steady()

    await asyncio.gather(tell(), *map(go_on, beats))
    return timings
