"""Members of session groups: the library as it is shipped, with an owner that works and commits.

An owner begins work only while `takes_work`, and looks at `valid` before each effect; whether more
than one does at the same time is seen from outside, by `World`, with everybody's own clock.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

from coordinator.client.errors import CoordinatorError, FatalError
from coordinator.client.member.events import (
    Granted,
    Lost,
    MemberEvent,
    Revoking,
    Stopping,
    Warming,
)
from coordinator.client.member.face import Member
from coordinator.client.member.ledger import Holding
from coordinator.runtime.clock import AnchoredClock
from coordinator.testing.engine.channels import SimulatedCredentials
from coordinator.testing.engine.clock import MachineClock
from coordinator.testing.engine.process import Process
from tests.simulation.worlds.members import GroupPlan, ProcessEnvironment, SimulatedMember

PATIENCE_S = 0.2
"""Time that an owner lets pass at most before it begins to finish what it was told to."""


class SessionLibraryMember(SimulatedMember):
    """A member of the library, in a session group, and its owner.

    Args:
        wishes: policy of the group, which all of its members ask for.
    """

    KIND = "session member"
    member: Member | None = None

    def __init__(
        self,
        around: ProcessEnvironment,
        plan: GroupPlan,
        number: int,
        clock: MachineClock,
        dice: random.Random,
        *,
        wishes: Any,  # A `PolicyWishes`, drawn by the world.
        name: str | None = None,
    ) -> None:
        super().__init__(around, plan, number, clock, dice)
        self._wishes = wishes
        self._name = name
        self._draining: set[Holding] = set()

    def share(self) -> tuple[int, frozenset[str]] | None:
        member = self.member
        if member is None or self.process is None or member.is_waiting or self._draining:
            return None
        return 0, frozenset(self.works_on())

    def works_on(self) -> list[str]:
        """Partitions of which an effect may leave the process now, by its own clock."""
        member, process = self.member, self.process
        if member is None or process is None or process.is_held:
            return []
        return sorted(f"{p.topic}-{p.partition}" for p in member.assignment if member.valid(p))

    def _begin(
        self, process: Process, bootstrap: list[str], credentials: SimulatedCredentials
    ) -> Member:
        plan = self.plan
        self._draining.clear()
        self.member = Member(
            bootstrap,
            plan.group.name,
            {"t": len(plan.group.offsets)},
            protocol="session",
            credentials=credentials,
            clock=AnchoredClock(process.wall_ns, process.monotonic_ns).now_ms,
            random=self.dice.random,
            client_id=self.name,
            member_name=self._name,
            wishes=self._wishes,
        )
        return self.member

    async def _own(self, member: Member) -> None:
        """Take in events, work and commit, until the member stops."""
        while True:
            for event in await member.poll(timeout=0.02 + 0.15 * self.dice.random()):
                self.around.story.tell(self.name, f"  hears {event}")
                self.around.story.count(f"session owner heard {type(event).__name__}")
                if isinstance(event, Stopping):
                    return
                self._receive(member, event)
            for holding in sorted(self._draining, key=lambda held: held.partition):
                await self._work(member, holding)
                self._draining.discard(holding)
                member.released(holding)
            held = sorted(p for p in member.assignment if member.takes_work(p))
            if held and self.dice.random() < 0.6:
                await self._work(member, member.holding(self.dice.choice(held)))

    def _receive(self, member: Member, event: MemberEvent) -> None:
        if isinstance(event, Stopping):
            return
        for holding in event.holdings:
            match event:
                case Warming():
                    if self.dice.random() < 0.1:
                        member.refuse(holding, "not this one")
                    else:
                        member.ready(holding)
                case Revoking():
                    self._draining.add(holding)
                case Lost():
                    self._draining.discard(holding)
                    member.released(holding)
                case Granted() if self.dice.random() < 0.03:
                    member.refuse(holding, "not now")

    async def _work(self, member: Member, holding: Holding) -> None:
        partition = holding.partition
        name = f"{partition.topic}-{partition.partition}"
        if self.dice.random() < self.slow:
            await asyncio.sleep(PATIENCE_S * self.dice.random())
        if not member.valid(holding):
            return
        offset = self.plan.group.next_offset(name)
        began = self.around.addresses.network.now()
        try:
            await member.commit({partition: offset}, holdings=holding, timeout=3.0)
        except FatalError:
            raise
        except CoordinatorError as error:
            self.around.story.count(f"session commit refused: {type(error).__name__}")
        else:
            self.around.story.count("session commit accepted")
            self.around.recorder.tell(
                {"op": "kept", "group": self.plan.group.name, "partition": name,
                 "offset": offset, "token": holding.token, "began": began,
                 "ended": self.around.addresses.network.now()}
            )  # fmt: skip

    async def _leave(self, process: Process) -> None:
        if self.member is not None:
            if self.dice.random() < 0.5:
                self.member.drain(1_000)
                await asyncio.sleep(0.5)
            await self.member.close()
        self._end(process)
