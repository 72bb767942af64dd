"""CPU and memory of session members at rest, each with a connection of its own.

Members attach, are given their partitions, and then heartbeat four times a lease. The memory of one
is the growth of the server's resident memory divided by their number. The clients are raw streams
in this process, so what is measured is the server alone.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Sequence

import grpc

from coordinator.runtime.memory import resident_bytes
from coordinator.v1 import session_pb2 as pb
from coordinator.v1 import session_pb2_grpc
from tests.bench.figures import CannotMeasure, Figure, Figures, Goal, percentile
from tests.bench.servers import Usage, with_server
from tests.kit.session_member import ScriptedMember

LEASE_MS = 10_000
GROUP_SIZE = 100
PARTITIONS = 10
"""Partitions for each member."""
AT_A_TIME = 200
ATTACH_S = 300.0
KIB = 1_024
CPU_GOALS = {2_000: 25, 5_000: 60}
"""Percent of a core at rest, by members."""
HOLD_GOALS_S = {10_000: 15}
"""Seconds until all members hold their partitions, by members."""
MEMORY_GOAL_KIB = 45
POLICY = pb.GroupPolicy(lease_ms=LEASE_MS)
BEAT_EVERY_S = LEASE_MS / 4 / 1000


class Member(ScriptedMember):
    """One member and its stream. late_s: of each acknowledged heartbeat, the seconds until its
    acknowledgement."""

    def __init__(self, address: str, number: int) -> None:
        super().__init__(
            f"w-{number}", GROUP_SIZE * PARTITIONS, group_id=f"group-{number // GROUP_SIZE}",
            incarnation=number.to_bytes(16, "big"), wishes=POLICY,
        )  # fmt: skip
        self.releases = True
        self.address, self.place = address, number
        self.late_s: list[float] = []
        self.has_attached = asyncio.Event()
        self.beats = 0
        self._sent_s = 0.0
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Attach, and answer every order from then on."""
        options = [("grpc.use_local_subchannel_pool", 1)]
        self._channel = grpc.aio.insecure_channel(self.address, options)
        self._call = session_pb2_grpc.GroupSessionsStub(self._channel).Session()
        await self._call.write(self.attach())
        self._tasks.append(asyncio.create_task(self._listen()))
        await self.has_attached.wait()
        self._tasks.append(asyncio.create_task(self._beat_in_time()))

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._call.cancel()

    async def _beat_in_time(self) -> None:
        # Members that attach together do not heartbeat together for ever.
        await asyncio.sleep(BEAT_EVERY_S * (self.place * 0.618 % 1))
        while True:
            self.beats += 1
            self._sent_s = time.monotonic()
            await self._call.write(self.beat())
            await asyncio.sleep(BEAT_EVERY_S)

    async def _listen(self) -> None:
        while True:
            message = await self._call.read()
            if not isinstance(message, pb.SessionResponse) or message.HasField("go_away"):
                how = await self._call.code() if message is grpc.aio.EOF else message
                raise CannotMeasure(f"the stream of {self.name} has ended: {how}")
            if message.HasField("refused"):
                raise CannotMeasure(f"{self.name} was told {message}")
            if message.HasField("heartbeat_ack"):
                self.late_s.append(time.monotonic() - self._sent_s)
            for ack in self.hear(message):
                await self._call.write(ack)
            if message.HasField("attached"):
                self.has_attached.set()


async def attach_all(members: Sequence[Member]) -> None:
    """Have members attach, some at a time."""
    for start in range(0, len(members), AT_A_TIME):
        await asyncio.gather(*(member.open() for member in members[start : start + AT_A_TIME]))


def bench_session_members(members: int = 2_000, seconds: float = 15) -> Figures:
    """Measure `members` at rest for some seconds."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)  # The server raises its own.
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return with_server(
        lambda address, pid: asyncio.run(_measure(address, pid, members, seconds)),
        "--max-streams", str(members + 100),
    )  # fmt: skip


async def _measure(address: str, pid: int, number: int, seconds: float) -> Figures:
    first = Member(address, 0)
    await first.open()  # The server's imports are not counted.
    await asyncio.sleep(1)
    before = resident_bytes(pid)
    members = [Member(address, n) for n in range(1, number)]
    attaching, began_s = Usage(pid), time.monotonic()
    await attach_all(members)
    attached_s, attach_us = time.monotonic() - began_s, attaching.us_each(number)
    everybody = [first, *members]
    groups = -(-number // GROUP_SIZE)
    while sum(len(member.held) for member in everybody) < groups * GROUP_SIZE * PARTITIONS:
        await asyncio.sleep(0.1)
        if time.monotonic() - began_s > ATTACH_S:
            raise CannotMeasure("not all partitions are held")
    held_s = time.monotonic() - began_s
    await asyncio.sleep(LEASE_MS / 1000)
    grown = resident_bytes(pid) - before
    for member in everybody:
        member.late_s.clear()
    resting, sent = Usage(pid), sum(member.beats for member in everybody)
    await asyncio.sleep(seconds)
    beats = sum(member.beats for member in everybody) - sent
    percent, beat_us = resting.percent(), resting.us_each(beats)
    late_ms = [1_000 * late for member in everybody for late in member.late_s]
    for member in everybody:
        member.close()
    return {
        "members": number,
        "attached in, s": attached_s,
        "hold their partitions after, s": _goal(held_s, HOLD_GOALS_S.get(number)),
        "CPU to attach one, us": attach_us,
        "memory of one, KiB": Goal(grown / number / KIB, at_most=MEMORY_GOAL_KIB),
        "CPU at rest, %": _goal(percent, CPU_GOALS.get(number)),
        "CPU of a heartbeat, us": beat_us,
        "heartbeats a second": beats / seconds,
        "heartbeat p50, ms": percentile(late_ms, 50),
        "heartbeat p99, ms": percentile(late_ms, 99),
    }


def _goal(value: float, at_most: float | None) -> Figure:
    return value if at_most is None else Goal(value, at_most=at_most)
