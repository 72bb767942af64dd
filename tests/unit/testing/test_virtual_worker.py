"""Workers in a virtual group: what their handlers raise, how they are started and end."""

import asyncio
import contextvars

import pytest

from coordinator.client import BlockingPartition, Partition, Worker
from coordinator.client.worker.environment import AT_EXIT
from coordinator.testing.threads import ThreadHangs
from tests.kit.patience import HANG_S
from tests.unit.testing.programs import made, once_a_second

REQUEST = contextvars.ContextVar("request", default="")


def names(group):
    return sorted(set(group.owners().values()))


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


async def test_owners_of_a_session_group_are_shown_and_a_killed_one_for_its_lease(virtual_group):
    group = virtual_group()
    for name in "ab":
        group.start(made(once_a_second, protocol="session"), name=name)
    await group.advance(30)
    assert sorted(group.owners().values()) == list("aabb")
    group.processes[1].kill()
    await group.advance(5)
    assert names(group) == ["a", "b"]
    await group.advance(10)
    assert names(group) == ["a"]


async def test_other_errors_are_left_to_the_policy(virtual_group):
    group = virtual_group()
    calls = []

    async def fails_once(p: Partition) -> None:
        calls.append(p.number)
        if calls.count(p.number) == 1:
            raise OSError("no connection")
        await p.commit(5)
        await p.done()

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


async def test_a_program_that_calls_run_is_started_and_stopped_as_it_is(virtual_group):
    group, ended = virtual_group(), []

    def main():
        made(once_a_second).run()
        ended.append(group.now_s)

    program = group.start(main)
    await group.advance(20)
    assert names(group) == [program.name]
    await program.stop()
    assert ended == [pytest.approx(21, abs=1)]
    assert program.error is None


async def test_an_error_that_stops_the_worker_is_raised_once(virtual_group):
    group = virtual_group()

    async def fails(p: Partition) -> None:
        pytest.fail("in the handler")

    group.start(made(fails, concurrency=1))
    with pytest.raises(pytest.fail.Exception, match="in the handler"):
        await group.advance(20)


async def test_a_handler_that_never_returns_is_named(virtual_group):
    gate = asyncio.Event()  # Only to have the thread wait for something that ends in the end.

    def hangs(p: BlockingPartition) -> None:
        while not gate.is_set():
            pass

    group = virtual_group(patience_s=0.05)
    group.start(made(hangs))
    with pytest.raises(ThreadHangs, match=r"(?s)billing invoices-\d handler.*in hangs"):
        await group.advance(20)
    gate.set()
    group.loop.threads.patience_s = HANG_S


async def test_handlers_have_the_contextvars_of_whoever_starts_the_worker(virtual_group):
    group, seen = virtual_group(), set()

    async def look(p: Partition) -> None:
        seen.add(REQUEST.get())
        await p.done()

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
        await p.done()

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
    assert process.worker._driver not in AT_EXIT._runs


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
