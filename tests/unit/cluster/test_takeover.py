"""Takeovers of the controller, when anything happens to its key and to the nodes that write it.

The runners of a cluster take their looks one at a time, on a store in memory whose calls fail
before or after they are carried out. So a failure is found again from its seed.
"""

from __future__ import annotations

from collections import defaultdict, deque

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from coordinator.cluster.runner import ClusterRunner, LeadershipCallbacks
from coordinator.core.values.ids import ShardId
from coordinator.storage.coordination import NOBODY, NodeInfo, Session
from coordinator.storage.log import Ambiguous, LogUnavailable
from coordinator.testing.engine.loop import SimulatedLoop
from tests.unit.storage.memory_coordination import MemoryCoordination

SHARDS = 3
NUMBERS = st.integers(1, 3)
TROUBLES = ("none", "lost", "unanswered", "overtaken")


class Wire:
    """One process's way to the store.

    `troubles` of the calls to come: the request is lost, its answer is, or before a write
    arrives this process stands still for so long that others have taken over.
    """

    def __init__(self, cluster: Cluster, store: MemoryCoordination) -> None:
        self._cluster = cluster
        self._store = store
        self.process: Process | None = None
        self.troubles: deque[str] = deque()

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def join(self, node):
        return await self._call("join", node)

    async def announce(self, session, node):
        return await self._call("announce", session, node)

    async def campaign(self, session):
        return await self._call("campaign", session)

    async def resign(self, session):
        return await self._call("resign", session)

    async def read(self):
        return await self._call("read")

    async def write(self, controller_epoch, *states):
        return await self._call("write", controller_epoch, *states)

    async def _call(self, name, *arguments):
        trouble = self.troubles.popleft() if self.troubles else "none"
        if trouble == "lost":
            raise LogUnavailable("lost")
        if trouble == "overtaken" and name in ("write", "campaign"):
            await self._cluster.overtake(self.process)
        result = await getattr(self._store, name)(*arguments)
        if name == "write":
            self._cluster.written(arguments[0], self.process)
        if trouble == "unanswered":
            raise Ambiguous("unanswered")
        return result


class Process:
    """A node between its start and its end."""

    def __init__(self, cluster: Cluster, number: int, start: int, replicas: int) -> None:
        self.wire = Wire(cluster, cluster.store)
        self.wire.process = self
        nothing = lambda *_: None  # noqa: E731
        self.followers: dict[int, tuple[int, ...]] = {}
        self.runner = ClusterRunner(
            self.wire,
            NodeInfo(number, "h", number, f"start {start}"),
            [ShardId(n) for n in range(SHARDS)],
            LeadershipCallbacks(
                nothing, nothing, nothing, nothing, nothing, self.followers.__setitem__
            ),
            replicas=replicas,
        )
        self.has_joined = False
        self.is_overtaken = False

    @property
    def number(self) -> int:
        return self.runner.node.node_id

    @property
    def session(self) -> Session:
        return self.runner._session

    async def join(self) -> None:
        if not self.has_joined:
            await self.runner.join()
            self.has_joined = True

    async def read_and_act(self) -> None:
        """Look once, as its loop does, which survives all failures."""
        try:
            await self.join()
            await self.runner.read_and_act()
        except (LogUnavailable, Ambiguous):
            self.runner.begin_anew()


class Cluster:
    """All that happens to a cluster, and the laws."""

    def __init__(self, replicas: int = 1) -> None:
        self.store = MemoryCoordination()
        self._replicas = replicas
        self.processes: dict[int, Process] = {}
        self._starts = 0
        self._writers: dict[int, set[Process]] = defaultdict(set)
        self._newest = 0

    async def begin(self, *numbers: int) -> None:
        """All are there before the first decides, so that each leads something."""
        for number in numbers:
            await self.start(number).join()
        await self.calm_down()

    def start(self, number: int) -> Process:
        """Again, if it runs: it was killed, and nobody has told the store."""
        self._starts += 1
        self.processes[number] = process = Process(self, number, self._starts, self._replicas)
        return process

    def sessions(self) -> dict[int, Session]:
        return self.store._sessions

    def written(self, controller_epoch: int, process: Process) -> None:
        assert controller_epoch >= self._newest, "an epoch that was followed by another wrote"
        self._newest = controller_epoch
        self._writers[controller_epoch].add(process)
        assert len(self._writers[controller_epoch]) == 1, "two decide in one epoch"

    async def overtake(self, process: Process) -> None:
        """It stands still; the others find that, take it out, and decide."""
        others = [p for p in self.processes.values() if p is not process and p.has_joined]
        if process.is_overtaken or not others:
            return
        process.is_overtaken = True  # Others that are overtaken meanwhile do not come back here.
        session = self.sessions().get(process.number)
        if session is not None:
            self.store.take_out(session)
        for other in others:
            other.wire.troubles.clear()
            await other.read_and_act()
        process.is_overtaken = False

    async def calm_down(self) -> None:
        """Nothing fails any more, and who is gone is found to be."""
        for process in self.processes.values():
            process.wire.troubles.clear()
        for number, session in list(self.sessions().items()):
            process = self.processes.get(number)
            if process is None or not process.has_joined or process.session is not session:
                self.store.take_out(session)
        for _ in range(4):
            for process in self.processes.values():
                await process.read_and_act()

    async def check_all_is_well(self) -> None:
        view = await self.store.read()
        deciding = [p.number for p in self.processes.values() if p.runner.is_controller]
        assert deciding == [view.controller], "one decides, and it is the one that is named"
        assert set(view.nodes) == set(self.processes)
        assert {state.leader for state in view.shards.values()} <= set(view.nodes)
        assert len(view.shards) == SHARDS


async def cluster_of(*numbers: int, replicas: int = 1) -> Cluster:
    cluster = Cluster(replicas)
    await cluster.begin(*numbers)
    await cluster.check_all_is_well()
    return cluster


async def test_the_controller_killed_and_started_again_within_its_session_is_succeeded():
    cluster = await cluster_of(1, 2)
    assert (await cluster.store.read()).controller == 1
    cluster.start(1)
    for number in (2, 1, 2):
        await cluster.processes[number].read_and_act()
    await cluster.check_all_is_well()
    assert (await cluster.store.read()).controller_epoch == 2


async def test_the_controller_started_again_under_another_number_is_succeeded():
    cluster = await cluster_of(1, 2)
    del cluster.processes[1]
    cluster.start(3)
    await cluster.calm_down()
    await cluster.check_all_is_well()


@pytest.mark.parametrize("trouble", ["lost", "unanswered"])
async def test_a_campaign_that_is_not_answered_leaves_no_cluster_without_a_controller(trouble):
    cluster = Cluster()
    one = cluster.start(1)
    one.wire.troubles = deque(["none", "none", trouble])  # It joins, reads and campaigns.
    await one.read_and_act()
    assert not one.runner.is_controller
    for _ in range(2):
        await one.read_and_act()
    await cluster.check_all_is_well()
    assert (await cluster.store.read()).controller_epoch == 1


@pytest.mark.parametrize("trouble", ["lost", "unanswered"])
async def test_a_decision_that_is_not_answered_is_made_again(trouble):
    """Else the controller thinks that a shard has a leader, and nobody leads it."""
    cluster = await cluster_of(1, 2)
    gone = cluster.processes.pop(2)
    cluster.store.take_out(gone.session)
    one = cluster.processes[1]
    one.wire.troubles = deque(["none", *[trouble] * SHARDS])  # It reads, and writes.
    await one.read_and_act()
    one.wire.troubles.clear()
    for _ in range(2):
        await one.read_and_act()
    await cluster.check_all_is_well()


async def test_a_controller_that_stood_still_before_it_wrote_is_refused():
    cluster = await cluster_of(1, 2, 3)
    assert (await cluster.store.read()).controller == 1
    gone = cluster.processes.pop(3)
    cluster.store.take_out(gone.session)
    one, two = cluster.processes[1], cluster.processes[2]
    one.wire.troubles = deque(["none", "overtaken"])
    await one.read_and_act()
    view = await cluster.store.read()
    assert (view.controller, view.controller_epoch) == (2, 2)
    assert {state.leader for state in view.shards.values()} == {2}, "the later epoch's word counts"
    assert two.runner.is_controller
    assert not one.runner.is_controller
    await cluster.calm_down()
    await cluster.check_all_is_well()


async def test_without_anybody_who_decides_a_node_says_for_how_long():
    cluster = await cluster_of(1, 2)
    one, two = cluster.processes[1].runner, cluster.processes[2].runner
    before = one.undecided_s
    assert before >= 0
    cluster.processes[1].wire.troubles = deque(["lost"] * 9)
    for _ in range(9):
        await cluster.processes[1].read_and_act()
    assert not one.is_controller
    assert one.undecided_s > before, "it has decided nothing since"
    assert (await cluster.store.read()).controller == 1 != NOBODY
    assert two.undecided_s >= 0


async def test_a_leader_hears_which_of_its_followers_are_live():
    cluster = await cluster_of(1, 2, replicas=2)
    one, two = cluster.processes[1], cluster.processes.pop(2)
    led = {shard for shard, state in one.runner.view.shards.items() if state.leader == 1}
    assert led
    assert {shard: one.followers[shard] for shard in led} == dict.fromkeys(led, (2,))
    cluster.store.take_out(two.session)
    await one.read_and_act()
    assert {shard: one.followers[shard] for shard in led} == dict.fromkeys(led, ())
    await cluster.start(2).read_and_act()
    await one.read_and_act()
    assert {shard: one.followers[shard] for shard in led} == dict.fromkeys(led, (2,))


class AnyTrouble(RuleBasedStateMachine):
    """Random trouble: one node writes in an epoch, and at the end there is a controller."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = SimulatedLoop()
        self.cluster = Cluster()
        self.epoch = 0
        self.run(self.cluster.begin(1, 2))

    def run(self, work):
        return self.loop.run_until_complete(work)

    @rule(number=NUMBERS, troubles=st.lists(st.sampled_from(TROUBLES), max_size=6))
    def node_looks(self, number, troubles):
        process = self.cluster.processes.get(number)
        if process is not None:
            process.wire.troubles = deque(troubles)
            self.run(process.read_and_act())

    @rule(number=NUMBERS)
    def node_starts_or_is_killed_and_starts_again(self, number):
        async def start():
            self.cluster.start(number)

        self.run(start())

    @precondition(lambda self: len(self.cluster.processes) > 1)
    @rule(number=NUMBERS)
    def node_is_killed(self, number):
        if len(self.cluster.processes) > 1:
            self.cluster.processes.pop(number, None)

    @rule(number=NUMBERS)
    def session_ends(self, number):
        session = self.cluster.sessions().get(number)
        if session is not None:
            self.cluster.store.expire(session)

    @rule(number=NUMBERS)
    def session_ends_and_the_node_does_not_hear_of_it(self, number):
        session = self.cluster.sessions().get(number)
        if session is not None:
            self.cluster.store.take_out(session)

    @rule(number=NUMBERS)
    def node_thinks_that_its_session_has_ended(self, number):
        """The store has not answered for too long, and has not ended anything."""
        process = self.cluster.processes.get(number)
        if process is not None and process.has_joined:
            process.session.lost.set()

    @rule()
    def controller_key_is_deleted_by_hand(self):
        self.cluster.store.depose()

    @rule(number=st.integers(1, 9))
    def controller_key_is_left_by_a_dead_session(self, number):
        gone = Session(NodeInfo(number, "h", 1, "long gone"), 1.0, renewed_at=0.0)
        self.cluster.store.depose(left_behind=gone)

    @rule()
    def it_is_over(self):
        self.run(self.cluster.calm_down())
        self.run(self.cluster.check_all_is_well())

    @invariant()
    def the_epoch_never_falls(self):
        epoch = self.run(self.cluster.store.read()).controller_epoch
        assert epoch >= self.epoch
        self.epoch = epoch

    def teardown(self):
        self.it_is_over()
        self.loop.close()


TestAnyTrouble = AnyTrouble.TestCase
TestAnyTrouble.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)
