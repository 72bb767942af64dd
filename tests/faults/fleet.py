"""Many members at once over real sockets, and the history of what they were told."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from typing import Any

import grpc

from coordinator.v1 import group_pb2 as pb
from coordinator.v1 import group_pb2_grpc
from tests.checkers.history import Line
from tests.workload.member import Group, Member

PATIENCE_S = 20.0
PAUSE_S = 0.05
"""Between two requests of a member, on average; and before a request is repeated."""
METHODS = {
    pb.JoinGroupRequest: "JoinGroup",
    pb.SyncGroupRequest: "SyncGroup",
    pb.HeartbeatRequest: "Heartbeat",
    pb.OffsetCommitRequest: "OffsetCommit",
    pb.LeaveGroupRequest: "LeaveGroup",
}
OPTIONS = (
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 100),
    ("grpc.use_local_subchannel_pool", 1),
)


class Fleet:
    """Groups at rest, and groups that never rest.

    Args:
        address: asked before each connection; where the coordinator is, or will be again.
        quiet, busy: how many groups of each kind. The members of quiet groups keep beating
            and committing. Of busy groups members leave and come back all the time; their
            sessions are short, so that those who were lost with a coordinator go soon.
    """

    def __init__(
        self,
        address: str,
        dice: random.Random,
        *,
        quiet: int,
        busy: int,
        members: int = 3,
        partitions: int = 6,
        quiet_session_ms: int = 15_000,
        busy_session_ms: int = 300,
        pause_s: float = PAUSE_S,
    ) -> None:
        self.history: list[Line] = []
        self._dice = dice
        self._pause_s = pause_s
        self._channel = grpc.aio.insecure_channel(address, options=OPTIONS)
        self._stub = group_pb2_grpc.GroupCoordinatorStub(self._channel)
        self._quiet = [Group(f"quiet-{n}", partitions, quiet_session_ms) for n in range(quiet)]
        self._busy = [Group(f"busy-{n}", partitions, busy_session_ms) for n in range(busy)]
        self._members = [
            Member(
                group,
                f"m{n}",
                dice,
                self.history.append,
                leaves=0.05 if group in self._busy else 0.0,
            )
            for group in self._quiet + self._busy
            for n in range(members)
        ]
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Fleet:
        self._tasks = [asyncio.create_task(self._live(member)) for member in self._members]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._channel.close()

    async def settle(self) -> None:
        """Until the quiet groups are at rest; from then on they are recorded as such."""
        async with asyncio.timeout(60):
            while True:  # The members have no bell to ring.
                if all(self._is_at_rest(group) for group in self._quiet):
                    break
                await asyncio.sleep(0.05)
        since = time.monotonic()
        self.history += [
            {"op": "quiet", "group": group.name, "since": since} for group in self._quiet
        ]

    def _is_at_rest(self, group: Group) -> bool:
        members = [member for member in self._members if member.group is group]
        same = len({member.generation for member in members}) == 1
        return same and all(member.is_settled for member in members)

    async def read_back(self) -> None:
        """Ask for all offsets, as somebody who was not there before."""
        for group in self._quiet + self._busy:
            began = time.monotonic()
            with contextlib.suppress(grpc.aio.AioRpcError):
                response = await self._stub.OffsetFetch(
                    pb.OffsetFetchRequest(group_id=group.name), timeout=PATIENCE_S
                )
                ended = time.monotonic()
                self.history += [
                    {
                        "op": "fetched", "began": began, "ended": ended, "group": group.name,
                        "partition": f"{t.name}-{p.partition_index}", "offset": p.committed_offset,
                    }
                    for t in response.topics for p in t.partitions
                ]  # fmt: skip

    async def _live(self, member: Member) -> None:
        while True:
            request = member.next_request()
            began = time.monotonic()
            try:
                response: Any = await getattr(self._stub, METHODS[type(request)])(
                    request, timeout=PATIENCE_S
                )
            except grpc.aio.AioRpcError:
                member.no_answer(began, time.monotonic())
            else:
                member.hear(response, began, time.monotonic())
            await asyncio.sleep(self._pause_s * 2 * self._dice.random())
