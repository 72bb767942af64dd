"""Many members at once, for measuring: bare calls, no machines, one connection a hundred."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import grpc

from coordinator.v1 import group_pb2 as pb
from coordinator.v1 import group_pb2_grpc
from coordinator.v1.errors_pb2 import ErrorCode

MEMBERS_A_CONNECTION = 100
JOIN_TIMEOUT_S = 120.0
SESSION_TIMEOUT_MS = 60_000
PROBE_PAUSE_S, PROBE_TIMEOUT_S = 0.002, 0.3


@dataclass(slots=True)
class Timings:
    """What the calls of a measurement took."""

    milliseconds: list[float] = field(default_factory=list)
    failed: int = 0
    joined_after_s: float = 0.0

    def percentile(self, percent: float) -> float:
        """In milliseconds; 0 if nothing was measured."""
        ordered = sorted(self.milliseconds)
        return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] if ordered else 0.0


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

    async def fill(self, members: int, *, group_size: int) -> None:
        """Form groups until there are so many members."""
        groups = range(members // group_size)
        await asyncio.gather(*(self.form_group(f"load-{n}", group_size) for n in groups))

    async def form_group(self, group_id: str, members: int) -> Timings:
        """One group, from the first join to the last assignment."""
        timings = Timings()
        began = time.monotonic()
        stubs = [self._stub(number) for number in range(members)]
        joined = await asyncio.gather(*(self._join(stub, group_id) for stub in stubs))
        timings.joined_after_s = time.monotonic() - began
        timings.failed += sum(answer.error_code != ErrorCode.NONE for answer in joined)
        everyone = [
            pb.SyncGroupRequest.Assignment(member_id=answer.member_id, assignment=b"share")
            for answer in joined
        ]
        synced = await asyncio.gather(
            *(
                stub.SyncGroup(
                    pb.SyncGroupRequest(
                        group_id=group_id,
                        generation_id=answer.generation_id,
                        member_id=answer.member_id,
                        assignments=everyone if answer.leader == answer.member_id else (),
                    ),
                    timeout=JOIN_TIMEOUT_S,
                )
                for stub, answer in zip(stubs, joined, strict=True)
            )
        )
        timings.failed += sum(answer.assignment != b"share" for answer in synced)
        for stub, answer in zip(stubs, joined, strict=True):
            self._members.append(_Member(stub, group_id, answer.member_id, answer.generation_id))
        return timings

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

    async def beat(self, *, every_s: float, seconds: float) -> Timings:
        """Let every member beat, evenly spread, and time each call."""
        timings = Timings()
        until = time.monotonic() + seconds
        await asyncio.gather(*(self._beat(m, every_s, until, timings) for m in self._members))
        return timings

    async def _beat(self, member: _Member, every_s: float, until: float, timings: Timings) -> None:
        request = pb.HeartbeatRequest(
            group_id=member.group_id, generation_id=member.generation, member_id=member.member_id
        )
        due = time.monotonic() + every_s * random.random()  # noqa: S311  # Spreads load.
        while due < until:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            began = time.perf_counter()
            try:
                answer = await member.stub.Heartbeat(request, timeout=30.0)
            except grpc.aio.AioRpcError:
                timings.failed += 1
            else:
                timings.failed += answer.error_code != ErrorCode.NONE
                timings.milliseconds.append((time.perf_counter() - began) * 1000)
            due += every_s

    async def _join(self, stub: Any, group_id: str, member_id: str = "") -> pb.JoinGroupResponse:
        request = pb.JoinGroupRequest(
            group_id=group_id,
            member_id=member_id,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=SESSION_TIMEOUT_MS,
            protocol_type="load",
            protocols=[pb.JoinGroupRequest.Protocol(name="share")],
        )
        answer = await stub.JoinGroup(request, timeout=JOIN_TIMEOUT_S)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            request.member_id = answer.member_id
            answer = await stub.JoinGroup(request, timeout=JOIN_TIMEOUT_S)
        response: pb.JoinGroupResponse = answer
        return response

    def _stub(self, number: int) -> Any:
        index = number // MEMBERS_A_CONNECTION
        while len(self._channels) <= index:
            # Without an option of their own, channels to one address share a connection.
            options = (("grpc.use_local_subchannel_pool", 1),)
            self._channels.append(grpc.aio.insecure_channel(self._address, options=options))
        return group_pb2_grpc.GroupCoordinatorStub(self._channels[index])


class CommitProbe:
    """Commits to one group again and again, wherever that is coordinated.

    Args:
        addresses: of the nodes.
        pause_s: between two commits.
    """

    def __init__(
        self, addresses: Sequence[str], group_id: str, *, pause_s: float = PROBE_PAUSE_S
    ) -> None:
        self._pause_s = pause_s
        self._channels = {address: grpc.aio.insecure_channel(address) for address in addresses}
        self._addresses = itertools.cycle(addresses)
        self._address = next(self._addresses)
        self._group_id = group_id
        self._offset = 0
        self.acknowledged: list[float] = []
        """When commits were answered; seconds on the monotonic clock."""

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            try:
                if await self._commit():
                    await asyncio.sleep(self._pause_s)
                    continue
                await self._find()
            except grpc.aio.AioRpcError:
                self._address = next(self._addresses)
            await asyncio.sleep(self._pause_s)

    async def close(self) -> None:
        """Hang up."""
        for channel in self._channels.values():
            await channel.close()

    async def _commit(self) -> bool:
        self._offset += 1
        partition = pb.OffsetCommitRequest.Partition(
            partition_index=0, committed_offset=self._offset
        )
        request = pb.OffsetCommitRequest(
            group_id=self._group_id,
            generation_id=-1,
            topics=[pb.OffsetCommitRequest.Topic(name="probe", partitions=[partition])],
        )
        response = await self._stub().OffsetCommit(request, timeout=PROBE_TIMEOUT_S)
        done = response.topics[0].partitions[0].error_code == ErrorCode.NONE
        if done:
            self.acknowledged.append(time.monotonic())
        return bool(done)

    async def _find(self) -> None:
        request = pb.FindCoordinatorRequest(group_id=self._group_id)
        found = await self._stub().FindCoordinator(request, timeout=PROBE_TIMEOUT_S)
        address = f"{found.host}:{found.port}"
        if found.host and address != self._address:
            self._channels.setdefault(address, grpc.aio.insecure_channel(address))
            self._address = address
        elif not found.host:
            self._address = next(self._addresses)

    def _stub(self) -> Any:
        return group_pb2_grpc.GroupCoordinatorStub(self._channels[self._address])
