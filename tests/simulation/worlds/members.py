"""Members of a world: processes that join groups, work, are slow, die and come back.

A `LibraryMember` runs the client library as it is shipped, with an owner that polls, works and
commits. A `PlainMember` speaks the protocol by itself, as a client in another language may, and
hands out partitions in an order of its own each time that it is the leader.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import grpc

from coordinator.assignors import TopicPartition
from coordinator.client.errors import CoordinatorError, FatalError
from coordinator.client.member import face
from coordinator.client.member.events import Granted, Lost, MemberEvent, Revoking, Stopping
from coordinator.dial import address_of
from coordinator.runtime.clock import AnchoredClock
from coordinator.testing.engine.channels import Addresses, SimulatedCredentials
from coordinator.testing.engine.clock import MachineClock
from coordinator.testing.engine.loop import SimulatedLoop
from coordinator.testing.engine.process import Process
from coordinator.testing.engine.story import Story
from coordinator.v1 import group_pb2 as pb
from coordinator.v1 import group_pb2_grpc
from tests.simulation.worlds.plain_member import Group, Member
from tests.simulation.worlds.records import Recorder

CALL_TIMEOUT_S = 1.5
PARKED_TIMEOUT_S = 4.0
IMPATIENT = 0.3
"""Probability that a plain client does not wait for the answer to its SyncGroup."""
SOON_S = 0.3
"""A worker that has been at its work for longer may not poll in time; and a plain client whose call
has been out for longer, its request or answer lost before all was healed, may not beat in time."""
ELSEWHERE = ("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE")
METHODS: dict[type[Any], str] = {
    pb.JoinGroupRequest: "JoinGroup",
    pb.SyncGroupRequest: "SyncGroup",
    pb.HeartbeatRequest: "Heartbeat",
    pb.OffsetCommitRequest: "OffsetCommit",
    pb.LeaveGroupRequest: "LeaveGroup",
}


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """Settings that the members of a group share.

    `assignors` of the library; empty: plain members. Times in milliseconds.
    """

    group: Group
    assignors: tuple[str, ...]
    rebalance_ms: int
    heartbeat_ms: int
    max_poll_ms: int | None


@dataclass(frozen=True, slots=True)
class ProcessEnvironment:
    """ProcessEnvironment that every member of a world shares."""

    loop: SimulatedLoop
    addresses: Addresses
    bootstrap: Sequence[str]
    recorder: Recorder
    story: Story


class SimulatedMember:
    """One member, over all its lives. Any: a member of the library, which has no common base.

    Args:
        instance_id: it is static under this id; None: it is dynamic.
        slow: how often its work takes longer than its group has patience.
    """

    KIND: ClassVar[str] = "member"
    """Word for it in counts of the story."""

    def __init__(
        self,
        around: ProcessEnvironment,
        plan: GroupPlan,
        number: int,
        clock: MachineClock,
        dice: random.Random,
        *,
        instance_id: str | None = None,
        slow: float = 0.0,
    ) -> None:
        self.around = around
        self.plan = plan
        self.name = f"m{number}"
        self.clock = clock
        self.dice = dice
        self.instance_id = instance_id
        self.slow = slow
        self.process: Process | None = None
        self._peer = f"ipv4:10.0.1.{number}:5000"
        self._lives = itertools.count(1)

    @property
    def host(self) -> str:
        """Client host as the coordinator sees it; no other member has the same."""
        return "/" + self._peer.split(":")[1]

    @property
    def is_up(self) -> bool:
        """True unless it was killed or has left."""
        return self.process is not None

    def start(self) -> None:
        """Start a new process, unless one runs."""
        if self.process is not None:
            return
        around = self.around
        process = self.process = around.loop.process(f"{self.name}.{next(self._lives)}", self.clock)
        credentials = SimulatedCredentials.of(
            around.addresses, process, self.name, self._peer, around.recorder
        )
        around.story.tell(self.name, f"starts, of {self.plan.group.name}")
        process.run(self._live(credentials))

    def kill(self) -> None:
        """Kill the process, as SIGKILL does."""
        if self.process is not None:
            self.process.kill()
            self.process = None

    def leave(self) -> None:
        """End gracefully."""
        process = self.process
        if process is not None:
            process.run(self._leave(process))

    def share(self) -> tuple[int, frozenset[str]] | None:
        """Its generation and its partitions, if it is at rest; None: it is not."""
        raise NotImplementedError

    async def _live(self, credentials: SimulatedCredentials) -> None:
        process = self.process
        assert process is not None
        while True:
            member = self._begin(process, self._bootstrap(), credentials)
            await member.start()
            try:
                await self._own(member)
            except FatalError as error:
                # Its instance is another process's now, say. Whoever runs it starts it anew.
                self.around.story.tell(self.name, f"is refused: {error}")
                self.around.story.count(f"{self.KIND} refused for good")
            await member.close()
            await asyncio.sleep(0.5)

    def _begin(
        self, process: Process, bootstrap: list[str], credentials: SimulatedCredentials
    ) -> Any:
        """Make the member of the library for the next life: `member`."""
        raise NotImplementedError

    async def _own(self, member: Any) -> None:
        """Do what a worker does, until the member stops."""
        raise NotImplementedError

    def _bootstrap(self) -> list[str]:
        bootstrap = list(self.around.bootstrap)
        self.dice.shuffle(bootstrap)
        return bootstrap

    async def _leave(self, process: Process) -> None:
        raise NotImplementedError

    def _end(self, process: Process) -> None:
        """The process ends by itself."""
        if self.process is process:
            self.process = None
            self.around.story.tell(self.name, "has ended")
            process.kill()


class LibraryMember(SimulatedMember):
    """A member of the library, in a classic group, and its owner."""

    member: face.Member | None = None
    _works_since: float | None = None

    def share(self) -> tuple[int, frozenset[str]] | None:
        member = self.member
        now = self.around.addresses.network.now()
        if self._works_since is not None and now - self._works_since > SOON_S:
            return None  # It may be about to leave: it does not poll meanwhile.
        if member is None or member.is_between_assignments or member.generation < 0:
            return None
        return member.generation, frozenset(f"{p.topic}-{p.partition}" for p in member.assignment)

    def _begin(
        self, process: Process, bootstrap: list[str], credentials: SimulatedCredentials
    ) -> face.Member:
        plan = self.plan
        self._works_since = None
        self.member = face.Member(
            bootstrap,
            plan.group.name,
            {"t": len(plan.group.offsets)},
            assignors=plan.assignors,
            credentials=credentials,
            clock=AnchoredClock(process.wall_ns, process.monotonic_ns).now_ms,
            random=self.dice.random,
            client_id=self.name,
            instance_id=self.instance_id,
            session_timeout_ms=plan.group.session_ms,
            rebalance_timeout_ms=plan.rebalance_ms,
            heartbeat_interval_ms=plan.heartbeat_ms,
            max_poll_interval_ms=plan.max_poll_ms,
        )
        return self.member

    async def _own(self, member: face.Member) -> None:
        """Poll, work and commit for ever, as a worker does."""
        held: dict[TopicPartition, int] = {}
        while True:
            events = await member.poll(timeout=0.05 + 0.3 * self.dice.random())
            for event in events:
                self._receive(event, held)
                if isinstance(event, Stopping):
                    return
            if held and self.dice.random() < 0.5:
                self._works_since = self.around.addresses.network.now()
                await self._work(member, held)
                self._works_since = None

    def _receive(self, event: MemberEvent, held: dict[TopicPartition, int]) -> None:
        self.around.story.tell(self.name, f"  hears {_words(event)}")
        self.around.story.count(f"owner heard {type(event).__name__}")
        match event:
            case Granted(holdings):
                held.update((holding.partition, holding.generation) for holding in holdings)
            case Lost(holdings) | Revoking(holdings):
                # It has finished with those to be given back: the next poll says so.
                for holding in holdings:
                    held.pop(holding.partition, None)
            case Stopping():
                held.clear()

    async def _work(self, member: face.Member, held: dict[TopicPartition, int]) -> None:
        partition = self.dice.choice(sorted(held))
        name = f"{partition.topic}-{partition.partition}"
        offset = self.plan.group.next_offset(name)
        if self.dice.random() < self.slow:
            self.around.story.count("slow handler")
            await asyncio.sleep(self.plan.rebalance_ms / 1000 * (0.3 + 1.5 * self.dice.random()))
        try:
            await member.commit({partition: offset})
        except FatalError:
            raise
        except CoordinatorError as error:
            self.around.story.count(f"commit refused: {type(error).__name__}")
            self.around.story.tell(self.name, f"  commit of {name} refused: {error}")
        else:
            self.around.recorder.tell(
                {"op": "handled", "group": self.plan.group.name, "partition": name,
                 "offset": offset, "since": held[partition]}
            )  # fmt: skip

    async def _leave(self, process: Process) -> None:
        if self.member is not None:
            await self.member.close()
        self._end(process)


def _words(event: MemberEvent) -> str:
    partitions = sorted(p.partition for p in getattr(event, "partitions", ()))
    rest = getattr(event, "reason", getattr(event, "generation", ""))
    return f"{type(event).__name__} {partitions} {rest}"


class PlainMember(SimulatedMember):
    """A client of its own making."""

    member: Member | None = None
    _calls_since: float | None = None

    def share(self) -> tuple[int, frozenset[str]] | None:
        member = self.member
        now = self.around.addresses.network.now()
        if self._calls_since is not None and now - self._calls_since > SOON_S:
            return None  # Its session may end before it hears that there is no answer.
        if member is None or not member.is_assigned:
            return None
        return member.generation, frozenset(member.partitions)

    async def _live(self, credentials: SimulatedCredentials) -> None:
        member = self.member = Member(
            self.plan.group, self.name, self.dice, lambda line: None, shuffles=True
        )
        stub: Any = None
        now = self.around.addresses.network.now
        while True:
            request = member.next_request()
            began = self._calls_since = now()
            try:
                if stub is None:
                    stub = await self._find(credentials)
                call = getattr(stub, METHODS[type(request)])
                response = await call(request, timeout=self._timeout_s(request))
            except grpc.aio.AioRpcError as error:
                member.no_answer(began, now())
                is_sync = isinstance(request, pb.SyncGroupRequest)
                if not is_sync or error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                    stub = None
            else:
                if member.receive(response, began, now()) in ELSEWHERE:
                    stub = None
            self._calls_since = None
            pause_s = 0.01
            if member.is_assigned or stub is None:
                # A shard may move between two heartbeats, and the session has to last for three.
                pause_s = min(0.3, self.plan.group.session_ms / 4000)
            await asyncio.sleep(pause_s * (0.5 + self.dice.random()))

    def _timeout_s(self, request: Any) -> float:
        """Impatient at times: a leader that is hands in another assignment beside the first."""
        if isinstance(request, pb.SyncGroupRequest) and self.dice.random() < IMPATIENT:
            return 0.003 + 0.1 * self.dice.random()
        is_parked = isinstance(request, pb.JoinGroupRequest | pb.SyncGroupRequest)
        return PARKED_TIMEOUT_S if is_parked else CALL_TIMEOUT_S

    async def _find(self, credentials: SimulatedCredentials) -> Any:
        address = self.dice.choice(self.around.bootstrap)
        stub: Any = group_pb2_grpc.GroupCoordinatorStub(credentials.open_aio(address))
        reply = await stub.FindCoordinator(
            pb.FindCoordinatorRequest(group_id=self.plan.group.name), timeout=CALL_TIMEOUT_S
        )
        target = address_of(reply.host, reply.port)
        if reply.host and target != address:
            stub = group_pb2_grpc.GroupCoordinatorStub(credentials.open_aio(target))
        return stub

    async def _leave(self, process: Process) -> None:
        self._end(process)  # Without a word: its session has to end.
