"""Values that handlers and functions of users give, and that are none: said at once, in words."""

from __future__ import annotations

import logging

import pytest

from coordinator.client import CommitFailed, Partition
from tests.unit.client.worker.kit import Town

pytestmark = pytest.mark.virtual_time
LATEST = {"start": "latest"}


async def refused(town: Town, call) -> str:
    """Words that a handler hears which makes a wrong call."""
    worker, messages = town.worker(), []

    @worker.handler
    async def handle(p: Partition) -> None:
        try:
            await call(worker, p)
        except (TypeError, ValueError, CommitFailed) as error:
            messages.append(f"{type(error).__name__}: {error}")
        else:
            messages.append("it was accepted")
        await p.done()

    town.serve(worker)
    await town.until(lambda: messages)
    await town.stop(worker)
    assert town.commits == []
    return messages[0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda w, p: p.commit("12"), "TypeError: the offset of t-0 is '12'; write the next"),
        (lambda w, p: p.commit(None), "a whole number: p.commit(1)"),
        (lambda w, p: p.commit(5.0), "TypeError: the offset of t"),
        (lambda w, p: p.commit(True), "TypeError: the offset of t"),
        (lambda w, p: p.commit(-1), "CommitFailed: INVALID_ARGUMENT: nothing was sent"),
        (lambda w, p: p.commit(5, metadata=3), "TypeError: the metadata of t"),
        (lambda w, p: p.commit(5, expected="x"), "TypeError: the expected offset of t"),
        (lambda w, p: w.commit({p: "x"}), "TypeError: the offset of t"),
        (lambda w, p: w.commit({p: 3}, manifest="x"), "TypeError: manifest is 'x'; write bytes"),
        (lambda w, p: p.log_end("x"), "TypeError: the log end is 'x'; write the next one"),
        (lambda w, p: p.log_end(-3), "ValueError: the log end is -3"),
    ],
)
async def test_what_is_no_offset_is_refused_by_the_call_and_nothing_is_sent(call, message):
    assert message in await refused(Town(1), call)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"start": lambda key: None}, "the offset that start for t-0 returned is None"),
        ({"start": lambda key: "5"}, "the offset that start for t-0 returned is '5'"),
        ({"start": lambda key: -4}, "the offset that start for t-0 returned is -4"),
        ({"begin_offsets": lambda keys: None}, "begin_offsets returned None; return offsets by"),
        ({"begin_offsets": lambda keys: {}}, "begin_offsets returned no offset of t-0"),
        (LATEST | {"log_ends": lambda keys: {}}, "log_ends returned no offset of t-0"),
        (LATEST | {"log_ends": lambda keys: [3]}, "log_ends returned [3]; return offsets by"),
    ],
)
async def test_a_start_that_is_no_offset_is_a_failure_and_the_partition_is_not_dead(
    settings, message
):
    town, started = Town(1), []
    worker = town.worker(**settings)

    @worker.handler
    async def handle(p: Partition) -> None:
        started.append(p.position)

    town.serve(worker)
    await town.until(lambda: worker.state.counts["retry"] >= 2)
    (partition,) = worker.state.partitions.values()
    assert message in partition.last_error
    assert partition.stage in {"backing off", "starting"}
    assert started == []
    await town.stop(worker)


@pytest.mark.parametrize("ends", [None, "t0", {("t", 0): "5"}])
async def test_log_ends_that_are_no_offsets_are_said_again_and_again(ends, caplog):
    town, returned = Town(1), [ends]
    worker = town.worker(log_ends=lambda keys: returned[0], log_ends_interval_s=1.0)

    @worker.handler
    async def handle(p: Partition) -> None:
        await p.done()

    def warnings() -> list[str]:
        found = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
        return [text for text in found if "where the logs end cannot be asked" in text]

    town.serve(worker)
    await town.until(lambda: len(warnings()) >= 2)
    returned[0] = {("t", 0): 5}
    await town.until(lambda: [p.log_end for p in worker.state.partitions.values()] == [5])
    await town.stop(worker)
