"""A node that stands still, and then has a part of its processor, throws nobody out that beats."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import urllib.request

import grpc

from coordinator.v1 import group_pb2 as pb
from coordinator.v1 import group_pb2_grpc
from coordinator.v1.errors_pb2 import ErrorCode
from tests.integration.waiting import until
from tests.kit import requests
from tests.kit.patience import HANG_S
from tests.kit.serving import Process

MEMBERS, CONNECTIONS = 400, 8
SESSION_S, BEAT_S = 6.0, 1.5
STILL_S = 7.0
"""Longer than a session, and than anybody waits for an answer."""
SLOW_S, SLICE_S, OF = 8.0, 0.025, 4
"""Then the process has a quarter of a core, in slices, for so long."""
LONG_S = HANG_S
"""Guard against a hang, on a machine that is busy with other things."""


class Member:
    """Beats with a call of its own, and again when it hears nothing. In a group of its own, so
    that the death of one is not seen by others."""

    def __init__(self, stub, number: int) -> None:
        self._stub = stub
        self._group_id = f"group-{number}"
        self._member_id = ""
        self.answered = 0
        self.codes: set[int] = set()

    async def join(self) -> None:
        joined = await self._stub.JoinGroup(
            requests.join(
                self._group_id,
                session_timeout_ms=int(1_000 * SESSION_S),
                protocol_type="work",
                protocols=[{"name": "share"}],
            )
        )
        self._member_id = joined.member_id
        assigned = [pb.SyncGroupRequest.Assignment(member_id=joined.member_id, assignment=b"x")]
        await self._stub.SyncGroup(
            pb.SyncGroupRequest(
                group_id=self._group_id,
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                assignments=assigned,
            )
        )

    async def live(self) -> None:
        beat = pb.HeartbeatRequest(
            group_id=self._group_id, generation_id=1, member_id=self._member_id
        )
        while True:
            try:
                answer = await self._stub.Heartbeat(beat, timeout=SESSION_S / 4)
            except grpc.aio.AioRpcError:
                await asyncio.sleep(0.1)  # Dropped, or not answered in time: again.
                continue
            self.codes.add(answer.error_code)
            self.answered += 1
            await asyncio.sleep(BEAT_S)


def metric(node: Process, name: str) -> float:
    with urllib.request.urlopen(node.metrics) as page:
        text = page.read().decode()
    return float(re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)[1])


async def slowly(node: Process) -> None:
    """A quarter of a core: it runs for a slice, and stands still for three."""
    for _ in range(int(SLOW_S / SLICE_S / OF)):
        node.signal(signal.SIGSTOP)
        await asyncio.sleep((OF - 1) * SLICE_S)
        node.signal(signal.SIGCONT)
        await asyncio.sleep(SLICE_S)


EXPIRED = 'coordinator_member_evictions_total{cause="session_expired"}'


async def test_nobody_who_beats_is_thrown_out_by_a_node_that_stands_still_and_is_slow():
    flags = ("--group-initial-rebalance-delay-ms", "0")
    async with contextlib.AsyncExitStack() as stack:
        node = stack.enter_context(Process(*flags))
        options = (("grpc.use_local_subchannel_pool", 1),)
        channels = [
            await stack.enter_async_context(
                grpc.aio.insecure_channel(node.address, options=options)
            )
            for _ in range(CONNECTIONS)
        ]
        stubs = [group_pb2_grpc.GroupCoordinatorStub(channel) for channel in channels]
        members = [Member(stubs[n % CONNECTIONS], n) for n in range(MEMBERS)]
        for start in range(0, MEMBERS, 50):
            await asyncio.gather(*(member.join() for member in members[start : start + 50]))
        beating = members[1:]
        living = [asyncio.create_task(member.live()) for member in beating]
        await until(lambda: all(member.answered for member in beating), LONG_S)
        at_rest_mib = node.rss_mib()

        node.signal(signal.SIGSTOP)
        await asyncio.sleep(STILL_S)
        node.signal(signal.SIGCONT)
        await slowly(node)

        before = [member.answered for member in beating]
        await until(
            lambda: all(m.answered > n for m, n in zip(beating, before, strict=True)), LONG_S
        )
        # The one that is silent is declared dead all the same, and is the only one.
        await until(lambda: metric(node, EXPIRED), LONG_S)
        assert metric(node, EXPIRED) == 1
        assert {code for member in beating for code in member.codes} == {ErrorCode.NONE}
        assert node.rss_mib() < 2 * at_rest_mib + 50
        assert metric(node, "coordinator_paused_seconds_total") >= STILL_S
        for task in living:
            task.cancel()
        await asyncio.gather(*living, return_exceptions=True)
