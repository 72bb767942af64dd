"""Workers in a virtual group: handlers on the loop and in threads, under faults."""

import asyncio
import contextvars

import pytest

from coordinator.client import BlockingPartition, Partition, Worker
from coordinator.client.worker.running import AT_EXIT
from coordinator.testing.threads import ThreadHangs
from tests.patience import HANG_S

REQUEST = contextvars.ContextVar("request", default="")


def made(handler, **settings):
    """A worker with one handler; four partitions."""
    worker = Worker("anywhere:1", "billing", topics={"invoices": 4}, **settings)
    worker.handler(handler)
    return worker


async def once_a_second(p: Partition) -> None:
    for offset in range(p.position, 10**6):
        await asyncio.sleep(1)
        await p.commit(offset + 1)


def three_rows(p: BlockingPartition) -> None:
    """Commit three rows, then return; called again after a while."""
    for offset in range(p.position, p.position + 3):
        p.commit(offset + 1)


@pytest.fixture(params=[once_a_second, three_rows], ids=["async", "thread"])
def two(request, virtual_group):
    group, worker = virtual_group(), made(request.param, idle_ms=4_000)
    return group, group.start(worker, name="a"), group.start(worker, name="b")


def names(group):
    return sorted(set(group.owners().values()))


def stuck(group, before):
    return {group.owners()[p] for p, offset in group.committed().items() if offset == before[p]}


async def test_a_killed_worker_is_replaced_and_comes_back(two, virtual_group):
    group, _, b = two
    await group.advance(20)
    assert names(group) == ["a", "b"]
    assert b.worker.state.phase == "stable"
    before = group.committed()
    b.kill()
    await group.advance(60)
    assert names(group) == ["a"]
    assert stuck(group, before) == set()
    b.start()
    await group.advance(20)
    assert names(group) == ["a", "b"]


async def test_one_that_is_cut_off_loses_its_partitions(two, virtual_group):
    group, a, _ = two
    await group.advance(20)
    a.cut()
    await group.advance(60)
    assert names(group) == ["b"]
    a.mend()
    await group.advance(60)
    assert names(group) == ["a", "b"]


async def test_paused_handlers_keep_their_partitions_and_go_on_later(two, virtual_group):
    group, a, _ = two
    await group.advance(20)
    a.pause(heartbeats=True)
    await group.advance(2)  # Commits that were under way arrive.
    before = group.committed()
    await group.advance(60)
    assert names(group) == ["a", "b"]
    assert stuck(group, before) == {"a"}
    a.resume()
    await group.advance(10)
    assert stuck(group, before) == set()


async def test_a_paused_worker_loses_its_partitions(two, virtual_group):
    group, a, _ = two
    await group.advance(20)
    a.pause()
    await group.advance(60)
    assert names(group) == ["b"]


async def test_a_stopped_worker_leaves_at_once(two, virtual_group):
    group, a, _ = two
    await group.advance(20)
    await a.stop()
    await group.advance(4)
    assert names(group) == ["b"]
    assert a.worker.state.phase == "stopped"


async def test_workers_outlive_the_coordinator(two, virtual_group):
    group, _, _ = two
    await group.advance(20)
    group.coordinator.kill()
    await group.advance(10)
    group.coordinator.start()
    await group.advance(60)
    before = group.committed()
    await group.advance(10)
    assert stuck(group, before) == set()


async def test_an_assertion_in_a_handler_fails_the_test(virtual_group):
    group = virtual_group()

    async def asserts(p: Partition) -> None:
        assert p.position == 3, "began elsewhere"

    def asserts_in_thread(p: BlockingPartition) -> None:
        assert p.position == 3, "began elsewhere"

    for handler in (asserts, asserts_in_thread):
        process = group.start(made(handler))
        with pytest.raises(ExceptionGroup) as raised:
            await group.advance(20)
        assert raised.group_contains(AssertionError, match="began elsewhere")
        process.kill()
        await group.advance(60)


async def test_other_errors_are_left_to_the_policy(virtual_group):
    group = virtual_group()
    calls = []

    async def fails_once(p: Partition) -> None:
        calls.append(p.number)
        if calls.count(p.number) == 1:
            raise OSError("no connection")
        await p.commit(5)
        p.done()

    group.start(made(fails_once))
    await group.advance(20)
    assert group.committed() == {("invoices", number): 5 for number in range(4)}
    assert "failed: OSError('no connection')" in group.transcript()


async def test_an_error_that_stops_the_worker_comes_out_of_advance(virtual_group):
    group = virtual_group()

    async def fails(p: Partition) -> None:
        raise OSError("no connection")

    process = group.start(made(fails, on_error="stop", concurrency=1))
    with pytest.raises((OSError, ExceptionGroup)):
        await group.advance(20)
    assert not process.is_running


async def test_functions_that_make_or_serve_workers_are_started_too(virtual_group):
    group = virtual_group()

    async def serve():
        await made(once_a_second).serve()

    group.start(made, once_a_second, name="made")
    serving = group.start(serve, name="serving")
    await group.advance(20)
    assert names(group) == ["made", "serving"]
    await serving.stop()
    await group.advance(4)
    assert names(group) == ["made"]


async def test_a_handler_that_never_returns_is_named(virtual_group):
    gate = asyncio.Event()  # Only to have the thread wait for something that ends in the end.

    def hangs(p: BlockingPartition) -> None:
        while not gate.is_set():
            pass

    group = virtual_group(patience_s=0.05)
    group.start(made(hangs))
    with pytest.raises(ThreadHangs, match=r"(?s)billing invoices\[\d\] handler.*in hangs"):
        await group.advance(20)
    gate.set()
    group.loop.threads.patience_s = HANG_S


async def test_handlers_have_the_contextvars_of_whoever_starts_the_worker(virtual_group):
    group, seen = virtual_group(), set()

    async def look(p: Partition) -> None:
        seen.add(REQUEST.get())
        p.done()

    async def serve():
        REQUEST.set("mine")
        await made(look).serve()

    group.start(serve)
    await group.advance(10)
    assert seen == {"mine"}


async def test_a_copy_commits_by_way_of_the_worker_that_was_copied(virtual_group):
    group = virtual_group()
    worker = Worker("anywhere:1", "billing", topics={"invoices": 2})
    held = {}

    @worker.handler
    async def both(p: Partition) -> None:
        held[p.number] = p
        await asyncio.sleep(1)
        if p.number == 0:
            await worker.commit({held[0]: 7, held[1]: 8}, atomic=True)
        p.done()

    group.start(worker)
    await group.advance(20)
    assert group.committed() == {("invoices", 0): 7, ("invoices", 1): 8}
    assert worker.state.phase == "new"


async def test_partitions_of_two_workers_are_not_committed_together(virtual_group):
    group, held = virtual_group(), []

    async def keep(p: Partition) -> None:
        held.append(p)
        await asyncio.sleep(10**6)

    first = group.start(made(keep))
    group.start(made(keep))
    await group.advance(20)
    with pytest.raises(TypeError, match="a running worker"):
        await first.worker.commit(dict.fromkeys(held, 1))


async def test_the_interpreter_does_not_wait_for_workers_that_were_killed(virtual_group):
    group = virtual_group()
    process = group.start(made(once_a_second))
    await group.advance(20)
    assert process.worker._body not in AT_EXIT._bodies


async def test_handlers_that_run_at_the_end_of_a_test_are_drained(virtual_group):
    group, ended = virtual_group(), []

    async def works(p: Partition) -> None:
        try:
            await once_a_second(p)
        finally:
            ended.append(p.number)

    group.start(made(works))
    await group.advance(20)
    await group.close()
    assert sorted(ended) == [0, 1, 2, 3]
