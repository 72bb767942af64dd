"""The controller's decisions, event by event, and what holds after any of them."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from coordinator.cluster.controller import (
    BalanceTick,
    Controller,
    ElectRequested,
    InSyncChanged,
    MoveRequested,
    NodesChanged,
    ShutdownRequested,
)
from coordinator.core.values.ids import ShardId
from coordinator.storage.coordination import NOBODY, ShardState

S0 = ShardId(0)


def nodes(*live: int) -> NodesChanged:
    return NodesChanged(frozenset(live))


def of(*states: ShardState, live=(0, 1, 2), **more) -> Controller:
    controller = Controller(states, **more)
    controller.live = frozenset(live)
    return controller


def shard(leader, in_sync, replicas, leader_epoch=5) -> ShardState:
    return ShardState(S0, leader, leader_epoch, tuple(in_sync), tuple(replicas))


def test_a_new_store_is_shared_out_evenly():
    controller = Controller([ShardState(ShardId(n)) for n in range(16)])
    states = controller.step(nodes(0, 1, 2, 3))
    assert len(states) == 16
    assert Counter(state.leader for state in states) == {0: 4, 1: 4, 2: 4, 3: 4}
    for state in states:
        assert (state.leader, state.leader_epoch) == (state.replicas[0], 1)
        assert state.in_sync == (state.leader,)
        assert len(state.replicas) == 2


def test_the_worked_example():
    """Replicas [1, 2, 0], in sync [2, 0], node 1 leads and goes: 2 leads."""
    controller = of(shard(1, [1, 2, 0], [1, 2, 0]))
    (state,) = controller.step(nodes(0, 2))
    assert (state.leader, state.in_sync, state.leader_epoch) == (2, (2, 0), 6)


def test_a_standby_that_goes_costs_no_election():
    controller = of(shard(1, [1, 2], [1, 2]), factor=2, live=(1, 2))
    (state,) = controller.step(nodes(1))
    assert (state.leader, state.in_sync, state.leader_epoch) == (1, (1,), 5)


def test_with_all_replicas_gone_another_node_loads_the_shard():
    controller = of(shard(1, [1], [1]), factor=1)
    (state,) = controller.step(nodes(0, 2))
    assert (state.leader, state.in_sync, state.leader_epoch) == (0, (0,), 6)


def test_without_nodes_nobody_leads_and_the_first_to_come_does():
    controller = of(shard(1, [1, 2], [1, 2]))
    (state,) = controller.step(nodes())
    assert (state.leader, state.leader_epoch) == (NOBODY, 6)
    assert state.in_sync == (1, 2)
    (state,) = controller.step(nodes(2))
    assert (state.leader, state.in_sync, state.leader_epoch) == (2, (2,), 7)


def test_a_node_that_stops_hands_its_shards_over_first():
    controller = of(shard(1, [1, 2], [1, 2]))
    (state,) = controller.step(ShutdownRequested(1))
    assert (state.leader, state.leader_epoch) == (2, 6)
    assert controller.led_by(1) == []
    controller.step(nodes(0, 2))
    assert controller.shards[S0].leader == 2


def test_the_last_node_keeps_its_shards_until_it_is_gone():
    controller = of(shard(1, [1], [1]), live=(1,))
    assert controller.step(ShutdownRequested(1)) == []
    assert controller.led_by(1) == [S0]


def test_who_is_in_sync_is_said_by_the_leader_of_the_day():
    controller = of(shard(1, [1], [1, 2]))
    assert controller.step(InSyncChanged(S0, 4, frozenset({1, 2}))) == []
    (state,) = controller.step(InSyncChanged(S0, 5, frozenset({1, 2, 9})))
    assert (state.in_sync, state.leader_epoch) == ((1, 2), 5)


def test_a_moved_shard_changes_hands_once_its_new_replica_is_in_sync():
    controller = of(shard(1, [1], [1]))
    (state,) = controller.step(MoveRequested(S0, (2,)))
    assert (state.leader, state.replicas, state.leader_epoch) == (1, (2,), 5)
    (state,) = controller.step(InSyncChanged(S0, 5, frozenset({1, 2})))
    assert (state.leader, state.in_sync, state.leader_epoch) == (2, (2,), 6)


def test_the_preferred_leader_is_asked_for():
    controller = of(shard(2, [1, 2], [1, 2]))
    (state,) = controller.step(ElectRequested(S0))
    assert (state.leader, state.leader_epoch) == (1, 6)
    assert controller.step(ElectRequested(S0)) == []
    behind = of(shard(2, [2], [1, 2]))
    assert behind.step(ElectRequested(S0)) == []


def many(count: int, astray: int) -> list[ShardState]:
    """Evenly placed; the first ones are led by who is not preferred."""
    states = []
    for n in range(count):
        replicas = (0, 1) if n % 2 else (1, 0)
        states.append(ShardState(ShardId(n), replicas[n < astray], 1, (0, 1), replicas))
    return states


def test_preferred_leaders_come_back_when_too_many_are_astray_and_a_few_at_a_time():
    assert of(*many(20, 2), live=(0, 1)).step(BalanceTick()) == []
    controller = of(*many(20, 10), live=(0, 1), moves_at_once=4)
    assert [s.shard for s in controller.step(BalanceTick())] == [0, 1, 2, 3]
    assert [s.shard for s in controller.step(BalanceTick())] == [4, 5, 6, 7]
    assert controller.step(BalanceTick()) == []  # The rest is within bounds.


def test_a_node_that_comes_gets_its_share_a_few_shards_at_a_time():
    controller = Controller(
        [ShardState(ShardId(n)) for n in range(12)], factor=1, standbys=False, moves_at_once=2
    )
    controller.step(nodes(0, 1))
    controller.step(nodes(0, 1, 2))
    assert controller.led_by(2) == []
    moved = [len(controller.step(BalanceTick())) for _ in range(4)]
    assert moved == [2, 2, 0, 0]
    assert [len(controller.led_by(n)) for n in (0, 1, 2)] == [4, 4, 4]


class AnyEvents(RuleBasedStateMachine):
    """Nodes come, go and stop; leaders report; operators move: the laws hold."""

    standbys = True

    def __init__(self) -> None:
        super().__init__()
        states = [ShardState(ShardId(n)) for n in range(6)]
        self.controller = Controller(states, standbys=self.standbys)

    def step(self, event) -> None:
        before = dict(self.controller.shards)
        changed = self.controller.step(event)
        for state in changed:
            old = before[state.shard]
            assert state != old
            # A new leader has a new epoch, and an old leader keeps its own.
            assert (state.leader != old.leader) == (state.leader_epoch == old.leader_epoch + 1)
            assert state.leader_epoch in (old.leader_epoch, old.leader_epoch + 1)

    @rule(live=st.frozensets(st.integers(0, 4)))
    def nodes_change(self, live):
        self.step(NodesChanged(live))

    @rule(node=st.integers(0, 4))
    def node_stops(self, node):
        if node in self.controller.live:
            self.step(ShutdownRequested(node))

    @rule(number=st.integers(0, 5), late=st.booleans(), in_sync=st.frozensets(st.integers(0, 4)))
    def leader_reports(self, number, late, in_sync):
        leader_epoch = self.controller.shards[ShardId(number)].leader_epoch - late
        self.step(InSyncChanged(ShardId(number), leader_epoch, in_sync))

    @precondition(lambda self: self.controller.live)
    @rule(number=st.integers(0, 5), data=st.data())
    def operator_moves(self, number, data):
        live = sorted(self.controller.live)
        replicas = data.draw(
            st.lists(st.sampled_from(live), min_size=1, max_size=3, unique=True), "replicas"
        )
        self.step(MoveRequested(ShardId(number), tuple(replicas)))

    @rule(number=st.integers(0, 5))
    def operator_elects(self, number):
        self.step(ElectRequested(ShardId(number)))

    @rule()
    def time_passes(self):
        self.step(BalanceTick())

    @invariant()
    def whoever_leads_is_live_and_in_sync(self):
        for state in self.controller.shards.values():
            if state.leader != NOBODY:
                assert state.leader in self.controller.live
                assert state.leader in state.in_sync
                assert set(state.in_sync) <= self.controller.live

    @invariant()
    def somebody_leads_if_anybody_is_there(self):
        if self.controller.live - self.controller.stopping:
            for state in self.controller.shards.values():
                assert state.leader != NOBODY


class AnyEventsWithoutStandbys(AnyEvents):
    standbys = False


TestAnyEvents = AnyEvents.TestCase
TestAnyEventsWithoutStandbys = AnyEventsWithoutStandbys.TestCase
for case in (TestAnyEvents, TestAnyEventsWithoutStandbys):
    case.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)


@pytest.mark.parametrize("factor", [1, 3])
def test_the_factor_is_what_was_asked_for(factor):
    controller = Controller([ShardState(ShardId(n)) for n in range(4)], factor=factor)
    for state in controller.step(nodes(0, 1, 2, 3)):
        assert len(state.replicas) == factor
