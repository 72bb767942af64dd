"""Many members at once over real sockets, and the history of what they were told."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from typing import Any

import grpc

from coordinator.v1 import group_pb2 as pb
from tests.campaigns.faults.routes import Routes
from tests.kit.patience import HANG_S
from tests.simulation.worlds.checkers.history import Line
from tests.simulation.worlds.plain_member import Group, Member

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
LONG = (pb.JoinGroupRequest, pb.SyncGroupRequest)
"""Calls that may be parked for as long as a group takes."""
ELSEWHERE = ("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE")


class Fleet:
    """Groups at rest, and groups that never rest.

    Args:
        addresses: where coordinators are, or will be again.
        quiet, busy: how many groups of each kind. The members of quiet groups keep beating
            and committing. Of busy groups members leave and come back all the time; their
            sessions are short, so that those who were lost with a coordinator go soon.
        patience_s: for an answer that nobody holds back.
    """

    def __init__(
        self,
        addresses: list[str],
        dice: random.Random,
        *,
        quiet: int,
        busy: int,
        members: int = 3,
        partitions: int = 6,
        quiet_session_ms: int = 30_000,
        busy_session_ms: int = 300,
        pause_s: float = PAUSE_S,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.history: list[Line] = []
        self.answered: Counter[str] = Counter()
        """Lines of the history by kind, without those that say that it was refused."""
        self._dice = dice
        self._pause_s = pause_s
        self._patience_s = patience_s
        self._routes = Routes(addresses, dice)
        self._quiet = [Group(f"quiet-{n}", partitions, quiet_session_ms) for n in range(quiet)]
        self._busy = [Group(f"busy-{n}", partitions, busy_session_ms) for n in range(busy)]
        self._members = [
            Member(
                group,
                f"m{n}",
                dice,
                self._note,
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
        await self._routes.close()

    def _note(self, line: Line) -> None:
        self.history.append(line)
        self.answered[line["op"]] += line.get("answer", "NONE") == "NONE"

    async def settle(self) -> None:
        """Until the quiet groups are at rest; from then on they are recorded as such."""
        async with asyncio.timeout(HANG_S):
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
        return same and all(member.is_assigned for member in members)

    async def recover(self) -> None:
        """Until every quiet group has been answered again."""
        async with asyncio.timeout(HANG_S):
            began = time.monotonic()
            wanted = {group.name for group in self._quiet}
            while True:
                answered = {
                    line["group"]
                    for line in reversed(self.history)
                    if line.get("answer") == "NONE" and line["began"] > began
                }
                if wanted <= answered:
                    return
                await asyncio.sleep(0.2)

    async def read_back(self) -> None:
        """Ask for all offsets, as somebody who was not there before."""
        for group in self._quiet + self._busy:
            began = time.monotonic()
            with contextlib.suppress(grpc.aio.AioRpcError):
                stub = await self._routes.stub(group.name)
                response = await stub.OffsetFetch(
                    pb.OffsetFetchRequest(group_id=group.name), timeout=self._patience_s
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
            request, group = member.next_request(), member.group.name
            patience_s = PATIENCE_S if isinstance(request, LONG) else self._patience_s
            began = time.monotonic()
            try:
                stub = await self._routes.stub(group)
                response: Any = await getattr(stub, METHODS[type(request)])(
                    request, timeout=patience_s
                )
            except grpc.aio.AioRpcError:
                self._routes.lost(group)
                member.no_answer(began, time.monotonic())
            else:
                if member.receive(response, began, time.monotonic()) in ELSEWHERE:
                    self._routes.lost(group)
            await asyncio.sleep(self._pause_s * 2 * self._dice.random())
