"""One group at the server under test, and its members."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc

from coordinator.dial import Credentials, address_of
from coordinator.v1 import errors_pb2, group_pb2, group_pb2_grpc
from coordinator.v1 import session_pb2 as pb
from tests.protocol.sessions.coordinator_rules.calls import GroupCalls
from tests.protocol.sessions.coordinator_rules.member import TrialMember
from tests.protocol.sessions.coordinator_rules.messages import text_of
from tests.protocol.sessions.trial import now_s

OWN = [("grpc.use_local_subchannel_pool", 1)]
"""A trial shares its connections with no other."""
NOT_YET = (errors_pb2.COORDINATOR_LOAD_IN_PROGRESS, errors_pb2.COORDINATOR_NOT_AVAILABLE)


class GroupTrial(GroupCalls):
    """One run of a case, in a group of its own."""

    def __init__(
        self,
        channel: grpc.aio.Channel,
        metadata: Any,
        group_id: str,
        lease_ms: int,
        restart: Callable[[], Awaitable[grpc.aio.Channel]],
    ) -> None:
        super().__init__(channel, metadata, group_id, lease_ms)
        self.members: list[TrialMember] = []
        self._restart = restart

    async def restart(self) -> float:
        """Restart the coordinator; returns a time at which it did not serve yet."""
        self.transcript.add("the coordinator is restarted")
        began_s = now_s()
        self._channel = await self._restart()
        self.transcript.add("it serves again")
        for member in self.members:
            await self.until(lambda m=member: m.last.has_ended, f"{member.name}'s stream has ended")  # type: ignore[misc]
        return began_s

    async def back(self, member: TrialMember) -> pb.Attached:
        """Attach a member after a restart, as soon as its group is loaded."""
        member.beats = True
        while True:
            stream = await member.send_attach()
            await self.until(lambda s=stream: s.has_ended or bool(s.said), "it is answered")  # type: ignore[misc]
            attached: pb.Attached | None = stream.first("attached")
            if attached is not None:
                return attached
            refused = stream.first("refused")
            self.check(
                refused is None or refused.error_code in NOT_YET,
                f"{member.name} resumes: {text_of(refused)}",
            )
            await asyncio.sleep(0.05)

    def member(self, name: str, partitions: int = 3, **fields: Any) -> TrialMember:
        """A member, not attached."""
        member = TrialMember(self, name, partitions, fields)
        self.members.append(member)
        return member

    async def attached(self, name: str, partitions: int = 3, **fields: Any) -> TrialMember:
        """A member that has attached."""
        member = self.member(name, partitions, **fields)
        await member.attached()
        return member

    async def alone(self, partitions: int, **fields: Any) -> TrialMember:
        """A member that holds everything."""
        member = await self.attached("w-a", partitions, **fields)
        await self.until(
            lambda: len(member.active) == partitions, "the only member holds everything"
        )
        return member

    async def pair(self) -> tuple[TrialMember, TrialMember]:
        """Two members that share three partitions; the first one has two."""
        a, b = self.member("w-a"), self.member("w-b")
        a.releases = b.releases = True
        await asyncio.gather(a.attached(), b.attached())
        await self.until(
            lambda: sorted((len(a.active), len(b.active))) == [1, 2], "two members share 3 to 1-2"
        )
        first, second = (a, b) if len(a.active) == 2 else (b, a)
        first.releases = second.releases = False
        return first, second

    async def handing_over(self, **fields: Any) -> tuple[TrialMember, TrialMember, int]:
        """A member that is to give one of its two partitions to another one, and has not yet.

        Args:
            fields: of that member's Attach.
        """
        a = await self.alone(2, **fields)
        b = await self.attached("w-b", 2)
        await self.until(lambda: len(a.with_order(pb.Orders.DRAIN)) == 1, "w-a is to drain one")
        return a, b, a.with_order(pb.Orders.DRAIN)[0]

    async def warming(self) -> tuple[TrialMember, TrialMember, int]:
        """Mode warm: one member holds a partition for which another one is to prepare."""
        self.policy.mode = pb.GroupPolicy.WARM
        a = await self.alone(2)
        b = await self.attached("w-b", 2)
        await self.until(lambda: len(b.with_order(pb.Orders.WARM)) == 1, "w-b is to warm one")
        return a, b, b.with_order(pb.Orders.WARM)[0]


class ServerUnderTest:
    """The node at an address; groups are played at the node that coordinates them.

    Args:
        credentials: as of other clients.
        restart: restarts the coordinator; returns when that is done.
    """

    def __init__(
        self,
        address: str,
        lease_ms: int,
        credentials: Credentials,
        restart: Callable[[], Awaitable[None]],
    ) -> None:
        self._address, self._lease_ms, self._credentials = address, lease_ms, credentials
        self._restart = restart

    @contextlib.asynccontextmanager
    async def trial(self, case: str) -> AsyncIterator[GroupTrial]:
        """A group of its own, with a connection of its own."""
        group_id = f"conformance-{case}-{uuid.uuid4().hex[:8]}"
        async with contextlib.AsyncExitStack() as stack:

            async def connect() -> grpc.aio.Channel:
                return await stack.enter_async_context(await self._coordinator_of(group_id))

            async def restart() -> grpc.aio.Channel:
                await self._restart()
                return await connect()

            metadata = self._credentials.metadata()
            group = GroupTrial(await connect(), metadata, group_id, self._lease_ms, restart)
            try:
                with group.told():
                    yield group
            finally:
                for member in group.members:
                    await member.close()

    async def _coordinator_of(self, group_id: str) -> grpc.aio.Channel:
        """A channel to the node that coordinates a group."""
        async with self._credentials.open_aio(self._address, OWN) as any_node:
            stub = group_pb2_grpc.GroupCoordinatorStub(any_node)
            request = group_pb2.FindCoordinatorRequest(group_id=group_id)
            metadata = self._credentials.metadata()
            reply = await stub.FindCoordinator(request, metadata=metadata, wait_for_ready=True)
        return self._credentials.open_aio(address_of(reply.host, reply.port), OWN)
