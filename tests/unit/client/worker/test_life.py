"""Starting and stopping: serve, async with, stop, cancellation, a running loop, grace."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.client import BlockingPartition, FatalError, Partition, PartitionRevoked, Worker
from tests.unit.client.worker.kit import Town

pytestmark = pytest.mark.virtual_time


def members(town: Town) -> int:
    return len(town.coordinator.shard.machine.groups["g"].members)


def committing(worker: Worker, log: list, *, every_s: float = 1.0) -> None:
    """A handler that commits again and again, and never looks at `revoking`."""

    @worker.handler
    async def handle(p: Partition) -> None:
        try:
            while True:
                await asyncio.sleep(every_s)
                await p.commit(p.position + 1)
        finally:
            log.append((p.number, p.position))


async def test_stop_lets_each_handler_reach_its_next_commit_and_leaves():
    town, ended = Town(2), []
    worker = town.worker()
    committing(worker, ended)
    serving = town.serve(worker)
    await town.until(lambda: town.stored(0) == 3)
    worker.stop()
    worker.stop("again")
    await serving
    assert sorted(ended) == [(0, 4), (1, 4)]
    assert (town.stored(0), town.stored(1)) == (4, 4)
    assert members(town) == 0
    assert worker.state.phase == "stopped"
    assert worker.state.stopping_because == "stopped"


async def test_a_worker_is_shown_with_its_group_state_and_partitions():
    town = Town(3)
    worker = town.worker()
    committing(worker, [])
    assert repr(worker) == "<Worker group='g' state=new>"
    serving = town.serve(worker)
    await town.until(lambda: town.stored(0) == 1)
    assert repr(worker) == "<Worker group='g' state=stable partitions=t-0…2>"
    worker.stop("enough")
    await asyncio.sleep(0)
    assert repr(worker).startswith("<Worker group='g' state=draining partitions=t-0…2 ")
    await serving
    assert repr(worker) == "<Worker group='g' state=stopped because='enough'>"


async def test_a_worker_may_be_started_again():
    town, ended = Town(1), []
    worker = town.worker()
    committing(worker, ended)
    for _ in range(2):
        serving = town.serve(worker)
        begin = town.stored()
        await town.until(lambda begin=begin: town.stored() >= begin + 2)
        worker.stop()
        await serving
    assert len(ended) == 2


async def test_async_with_stops_at_its_end():
    town, ended = Town(1), []
    worker = town.worker()
    committing(worker, ended)
    async with worker as entered:
        assert entered is worker
        await town.until(lambda: town.stored() == 2)
    assert ended == [(0, 3)]
    assert members(town) == 0


async def test_cancelling_serve_leaves_before_the_cancellation_goes_on():
    town, ended = Town(1), []
    worker = town.worker()
    committing(worker, ended)
    serving = town.serve(worker)
    await town.until(lambda: town.stored() == 2)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert ended == [(0, 3)]
    assert members(town) == 0
    assert worker.state.phase == "stopped"


async def test_a_second_cancellation_cancels_the_handlers():
    town, ended = Town(1), []
    worker = town.worker()
    committing(worker, ended, every_s=10.0)
    serving = town.serve(worker)
    await town.until(lambda: worker.state.counts["runs"])
    await asyncio.sleep(5)
    serving.cancel()
    await asyncio.sleep(0.1)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert town.loop.time() < 9
    assert ended == [(0, 0)]
    assert members(town) == 0


async def test_handlers_are_cancelled_when_the_grace_is_over():
    town, ended = Town(1), []
    worker = town.worker(grace_ms=3_000)
    committing(worker, ended, every_s=100.0)
    serving = town.serve(worker)
    await town.until(lambda: worker.state.counts["runs"])
    begun = town.loop.time()
    worker.stop()
    await serving
    assert 3 <= town.loop.time() - begun < 3.5
    assert ended == [(0, 0)]


async def test_a_thread_that_swallows_its_revocation_does_not_hold_up_the_stop_for_ever():
    town = Town(1)
    worker = town.worker(grace_ms=3_000)
    raised = []

    @worker.handler
    def handle(p: BlockingPartition) -> None:
        for _ in range(20):
            worker.environment.sleep(1)
            try:
                p.commit(p.position + 1)
            except PartitionRevoked as error:
                raised.append(str(error))

    serving = town.serve(worker)
    await town.until(lambda: town.stored() == 2)
    begun = town.loop.time()
    worker.stop()
    await serving
    assert town.loop.time() - begun < 4
    assert "the offset is stored" in raised[0]
    assert worker.state.left_over[0].is_thread
    await town.until(lambda: len(raised) >= 15)
    assert "nothing was sent" in raised[-1]
    assert town.stored() <= 6


async def test_a_handler_that_hands_over_by_hand_goes_on_until_the_deadline():
    town = Town(1)
    worker = town.worker()
    deadlines = []

    @worker.handler(drain="manual")
    async def handle(p: Partition) -> None:
        await p.revoking.wait()
        assert p.revoking.is_set()
        deadlines.append(p.revoking.deadline - town.loop.time())
        for offset in (1, 2, 3):
            await asyncio.sleep(1)
            await p.commit(offset)

    serving = town.serve(worker)
    await town.until(lambda: worker.state.counts["runs"])
    worker.stop()
    await serving
    assert town.stored() == 3
    assert 19 < deadlines[0] <= 20


async def test_run_is_refused_in_a_running_loop_and_names_serve():
    worker = Town().worker()
    with pytest.raises(RuntimeError, match=r"await worker.serve\(\)"):
        worker.run()


async def test_a_worker_that_runs_is_not_started_twice():
    town = Town(1)
    worker = town.worker()
    committing(worker, [])
    async with town.serving(worker):
        await asyncio.sleep(1)
        with pytest.raises(RuntimeError, match="runs already"):
            await worker.serve()


async def test_stop_may_come_from_a_handler():
    town = Town(1)
    worker = town.worker()

    @worker.handler
    async def handle(p: Partition) -> None:
        worker.stop("the handler has seen enough")

    await worker.serve()
    assert worker.state.stopping_because == "the handler has seen enough"


async def test_a_worker_that_never_reaches_a_coordinator_is_stopped_at_once():
    town = Town(1)
    worker = town.worker()
    committing(worker, [])
    worker.environment.is_cut = True
    serving = town.serve(worker)
    await asyncio.sleep(3)
    assert worker.state.phase == "connecting"
    worker.stop()
    await serving
    assert town.loop.time() < 6


async def test_what_the_group_refuses_is_raised():
    town = Town(1)
    worker = town.worker(session_timeout_ms=7_200_000)
    committing(worker, [])
    with pytest.raises(FatalError, match="INVALID_SESSION_TIMEOUT"):
        await worker.serve()


async def test_a_default_worker_follows_a_group_of_range():
    town = Town(2)
    old = town.worker("old", assignors=["range"])
    new = town.worker("new")
    committing(old, [])
    committing(new, [])
    serving = [town.serve(old)]
    await town.until(lambda: old.state.partitions)
    serving.append(town.serve(new))
    await town.until(lambda: len(new.state.partitions) == 1)
    assert len(old.state.partitions) == 1
    await town.stop(old, new)
    await asyncio.gather(*serving)


async def test_partitions_that_end_at_one_time_cost_one_join():
    town = Town(30)
    one, two = town.worker("one", idle_ms=600_000), town.worker("two")
    committing(two, [])

    @one.handler
    async def handle(p: Partition) -> None: ...

    serving = [town.serve(one)]
    await town.until(lambda: one.state.counts["runs"] == 30)
    serving.append(town.serve(two))
    before = town.calls["one", "JoinGroupRequest"]
    await town.until(lambda: len(two.state.partitions) == 15)
    assert town.calls["one", "JoinGroupRequest"] - before == 2
    await town.stop(one, two)
    await asyncio.gather(*serving)


async def test_a_bug_ends_the_worker_and_is_raised():
    town = Town(1)
    worker = town.worker()

    def start_thread(work, name):
        raise OSError("not meant to be raised there")

    worker.environment.start_thread = start_thread

    @worker.handler
    def handle(p: BlockingPartition) -> None: ...

    with pytest.raises(OSError, match="not meant"):
        async with asyncio.timeout(600):
            await worker.serve()
    assert members(town) == 0
