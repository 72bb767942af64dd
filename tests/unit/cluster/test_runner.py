"""Nodes of one cluster in one process: who leads what when nodes come, go and fall silent."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from coordinator.cluster import runner as runner_module
from coordinator.cluster.controller import MoveRequested
from coordinator.cluster.runner import ClusterRunner, LeadershipCallbacks, NotController
from coordinator.core.values.ids import ShardId
from coordinator.storage.coordination import NodeIdTaken, NodeInfo, ShardState, loop_time_s
from tests.integration.waiting import until
from tests.unit.storage.memory_coordination import MemoryCoordination

SHARDS = 8
pytestmark = pytest.mark.virtual_time


class Place:
    """A node's runner, and what it leads."""

    def __init__(self, coordination: MemoryCoordination, number: int, replicas: int) -> None:
        self.leads: dict[int, int] = {}
        self.follows: dict[int, tuple[int | None, int]] = {}
        self.reports: list[str] = []
        self.ends: list[str] = []
        self.history: list[tuple] = []
        self.runner = ClusterRunner(
            coordination,
            NodeInfo(number, "h", number, f"start of {number}"),
            [ShardId(n) for n in range(SHARDS)],
            LeadershipCallbacks(
                take=self.take,
                release=self.release,
                follow=self.follow,
                unfollow=self.unfollow,
                report=self.reports.append,
                end=self.ends.append,
            ),
            replicas=replicas,
        )

    def take(self, shard, leader_epoch):
        assert shard not in self.leads
        self.leads[shard] = leader_epoch
        self.history.append(("take", shard, leader_epoch))

    def release(self, shard):
        self.history.append(("release", shard, self.leads.pop(shard)))

    def follow(self, shard, leader, leader_epoch):
        assert shard not in self.leads
        self.follows[shard] = (None if leader is None else leader.node_id, leader_epoch)

    def unfollow(self, shard):
        del self.follows[shard]
        self.history.append(("unfollow", shard, 0))


@contextlib.asynccontextmanager
async def places(*numbers: int, replicas: int = 1):
    coordination = MemoryCoordination()
    some = [Place(coordination, number, replicas) for number in numbers]
    for place in some:
        await place.runner.start()
    try:
        yield coordination, some
    finally:
        for place in some:
            await place.runner.stop(0.1)


def all_led_once(*some: Place) -> bool:
    led = [shard for place in some for shard in place.leads]
    return sorted(led) == list(range(SHARDS))


@pytest.fixture(autouse=True)
def hasty(monkeypatch):
    monkeypatch.setattr(runner_module, "BALANCE_SOON_S", 0.1)


async def test_one_node_leads_everything():
    async with places(1) as (_, (one,)):
        await until(lambda: all_led_once(one))
        assert set(one.leads.values()) == {1}
        assert one.runner.may_answer()
        assert one.runner.view.leader_of(ShardId(3)).node_id == 1


async def test_nodes_that_come_get_their_share():
    async with places(1) as (coordination, (one,)):
        await until(lambda: all_led_once(one))
        two = Place(coordination, 2, 1)
        await two.runner.start()
        await until(lambda: len(one.leads) == len(two.leads) == SHARDS // 2)
        assert all_led_once(one, two)
        await two.runner.stop(1.0)


async def test_a_node_that_falls_silent_is_succeeded_in_a_later_epoch():
    async with places(1, 2, 3) as (coordination, some):
        await until(lambda: all(p.leads for p in some) and all_led_once(*some))
        (one, two, three), before = some, dict(some[0].leads)
        # Nothing of it is heard any more, and it hears nothing.
        for task in one.runner._tasks:
            task.cancel()
        coordination.expire(one.runner._session)
        await until(lambda: all_led_once(two, three))
        assert not one.runner.may_answer()
        for shard, leader_epoch in before.items():
            successor = two if shard in two.leads else three
            assert successor.leads[shard] > leader_epoch


async def test_a_node_that_stops_hands_its_shards_over_before_it_goes():
    async with places(1, 2) as (_, (one, two)):
        await until(lambda: one.leads and two.leads and all_led_once(one, two))
        await one.runner.stop(5.0)
        await until(lambda: all_led_once(two))
        assert not one.leads
        # It released each shard because it was led elsewhere, while it was still there.
        assert 1 not in (await two.runner._coordination.read()).nodes


async def test_a_session_that_ends_is_begun_again():
    async with places(1, 2) as (coordination, (one, two)):
        await until(lambda: one.leads and two.leads and all_led_once(one, two))
        coordination.expire(one.runner._session)
        await until(lambda: one.runner.may_answer() and one.leads and all_led_once(one, two))
        assert any("session has ended" in report for report in one.reports)


class TakenStore(MemoryCoordination):
    """A store in which another process may have the node's id."""

    is_taken = False

    async def join(self, node):
        if self.is_taken:
            raise NodeIdTaken(node.node_id, " (incarnation other)")
        return await super().join(node)


async def test_who_finds_its_node_id_taken_leads_nothing_and_says_that_it_ends():
    store = TakenStore()
    one = Place(store, 1, 1)
    await one.runner.start()
    await until(lambda: all_led_once(one))
    store.is_taken = True
    store.expire(one.runner._session)
    await until(lambda: one.ends)
    assert "node id 1 is taken by another process (incarnation other)" in one.ends[0]
    assert not one.leads
    assert not one.runner.may_answer()
    await one.runner.stop(0.1)
    assert len(one.ends) == 1


async def test_the_controller_that_goes_is_succeeded_and_nothing_else_moves():
    async with places(1, 2) as (coordination, (one, two)):
        await until(lambda: one.leads and two.leads and all_led_once(one, two))
        leads = dict(one.leads), dict(two.leads)
        view = await coordination.read()
        chief = one if view.controller == 1 else two
        await coordination.resign(chief.runner._session)
        await until(lambda: max(p.runner.view.controller_epoch for p in (one, two)) == 2)
        await asyncio.sleep(0.3)
        assert (one.leads, two.leads) == leads


async def test_a_controller_whose_view_is_old_gives_way_to_what_is_written():
    async with places(1) as (coordination, (one,)):
        await until(lambda: all_led_once(one))
        state = (await coordination.read()).shards[ShardId(0)]
        # Somebody repairs by hand, under the same controller epoch.
        await coordination.write(
            1, ShardState(ShardId(0), 1, state.leader_epoch + 5, (1,), (1,), state.version)
        )
        two = Place(coordination, 2, 1)
        await two.runner.start()
        await until(lambda: two.leads and all_led_once(one, two))
        assert (one.leads | two.leads)[0] >= state.leader_epoch + 5
        await two.runner.stop(1.0)


async def test_a_follower_in_sync_takes_over_and_others_do_not():
    async with places(1, 2, 3, replicas=2) as (_, some):
        by_number = {place.runner.node.node_id: place for place in some}
        await until(lambda: sum(len(place.follows) for place in some) == SHARDS)
        view = some[0].runner.view
        for shard, state in view.shards.items():
            by_number[state.leader].runner.keep_up(shard, state.replicas)
        await until(lambda: all(len(s.in_sync) == 2 for s in some[0].runner.view.shards.values()))
        assert some[0].runner.view.shards.keys() == view.shards.keys()
        gone, successors = by_number.pop(1), dict(gone_shards(view))
        await gone.runner.stop(5)
        for shard, successor in successors.items():
            assert shard in by_number[successor].leads, "the one that was in sync leads now"
        assert not gone.follows


def gone_shards(view):
    """Shards that node 1 leads, each with its other replica."""
    for shard, state in view.shards.items():
        if state.leader == 1:
            yield shard, next(node for node in state.replicas if node != 1)


async def test_operators_ask_the_controller_and_nobody_else():
    async with places(1, 2) as (_, some):
        await until(lambda: len(some[0].leads) == len(some[1].leads) == SHARDS // 2)
        controller, other = sorted(some, key=lambda place: not place.runner.is_controller)
        shard = ShardId(next(iter(controller.leads)))
        with pytest.raises(NotController):
            await other.runner.decide(MoveRequested(shard, (other.runner.node.node_id,)))
        await controller.runner.decide(MoveRequested(shard, (other.runner.node.node_id,)))
        await until(lambda: shard in other.leads and shard not in controller.leads)


class SlowStore(MemoryCoordination):
    """A store whose reads may be held back, and which counts the states of each write."""

    def __init__(self) -> None:
        super().__init__()
        self.may_read = asyncio.Event()
        self.may_read.set()
        self.writes: list[int] = []

    async def read(self):
        await self.may_read.wait()
        return await super().read()

    async def write(self, controller_epoch, *states):
        self.writes.append(len(states))
        return await super().write(controller_epoch, *states)


@pytest.fixture
async def lone_controller():
    """A slow store, and a node that leads all shards in it."""
    store = SlowStore()
    one = Place(store, 1, 1)
    await one.runner.start()
    await until(lambda: all_led_once(one))
    yield store, one.runner
    store.may_read.set()
    await one.runner.stop(0.1)


async def test_a_request_does_not_wait_for_the_look_that_is_under_way(lone_controller):
    store, runner = lone_controller
    store.may_read.clear()
    runner._wake.set()
    async with asyncio.timeout(1):
        await runner.decide(MoveRequested(ShardId(0), (1, 2)))
    assert store._shards[ShardId(0)].replicas == (1, 2)


async def test_the_events_of_a_request_are_written_at_once(lone_controller):
    store, runner = lone_controller
    store.writes.clear()
    await runner.decide(*(MoveRequested(ShardId(n), (1, 2)) for n in range(SHARDS)))
    assert store.writes[0] == SHARDS


async def test_what_nodes_report_is_written_at_once(lone_controller):
    store, runner = lone_controller
    assert (await store.join(NodeInfo(2, "h", 2, "start of 2"))).node.node_id == 2
    await runner.decide(*(MoveRequested(ShardId(n), (1, 2)) for n in range(SHARDS)))
    store.writes.clear()
    for n in range(SHARDS):
        runner.keep_up(ShardId(n), (1, 2))
    await until(lambda: all(state.in_sync == (1, 2) for state in store._shards.values()))
    assert store.writes[0] == SHARDS


async def test_a_drained_node_leads_nothing_until_it_is_to_lead_again():
    async with places(1, 2) as (_, some):
        await until(lambda: len(some[0].leads) == len(some[1].leads) == SHARDS // 2)
        some[1].runner.drain()
        await until(lambda: len(some[0].leads) == SHARDS and not some[1].leads)
        some[1].runner.drain(undo=True)
        await until(lambda: len(some[0].leads) == len(some[1].leads) == SHARDS // 2)


async def test_who_has_not_renewed_its_session_for_most_of_it_answers_nothing():
    """Though nobody has told it that the session has ended: others may take over soon."""
    async with places(1) as (_, (place,)):
        await until(lambda: len(place.leads) == SHARDS)
        session = place.runner._session
        session.timeout_s = 1_000.0
        for silent_s, may in ((0.0, True), (790.0, True), (810.0, False), (2_000.0, False)):
            session.renewed_at = loop_time_s() - silent_s
            assert place.runner.may_answer() is may
        session.renewed_at = loop_time_s() - 810.0
        place.runner._wake.set()
        await until(lambda: not place.leads)


async def test_nodes_forget_what_they_have_of_a_store_that_went_back():
    async with places(1, 2, replicas=2) as (coordination, (one, two)):
        await until(
            lambda: all_led_once(one, two) and len(one.follows) + len(two.follows) == SHARDS
        )
        before = {**one.leads, **two.leads}
        for place in (one, two):
            place.history.clear()
        coordination.go_back(raised=1_000)
        await until(
            lambda: all_led_once(one, two) and min({**one.leads, **two.leads}.values()) > 1_000
        )
        for place in (one, two):
            released = [shard for what, shard, _ in place.history if what == "release"]
            unfollowed = [shard for what, shard, _ in place.history if what == "unfollow"]
            assert sorted(released + unfollowed) == list(range(SHARDS))
        assert all(
            epoch > before[shard] + 1_000 for shard, epoch in {**one.leads, **two.leads}.items()
        )
