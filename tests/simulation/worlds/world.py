"""A world: nodes, members, a store and a network, all of one seed, for some tens of seconds.

    chaos ─► heal ─► converge ─► quiet ─► read back ─► the checkers

During chaos faults strike. Then everything is healed, and every group has to be at rest within
`CONVERGE_S`: live members, of whom the coordinator knows each once, in one generation, each
partition with exactly one of them. From then on nothing may disturb it. In the end the offsets are
read, and the history of what everybody was told is compared with what the log holds.

The mix, drawn from the seed: one node on its own in a third of the worlds, two or three that share
a store in the others; one or two groups of two to four members, of the library (range, sticky,
cooperative-sticky) or plain; a third of the members static, some of them slow.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from coordinator.client.settings.typed import PolicyWishes
from coordinator.core.values.ids import ShardId
from coordinator.settings import Settings
from coordinator.shard import snapshots
from coordinator.testing.engine.channels import Addresses, SimulatedCredentials
from coordinator.testing.engine.clock import MachineClock
from coordinator.testing.engine.loop import Livelock, SimulatedLoop, Stuck
from coordinator.testing.engine.network import Network
from coordinator.testing.engine.process import PROCESS
from coordinator.testing.engine.story import Story
from coordinator.v1 import group_pb2 as pb
from coordinator.v1 import group_pb2_grpc
from tests.simulation.worlds import faults
from tests.simulation.worlds.checkers.check import problems
from tests.simulation.worlds.checkers.history import Line
from tests.simulation.worlds.members import (
    GroupPlan,
    LibraryMember,
    PlainMember,
    ProcessEnvironment,
    SimulatedMember,
)
from tests.simulation.worlds.nodes import SimulatedNode
from tests.simulation.worlds.plain_member import Group
from tests.simulation.worlds.records import Recorder
from tests.simulation.worlds.session_members import SessionLibraryMember
from tests.simulation.worlds.stores import SharedStore

SHARDS = 2
SETTLE_S = 1.0
CHAOS_S = (3.0, 7.0)
CONVERGE_S = 30.0
QUIET_S = 1.0
SNAPSHOT_ENTRIES = 25
"""Entries from one snapshot to the next: few, so that short runs have snapshots too."""
DRIFT_PPM = 20_000
"""Greatest drift of a clock, in parts per million. A node fences itself after 0.8 of its session,
so nine tenths of that would be survived."""
MIN_LEASE_MS = 800
WATCH_S = 0.01
"""Time between two looks at who may work on what."""
LOOK_S = 0.1
LOOKS = 5
"""Looks in a row at which a group must rest in one generation."""


@dataclass(slots=True)
class Outcome:
    """Result of a seed."""

    seed: int
    problems: list[str]
    counts: Counter[str]
    lines: list[str]
    history: list[Line] = field(default_factory=list)


class World:
    """Everything that happens in it comes from its seed.

    Args:
        is_told: keep a transcript.
        has_sessions: its groups are session groups, whose members have clocks of their own.
    """

    def __init__(self, seed: int, *, is_told: bool = False, has_sessions: bool = False) -> None:
        self.seed = seed
        self.has_sessions = has_sessions
        self.loop = SimulatedLoop()
        self.loop.set_exception_handler(self._unexpected)
        self.story = Story(self.now, is_told=is_told)
        self.network = Network(self.now, self._dice("network"), self.story)
        self.addresses = Addresses(self.network, self.story)
        self.failures: list[str] = []
        dice = self._dice("world")
        self.is_cluster = dice.random() < 0.67
        self.store = SharedStore(
            self.loop.process("store"), self.network, self._dice("store"), self.story,
            session_timeout_s=dice.choice((1.0, 2.0)),
        )  # fmt: skip
        plans = [self._plan(f"g{n}", dice) for n in range(dice.choice((1, 1, 2)))]
        plain = {plan.group.name for plan in plans if not plan.assignors}
        self._instances: set[str] = set()
        self.recorder = Recorder(self.now, self.story, plain.__contains__, self._instances)
        self.nodes = self._nodes(dice)
        self.members = [member for plan in plans for member in self._members(plan, dice)]
        self.groups = [plan.group for plan in plans]
        self._workers: dict[tuple[str, str], list[str]] = {}

    def now(self) -> float:
        """Seconds of the world."""
        return self.loop.true_ns / 1e9

    def later(self, delay_s: float, what: Callable[[], object]) -> None:
        """Have something happen, unless all is healed by then."""
        self.loop.world.call_later(delay_s, lambda: None if self.is_healed else what())

    is_healed = False

    def run(self) -> Outcome:
        """Live through it, and check every claim."""
        with _in_the_world(self.loop):
            try:
                self.loop.run_until_complete(self._live())
            except (Stuck, Livelock) as error:
                self._fail("world", repr(error))
            finally:
                self.loop.close()
        self.recorder.close()
        found = self.failures + problems(self.recorder.lines, self._dump())
        return Outcome(self.seed, found, self.story.counts, self.story.lines, self.recorder.lines)

    # --- What there is ---

    def _dice(self, name: str) -> random.Random:
        return random.Random(f"{self.seed}/{name}")  # It has to be predictable.

    def _clock(self, dice: random.Random) -> MachineClock:
        return MachineClock(
            drift_ppm=dice.randint(-DRIFT_PPM, DRIFT_PPM),
            started_ns=dice.randrange(10**14),
            wall_offset_ns=dice.randint(-(10**10), 10**10),
        )

    def _plan(self, name: str, dice: random.Random) -> GroupPlan:
        session_ms = dice.choice((800, 1_500, 2_500))
        assignors = dice.choice(
            ((), (), ("range",), ("sticky",), ("cooperative-sticky",), ("cooperative-sticky",))
        )
        rebalance_ms = dice.choice((600, 1_200))
        return GroupPlan(
            Group(name, dice.randint(2, 5), session_ms),
            assignors,
            rebalance_ms=rebalance_ms,
            # Who beats more rarely than a rebalance lasts is left out of each.
            heartbeat_ms=min(session_ms, rebalance_ms) // 4,
            max_poll_ms=dice.choice((None, 900, 5_000)),
        )

    def _nodes(self, dice: random.Random) -> list[SimulatedNode]:
        count = dice.choice((2, 3)) if self.is_cluster else 1
        replicas = dice.choice((1, 2, 2, 3))
        acks = dice.choice(("store", "store", "all"))
        delay_ms = dice.choice((0, 150))
        commit_ms = dice.choice((400, 1_500))
        nodes = []
        for number in range(1, count + 1):
            settings = Settings.of(
                node_id=number,
                store="memory",
                shards=SHARDS,
                replicas=replicas,
                acks=acks,
                replica_lag_time_max_ms=1_000,
                group_initial_rebalance_delay_ms=delay_ms,
                group_min_session_timeout_ms=10,
                group_min_lease_ms=MIN_LEASE_MS,
                offset_commit_timeout_ms=commit_ms,
                drain_timeout_ms=1_000,
            )
            nodes.append(
                SimulatedNode(
                    self.loop, settings, self._clock(dice), store=self.store,
                    addresses=self.addresses, story=self.story, is_cluster=self.is_cluster,
                    tell=self.recorder.tell, fail=self._fail,
                )
            )  # fmt: skip
        return nodes

    def _members(self, plan: GroupPlan, dice: random.Random) -> list[SimulatedMember]:
        around = ProcessEnvironment(
            self.loop, self.addresses, [node.address for node in self.nodes], self.recorder,
            self.story,
        )  # fmt: skip
        made: list[SimulatedMember] = []
        wishes = self._wishes(plan, dice) if self.has_sessions else {}
        for _ in range(dice.randint(2, 4)):
            number = self._member_count = self._member_count + 1
            mine = self._dice(f"m{number}")
            if self.has_sessions:
                name = f"w{number}" if dice.random() < 0.5 else None
                clock = self._clock(dice)
                made.append(
                    SessionLibraryMember(
                        around, plan, number, clock, mine, wishes=wishes, name=name
                    )
                )
            elif plan.assignors:
                instance = f"i{number}" if dice.random() < 0.33 else None
                if instance is not None:
                    self._instances.add(instance)
                slow = dice.choice((0.0, 0.0, 0.3))
                made.append(
                    LibraryMember(
                        around, plan, number, self._clock(dice), mine,
                        instance_id=instance, slow=slow,
                    )
                )  # fmt: skip
            else:
                made.append(PlainMember(around, plan, number, self._clock(dice), mine))
        return made

    _member_count = 0

    def _wishes(self, plan: GroupPlan, dice: random.Random) -> PolicyWishes:
        return {
            "lease_ms": max(MIN_LEASE_MS, plan.group.session_ms),
            "mode": dice.choice(("simple", "simple", "warm", "copy")),
            "join_quiet_ms": 0,
            "initial_delay_ms": dice.choice((0, 200)),
            "drain_timeout_ms": 1_500,
            "warm_timeout_ms": 2_000,
            "max_return_ms": 2_000,
        }

    def _watch_workers(self) -> None:
        """Note who may work on which partition, by everybody's own clock."""
        for group in self.groups:
            found: dict[str, list[str]] = {}
            for member in self._of(group):
                assert isinstance(member, SessionLibraryMember)
                for partition in member.works_on():
                    found.setdefault(partition, []).append(member.name)
            for partition in group.offsets:
                members = found.get(partition, [])
                key = group.name, partition
                if self._workers.get(key) != members:
                    self._workers[key] = members
                    self.recorder.tell(
                        {"op": "worked", "at": self.now(), "group": group.name,
                         "partition": partition, "members": members}
                    )  # fmt: skip
        self.loop.world.call_later(WATCH_S, self._watch_workers)

    # --- What happens ---

    async def _live(self) -> None:
        dice = self._dice("faults")
        for node in self.nodes:
            node.start()
        for member in self.members:
            self.loop.world.call_later(dice.random(), member.start)
        if self.has_sessions:
            self._watch_workers()
        await asyncio.sleep(SETTLE_S)
        ends_at = self.now() + CHAOS_S[0] + (CHAOS_S[1] - CHAOS_S[0]) * dice.random()
        while self.now() < ends_at:
            await asyncio.sleep(2 * faults.PAUSE_BETWEEN_S * dice.random())
            faults.strike(self, dice)
        self._heal()
        if await self._converge():
            for group in self.groups:
                self.recorder.tell({"op": "quiet", "group": group.name, "since": self.now()})
            await asyncio.sleep(QUIET_S)
        await self._read_back()
        for node in self.nodes:
            node.watch.count_waits()

    def _heal(self) -> None:
        """End all faults."""
        self.is_healed = True
        self.story.tell("world", "heals")
        self.network.heal()
        self.store.heal()
        for node in self.nodes:
            node.watch.bugs.clear()
            if node.process is not None:
                node.process.resume()
                if node.node is not None and node.node.cluster is not None:
                    node.node.cluster.drain(undo=True)
            else:
                node.start()
        for member in self.members:
            member.slow = 0.0
            if member.process is not None:
                member.process.resume()
            else:
                member.start()

    async def _converge(self) -> bool:
        """Wait until every group is at rest; note how each was found."""
        until = self.now() + CONVERGE_S
        looks, before = 0, None
        while looks < LOOKS and self.now() < until:
            await asyncio.sleep(LOOK_S)
            now = [self._rest(group) for group in self.groups]
            is_at_rest = None not in now and now == before
            is_decided = not self.is_cluster or len(self._deciding()) == 1
            looks = looks + 1 if is_at_rest and is_decided else 0
            before = now
            # Some were about to end when all was healed.
            for node in self.nodes:
                node.start()
            for member in self.members:
                member.start()
        self.story.tell("world", "is at rest" if looks >= LOOKS else "does not come to rest")
        if self.is_cluster:
            self.recorder.tell({"op": "decided", "deciding": self._deciding()})
        for group in self.groups:
            shares = {member.name: member.share() for member in self._of(group)}
            seats = {member.name: self._seats(member) for member in self._of(group)}
            self.recorder.tell(
                {
                    "op": "rested", "group": group.name, "expected": sorted(group.offsets),
                    "seats": seats,
                    "shares": {
                        name: None if share is None else [share[0], sorted(share[1])]
                        for name, share in shares.items()
                    },
                }
            )  # fmt: skip
        return looks >= LOOKS

    def _deciding(self) -> list[str]:
        return [node.name for node in self.nodes if node.is_deciding]

    def _of(self, group: Group) -> list[SimulatedMember]:
        return [member for member in self.members if member.plan.group is group]

    def _rest(self, group: Group) -> int | None:
        """The generation in which a group is at rest; None: it is not."""
        shares = [member.share() for member in self._of(group)]
        known = [share for share in shares if share is not None]
        generations = {generation for generation, _ in known}
        held = sorted(partition for _, partitions in known for partition in partitions)
        is_at_rest = (
            len(known) == len(shares)
            and len(generations) == 1
            and held == sorted(group.offsets)
            and all(self._seats(member) == 1 for member in self._of(group))
        )
        return generations.pop() if is_at_rest else None

    def _seats(self, member: SimulatedMember) -> int:
        """Number of members that the coordinator has of this one: 2 after a kill, until the session
        of the first has ended; 0 if it was evicted and has not heard of it."""
        if isinstance(member, SessionLibraryMember):
            return 1  # Whether it holds what it should is seen by its own clock.
        group = member.plan.group.name
        serving = [x.node for x in self.nodes if x.node is not None and x.node.is_loaded(group)]
        return max((node.members_of(member.host) for node in serving), default=0)

    async def _read_back(self) -> None:
        """Read every group's offsets, wherever it is coordinated now."""
        reader = self.loop.process("reader")
        credentials = SimulatedCredentials.of(
            self.addresses, reader, "reader", "ipv4:10.0.2.1:5000", self.recorder
        )
        await reader.run(self._read(credentials))

    async def _read(self, credentials: SimulatedCredentials) -> None:
        waiting = {group.name for group in self.groups}
        for _ in range(100):
            for node in self.nodes:
                stub: Any = group_pb2_grpc.GroupCoordinatorStub(credentials.open_aio(node.address))
                for name in sorted(waiting):
                    request = pb.OffsetFetchRequest(group_id=name, require_stable=True)
                    response = await stub.OffsetFetch(request, timeout=5.0)
                    if not response.error_code:
                        waiting.discard(name)
            if not waiting:
                return
            await asyncio.sleep(LOOK_S)
        self._fail("world", f"nobody serves {sorted(waiting)}")

    # --- What came of it ---

    def _dump(self) -> list[Line]:
        self.store.log.forget_failures()
        found: list[Line] = []
        for shard in map(ShardId, range(SHARDS)):
            fence = self.store.log.fence_now(shard, leader_epoch=1 << 20)
            found += self.recorder.dump(shard, self.store.log.load_now(fence))
        return found

    def _fail(self, who: str, what: str) -> None:
        self.story.tell(who, f"!!! {what}")
        self.failures.append(f"no_bugs: {who}: {what}")

    def _unexpected(self, loop: object, context: dict[str, Any]) -> None:
        who = PROCESS.get(self.loop.world).name
        self._fail(who, f"{context.get('message')}: {context.get('exception')!r}")


@contextmanager
def _in_the_world(loop: SimulatedLoop) -> Iterator[None]:
    """Give each process its own `time`; silence the garbage collector and the log."""

    def monotonic_ns() -> int:
        return PROCESS.get(loop.world).monotonic_ns()

    def wall_ns() -> int:
        return PROCESS.get(loop.world).wall_ns()

    def monotonic() -> float:
        return monotonic_ns() / 1e9

    def wall() -> float:
        return wall_ns() / 1e9

    told: dict[str, Callable[[], float]] = {
        "monotonic": monotonic, "monotonic_ns": monotonic_ns, "perf_counter": monotonic,
        "time": wall, "time_ns": wall_ns,
    }  # fmt: skip
    real = {name: getattr(time, name) for name in told}
    entries, snapshots.ENTRIES = snapshots.ENTRIES, SNAPSHOT_ENTRIES
    collects = gc.isenabled()
    gc.disable()
    logging.disable(logging.WARNING)  # Those of the library are in the story.
    try:
        for name, function in told.items():
            setattr(time, name, function)
        yield
    finally:
        for name, function in real.items():
            setattr(time, name, function)
        snapshots.ENTRIES = entries
        logging.disable(logging.NOTSET)
        gc.unfreeze()
        if collects:
            gc.enable()
