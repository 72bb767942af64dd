"""Handlers that raise, hang, never return or ignore what they are told: state, log and metrics show
it, the error policy does what it says, and no partition ever has two handlers in one process."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging

import pytest

from coordinator.assignors import TopicPartition
from coordinator.client import BlockingPartition, Partition, PartitionRevoked, StaleMember
from coordinator.client.worker import HandlerStalled
from tests.unit.client.worker.kit import Town

pytestmark = pytest.mark.virtual_time
T0 = TopicPartition("t", 0)


def state(worker, number: int = 0):
    return worker.state.partitions[TopicPartition("t", number)]


def texts(caplog, level: int) -> str:
    return "\n".join(r.getMessage() for r in caplog.records if r.levelno == level)


# --- Handlers that raise ---


async def test_lines_of_the_worker_and_of_its_member_have_one_form_and_the_same_fields(caplog):
    caplog.set_level(logging.DEBUG, "coordinator.client")
    town = Town(1)
    worker = town.worker()

    @worker.handler
    async def handle(p: Partition) -> None:
        raise ValueError("poison")

    serving = town.serve(worker)
    await town.until(lambda: "poison" in caplog.text)
    worker.stop()
    await serving
    records = [r for r in caplog.records if r.levelno >= logging.INFO]
    assert {r.module for r in records} >= {"driver"}
    for record in records:
        name, _, _ = record.getMessage().partition(": ")
        assert name == f"member {record.member or name.split()[1]} of group g"
        assert record.group == "g"
    assert records[-1].member


async def test_a_handler_that_raises_is_called_again_from_the_committed_offset(caplog):
    town = Town(1)
    worker = town.worker()
    calls: list[tuple[float, int]] = []

    @worker.handler
    async def handle(p: Partition) -> None:
        calls.append((town.loop.time(), p.position))
        if len(calls) == 1:
            await p.commit(5)
        raise ValueError("poison")

    async with town.serving(worker):
        await town.until(lambda: len(calls) == 9)
        assert [position for _, position in calls] == [0] + [5] * 8
        pauses = [round(b[0] - a[0]) for a, b in itertools.pairwise(calls)]
        assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
        assert state(worker).attempts == 9
        assert state(worker).stage == "backing off"
        assert state(worker).last_error == "ValueError: poison"
        assert "failed (9 in a row); it is called again in 60000 ms" in texts(caplog, logging.ERROR)
        assert caplog.records[-1].exc_info[1].args == ("poison",)
        assert worker.state.counts["failures"] == 9


async def test_a_commit_whose_answer_nobody_waited_for_counts_for_the_next_call():
    town = Town(1)
    worker = town.worker()
    positions: list[int] = []

    @worker.handler
    async def handle(p: Partition) -> None:
        positions.append(p.position)
        worker.environment.answers_take_s = 1.0
        async with asyncio.timeout(0.5):
            await p.commit(p.position + 5)

    async with town.serving(worker):
        await town.until(lambda: len(positions) == 3)
        assert positions == [0, 5, 10]


async def test_a_commit_or_a_return_begins_the_count_anew():
    town = Town(1)
    worker = town.worker()
    script = iter([ValueError(), ValueError(), None, ValueError()])

    @worker.handler
    async def handle(p: Partition) -> None:
        error = next(script, None)
        if error is not None:
            raise error

    async with town.serving(worker):
        await town.until(lambda: worker.state.counts.get("runs", 0) >= 4)
        await town.until(lambda: state(worker).stage == "backing off")
        assert state(worker).attempts == 1
        assert state(worker).failures == 3


async def test_after_max_attempts_the_worker_stops_and_serve_raises_the_error():
    town = Town(1)
    worker = town.worker(max_attempts=3)

    @worker.handler
    async def handle(p: Partition) -> None:
        raise ValueError("poison")

    with pytest.raises(ValueError, match="poison"):
        await worker.serve()
    assert worker.state.phase == "stopped"
    assert worker.state.counts["failures"] == 3
    assert town.coordinator.shard.machine.groups["g"].members == {}


async def test_stop_has_the_others_finish_first():
    town = Town(2)
    worker = town.worker(on_error="stop")
    ended = []

    @worker.handler
    async def handle(p: Partition) -> None:
        if p.number == 0:
            raise ValueError("poison")
        try:
            await asyncio.sleep(5)
            await p.commit(9)
        finally:
            ended.append(p.number)

    with pytest.raises(ValueError, match="poison"):
        await worker.serve()
    assert ended == [1]
    assert town.stored(1) == 9


async def test_several_errors_come_as_a_group():
    town = Town(2)
    worker = town.worker(on_error="stop")

    @worker.handler
    async def handle(p: Partition) -> None:
        raise ValueError(p.number)

    with pytest.raises(ExceptionGroup) as caught:
        await worker.serve()
    assert sorted(error.args for error in caught.value.exceptions) == [(0,), (1,)]


async def test_a_released_partition_goes_to_another_or_rests_for_the_back_off():
    town = Town(1)
    worker = town.worker(on_error="release")
    calls: list[float] = []

    @worker.handler
    async def handle(p: Partition) -> None:
        calls.append(town.loop.time())
        raise ValueError("poison")

    async with town.serving(worker):
        await town.until(lambda: len(calls) == 1)
        await town.until(lambda: worker.state.partitions and state(worker).stage != "starting")
        assert state(worker).stage == "pausing after a release"
        assert state(worker).due_ms - state(worker).since_ms <= 1_000
        assert state(worker).last_error == "ValueError: poison"
        await town.until(lambda: len(calls) == 3)
        assert [round(b - a) for a, b in itertools.pairwise(calls)] == [1, 2]
        assert worker.state.counts["release"] == 3


async def test_a_policy_may_be_of_one_handler():
    town = Town(1)
    worker = town.worker(topics={"t": 1, "u": 1}, on_error="retry")

    @worker.handler
    async def handle(p: Partition) -> None:
        raise ValueError("t")

    @worker.handler(topic="u", on_error="stop")
    async def handle_u(p: Partition) -> None:
        await asyncio.sleep(2)
        raise ValueError("u")

    with pytest.raises(ValueError, match="u"):
        await worker.serve()


async def test_system_exit_in_a_handler_stops_the_worker_whatever_the_policy():
    town = Town(1)
    worker = town.worker()

    @worker.handler
    def handle(p: BlockingPartition) -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        await worker.serve()


async def test_a_handler_that_cancels_itself_has_failed():
    town = Town(1)
    worker = town.worker(on_error="stop")

    @worker.handler
    async def handle(p: Partition) -> None:
        asyncio.current_task().cancel()
        await asyncio.sleep(0)

    with pytest.raises(Exception, match="cancelled by its own code"):
        await worker.serve()


# --- Handlers that make no progress ---


async def test_a_handler_without_progress_while_rows_wait_is_stalled_said_once_and_retried(caplog):
    town = Town(1)
    worker = town.worker(progress_timeout_ms=10_000)
    calls: list[float] = []

    @worker.handler
    async def handle(p: Partition) -> None:
        calls.append(town.loop.time())
        await p.log_end(100)
        await asyncio.sleep(10_000)

    async with town.serving(worker):
        await town.until(lambda: len(calls) == 2)
        assert round(calls[1] - calls[0]) == 11
        assert texts(caplog, logging.WARNING).count("has stalled") == 1
        assert "asyncio.sleep(10_000)" in texts(caplog, logging.WARNING)  # Its stack.
        assert worker.state.counts["stalls"] == 1
        assert "HandlerStalled" in state(worker).last_error


@pytest.mark.parametrize("sign", ["commit", "alive"])
async def test_a_sign_of_life_is_progress(sign):
    town = Town(1)
    worker = town.worker(progress_timeout_ms=10_000)

    @worker.handler
    async def handle(p: Partition) -> None:
        await p.log_end(100)
        while True:
            await asyncio.sleep(9)
            await (p.commit(p.position + 1) if sign == "commit" else p.alive())

    async with town.serving(worker):
        await asyncio.sleep(100)
        assert worker.state.counts["stalls"] == 0


async def test_a_run_has_one_timer_however_often_rows_come():
    town = Town(1)
    worker = town.worker()
    committed = []

    @worker.handler
    async def handle(p: Partition) -> None:
        for offset in range(1, 500):
            await p.log_end(offset)
            await p.commit(offset)
        committed.append(offset)
        await p.revoking.wait()

    async with town.serving(worker):
        await town.until(lambda: committed)
        core = worker._driver.core
        assert len(core._timers) < 10


async def test_a_handler_that_waits_for_rows_is_not_stalled():
    town = Town(1)
    worker = town.worker(progress_timeout_ms=10_000)

    @worker.handler
    async def handle(p: Partition) -> None:
        await p.log_end(0)
        await asyncio.sleep(10_000)

    async with town.serving(worker):
        await asyncio.sleep(1_000)
        assert worker.state.counts["stalls"] == 0


async def test_the_log_ends_of_the_worker_tell_that_rows_wait():
    town = Town(1)
    ends = {T0: 0}
    worker = town.worker(
        progress_timeout_ms=10_000, on_error="stop", log_ends=lambda keys: dict(ends)
    )

    @worker.handler
    async def handle(p: Partition) -> None:
        await asyncio.sleep(10_000)

    serving = town.serve(worker)
    await asyncio.sleep(100)
    ends[T0] = 1
    with pytest.raises(HandlerStalled):
        await serving
    assert 110 <= town.loop.time() <= 120


# --- Handlers that do not end ---


@pytest.mark.parametrize("policy", ["retry", "release"])
async def test_a_stalled_thread_that_does_not_end_costs_the_partition(caplog, policy):
    """It may come back, and then waits for the thread; or another member has it meanwhile."""
    town = Town(1)
    one = town.worker("one", progress_timeout_ms=10_000, on_error=policy)
    two = town.worker("two")
    starts: list[str] = []
    raised: list[BaseException] = []
    running: list[int] = []

    @one.handler
    def handle(p: BlockingPartition) -> None:
        assert not running, "two handlers of one partition"
        running.append(p.token)
        starts.append("one")
        p.log_end(100)
        one.environment.sleep(200)
        running.clear()
        try:
            p.commit(5)
        except BaseException as error:
            raised.append(error)
            raise

    @two.handler
    async def handle_two(p: Partition) -> None:
        starts.append("two")
        await p.commit(50)
        await asyncio.sleep(10_000)

    serving = [town.serve(one)]
    await town.until(lambda: starts)
    serving.append(town.serve(two))
    await town.until(lambda: one.state.counts.get("overdue runs"))
    (left,) = one.state.left_over
    assert (left.partition, left.is_thread, left.kind) == (T0, True, "handler")
    assert f"still runs in thread {left.name!r}" in texts(caplog, logging.WARNING)
    assert one.state.counts["overdue runs"] == 1
    await town.until(lambda: "two" in starts or starts.count("one") > 1)
    assert one.state.counts["release"] >= 1
    await town.until(lambda: not one.state.left_over)
    assert isinstance(raised[0], PartitionRevoked)
    assert town.stored() in (-1, 50)
    await town.stop(one, two)
    await asyncio.gather(*serving)


async def test_a_thread_that_ignores_its_revocation_and_whose_partition_comes_back(caplog):
    """The partition is given up at the deadline. When it comes back, its new handler waits."""
    town = Town(1)
    worker = town.worker(
        "one", rebalance_timeout_ms=20_000, progress_timeout_ms=1_000_000, assignors=["range"]
    )
    running: list[int] = []
    most: list[int] = []
    calls: list[int] = []
    seen: list[bool] = []

    @worker.handler
    def handle(p: BlockingPartition) -> None:
        calls.append(p.token)
        running.append(p.token)
        most.append(len(running))
        if len(calls) == 1:
            worker.environment.sleep(120)
            seen.append(p.valid)
            running.remove(p.token)
            try:
                p.alive()
            except PartitionRevoked as error:
                seen.append("nothing was sent" in str(error))
            p.commit(1)
        else:
            running.remove(p.token)
            p.done()

    async with town.serving(worker):
        await town.until(lambda: calls)
        other = town.worker("two", assignors=["range"])
        other.handler(handle)
        elsewhere = town.serve(other)
        await town.until(lambda: worker.state.left_over)
        await town.until(lambda: "still runs in thread" in texts(caplog, logging.WARNING))
        await town.stop(other)
        await elsewhere
        await town.until(lambda: worker.state.partitions)
        await town.until(lambda: state(worker).stage == "waiting for the former handler to end")
        await town.until(lambda: not worker.state.left_over)
        await town.until(lambda: len(calls) >= 2)
        assert max(most) == 1
        assert seen == [False, True]
        assert town.stored() == -1


async def test_a_former_handler_that_never_ends_is_a_failure_after_the_progress_timeout():
    town = Town(1)
    worker = town.worker(
        rebalance_timeout_ms=20_000, progress_timeout_ms=5_000, on_error="stop", assignors=["range"]
    )
    calls: list[int] = []
    may_end = asyncio.Event()

    @worker.handler
    async def handle(p: Partition) -> None:
        calls.append(p.token)
        while not may_end.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await may_end.wait()

    serving = town.serve(worker)
    await town.until(lambda: calls)
    other = town.worker("two", assignors=["range"])
    other.handler(handle)
    elsewhere = town.serve(other)
    await town.until(lambda: worker.state.left_over)
    assert not worker.state.left_over[0].is_thread
    elsewhere.cancel()
    await town.until(serving.done)
    with pytest.raises(Exception, match="has not ended for 5000 ms"):
        await serving
    may_end.set()
    await asyncio.gather(elsewhere, return_exceptions=True)


async def test_a_coroutine_that_was_lost_can_commit_nothing():
    town = Town(1)
    worker = town.worker(session_timeout_ms=10_000)
    raised: list[BaseException] = []
    valid: list[bool] = []

    @worker.handler
    async def handle(p: Partition) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            valid.append(p.valid)
            try:
                await p.commit(10)
            except StaleMember as error:
                raised.append(error)
            raise

    async with town.serving(worker):
        await town.until(lambda: worker.state.counts.get("runs"))
        await asyncio.sleep(5)
        worker.environment.is_cut = True
        await town.until(lambda: raised)
        assert valid == [False]
        assert "nothing was sent" in str(raised[0])
        worker.environment.is_cut = False
        await town.until(lambda: worker.state.counts["runs"] == 2)
        assert town.stored() == -1


# --- Metrics ---


async def test_failures_and_stages_are_counted_in_prometheus():
    prometheus = pytest.importorskip("prometheus_client")
    town = Town(2)
    worker = town.worker()

    def sample(name: str, **labels: str) -> float:
        value = prometheus.REGISTRY.get_sample_value(name, {"group": "g", **labels})
        return value or 0.0

    before = sample("coordinator_worker_events_total", event="failures")

    @worker.handler
    async def handle(p: Partition) -> None:
        if p.number == 0:
            raise ValueError("poison")
        await p.revoking.wait()

    async with town.serving(worker):
        await town.until(lambda: worker.state.counts["failures"] == 3)
        assert sample("coordinator_worker_events_total", event="failures") == before + 3
        assert sample("coordinator_worker_partitions", stage="backing_off") == 1
        assert sample("coordinator_worker_partitions", stage="running") == 1
    assert sample("coordinator_worker_partitions", stage="running") == 0
