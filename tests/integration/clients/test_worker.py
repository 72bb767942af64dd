"""Workers with real loops, threads and sockets: what blocks, and what does not end."""

from __future__ import annotations

import asyncio
import logging
import threading
import time

import pytest

from coordinator.assignors import TopicPartition
from coordinator.client import BlockingPartition, Partition, PartitionRevoked, Worker
from tests.integration.waiting import wait_until
from tests.kit.serving import Process

T0 = TopicPartition("t", 0)
FAST = {
    "session_timeout_ms": 1_500,
    "heartbeat_interval_ms": 200,
    "rebalance_timeout_ms": 2_000,
    "idle_ms": 100,
}


@pytest.fixture(scope="module")
def node():
    flags = ("--group-initial-rebalance-delay-ms", "20", "--group-min-session-timeout-ms", "100")
    with Process(*flags) as process:
        yield process


@pytest.fixture
def start(node, request):
    """Start workers in threads of their own; they are stopped at the end."""
    running = []

    def start(name: str, handler, partitions: int = 2, **settings) -> Worker:
        worker = Worker(
            node.address,
            request.node.name,
            topics={"t": partitions},
            client_id=name,
            **FAST | settings,
        )
        worker.handler(handler)
        thread = threading.Thread(target=worker.run, name=name)
        thread.start()
        running.append((worker, thread))
        return worker

    yield start
    for worker, _ in running:
        worker.stop(grace_ms=0)
    for _, thread in running:
        thread.join()


def lines(caplog, *words: str) -> list[str]:
    return [r.getMessage() for r in caplog.records if all(w in r.getMessage() for w in words)]


def test_a_handler_that_blocks_its_loop_is_named_with_its_stack_and_costs_no_heartbeat(
    start, caplog
):
    """It blocks for three sessions. Its sibling on the loop stands still; nothing is lost."""
    caplog.set_level(logging.INFO, "coordinator.client")
    ended = threading.Event()

    async def handle(p: Partition) -> None:
        if p.number == 0 and not ended.is_set():
            time.sleep(4.5)  # noqa: ASYNC251  # That is what is tested.
            assert p.valid
            await p.commit(7)
            ended.set()
        await asyncio.sleep(0.1)

    worker = start("one", handle)
    wait_until(ended.is_set)
    (warning,) = lines(caplog, "event loop of the handlers has been blocked")
    assert "by the handler of t-0" in warning
    assert "time.sleep(4.5)" in warning
    wait_until(lambda: lines(caplog, "event loop of the handlers runs again"))
    assert not lines(caplog, "lost")
    assert worker.state.partitions[T0].token <= 2
    assert {p.token for p in worker.state.partitions.values()} == {1, 2}


def test_a_worker_whose_loop_was_closed_leaves(node, request):
    """Its partitions would be held by nobody who works."""
    worker = Worker(node.address, request.node.name, topics={"t": 1}, **FAST)

    @worker.handler
    async def handle(p: Partition) -> None:
        await asyncio.sleep(1_000)

    loop = asyncio.new_event_loop()
    serving = loop.create_task(worker.serve())
    while not worker.state.counts["runs"]:
        loop.run_until_complete(asyncio.sleep(0.05))
    loop.run_until_complete(asyncio.sleep(0.05))
    for task in asyncio.all_tasks(loop):
        task._log_destroy_pending = False
    loop.close()
    wait_until(lambda: worker.state.phase == "stopped")
    assert worker.state.stopping_because == "the event loop of the handlers was closed"
    assert not serving.done()


def test_a_thread_that_ignores_its_revocation_and_whose_partition_comes_back(start, caplog):
    """The other member gets the partition at the deadline. When it comes back, its new handler
    waits for the thread that still runs."""
    may_end = threading.Event()
    running: list[int] = []
    most: list[int] = []
    raised: list[BaseException] = []
    first = threading.Event()

    def handle(p: BlockingPartition) -> None:
        running.append(p.token)
        most.append(len(running))
        if not first.is_set():
            first.set()
            may_end.wait()
            assert not p.valid
            running.remove(p.token)
            try:
                p.commit(1)
            except PartitionRevoked as error:
                raised.append(error)
                raise
        running.remove(p.token)
        p.commit(p.position + 10)

    elsewhere: list[int] = []

    def handle_there(p: BlockingPartition) -> None:
        elsewhere.append(p.number)
        p.revoking.wait()

    one = start("one", handle, partitions=1, assignors=["range"])
    wait_until(first.is_set)
    # Range gives the only partition to the member whose id is first.
    two = start("a", handle_there, partitions=1, assignors=["range"])
    wait_until(lambda: one.state.left_over)
    (left,) = one.state.left_over
    assert left.partition == T0
    assert left.name in {thread.name for thread in threading.enumerate()}
    wait_until(lambda: lines(caplog, "still runs in thread", left.name))
    wait_until(lambda: elsewhere)
    two.stop()
    wait_until(lambda: T0 in one.state.partitions)
    wait_until(lambda: "waiting for the former handler" in one.state.partitions[T0].stage)
    may_end.set()
    wait_until(lambda: len(most) >= 2)
    assert max(most) == 1
    assert "nothing was sent" in str(raised[0])
    wait_until(lambda: one.state.partitions[T0].committed >= 10)


def test_calls_come_from_any_thread(start):
    revoked = threading.Event()

    def handle(p: BlockingPartition) -> None:
        def work(offset: int) -> None:
            p.alive()
            p.log_end(100)
            p.commit(offset)

        threads = [threading.Thread(target=work, args=(offset,)) for offset in range(1, 9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        p.commit(50)
        revoked.set()
        p.revoking.wait()

    worker = start("one", handle, partitions=1)
    wait_until(revoked.is_set)
    assert worker.state.partitions[T0].committed == 50
    assert worker.state.partitions[T0].log_end == 100


def test_a_hundred_threads_with_their_partitions_hand_over_to_a_second_worker(start):
    """Run a thread for each partition, all committing while half of them move."""
    owners: dict[int, str] = {}
    lock = threading.Lock()
    twice: list[int] = []

    def handler(name: str):
        def handle(p: BlockingPartition) -> None:
            with lock:
                if p.number in owners:
                    twice.append(p.number)
                owners[p.number] = name
            try:
                while True:
                    time.sleep(0.05)
                    p.commit(p.position + 1)
            finally:
                with lock:
                    del owners[p.number]

        return handle

    start("one", handler("one"), partitions=100, session_timeout_ms=20_000)
    wait_until(lambda: len(owners) == 100)
    start("two", handler("two"), partitions=100, session_timeout_ms=20_000)
    wait_until(lambda: list(owners.values()).count("two") == 50 and len(owners) == 100)
    assert twice == []
