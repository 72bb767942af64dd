"""The tables of tests/unit/client, with real members at a real server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from types import SimpleNamespace

import pyarrow as pa
import pytest

from coordinator.assignors import TopicPartition
from coordinator.client import (
    BlockingMember,
    CommitFailed,
    Holding,
    Lost,
    Member,
    Revoking,
    StaleMember,
)
from coordinator.client.transport.process_environment import epoch_ms
from coordinator.operator.admin import GroupAdmin
from coordinator.sources.group import consume
from tests.integration.waiting import until, wait_until
from tests.kit.patience import HANG_S
from tests.kit.serving import Process, running

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ASSIGNORS = ["range", "cooperative-sticky"]
QUICK = {"session_timeout_ms": 30_000, "rebalance_timeout_ms": 2_000, "heartbeat_interval_ms": 50}


def member(server, **settings) -> Member:
    return Member(server.address, "g", {"t": 2}, **{**QUICK, **settings})


async def polls_until(one: Member, holds) -> list:
    """Poll until `holds`, and return the events."""
    heard = []
    async with asyncio.timeout(HANG_S):
        while not holds():
            heard += await one.poll(timeout=0.05)
    return heard


@pytest.mark.parametrize("assignor", ASSIGNORS)
async def test_a_slow_handlers_late_commit_is_refused_and_it_hears_lost(assignor):
    async with running() as server, contextlib.AsyncExitStack() as stack:
        slow = await stack.enter_async_context(member(server, assignors=(assignor,)))
        await polls_until(slow, lambda: slow.assignment == {T0, T1})
        quick = await stack.enter_async_context(member(server, assignors=(assignor,)))
        await polls_until(quick, lambda: quick.assignment)
        (moved,) = quick.assignment
        await quick.commit({moved: 500})
        with pytest.raises(StaleMember, match="deadline"):
            await slow.commit({moved: 10})
        events = await slow.poll()
        assert not any(isinstance(event, Revoking) for event in events)
        assert isinstance(events[0], Lost)
        assert moved in events[0].partitions
        with pytest.raises(StaleMember):
            await slow.commit({moved: 10})
        assert await slow.committed([moved]) == {moved: 500}, "everybody may read"


def test_a_handler_in_a_thread_shows_its_holding_though_the_partition_came_back():
    settings = {**QUICK, "assignors": ("range",)}
    with Process("--group-initial-rebalance-delay-ms", "0") as server:
        with BlockingMember(server.address, "g", {"t": 2}, **settings) as one:
            wait_until(lambda: one.poll(timeout=0.1) and one.assignment)
            handed: list[Holding] = [one.holding(T0)]
            with BlockingMember(server.address, "g", {"t": 2}, **settings) as two:
                wait_until(lambda: [m.poll(timeout=0.05) for m in (one, two)] and two.assignment)
            wait_until(lambda: one.poll(timeout=0.05) is None or len(one.assignment) == 2)
            refused: list[Exception] = []

            def late() -> None:
                try:
                    one.commit({T0: 10}, holdings=handed)
                except StaleMember as error:
                    refused.append(error)

            thread = threading.Thread(target=late)
            thread.start()
            thread.join()
            assert len(refused) == 1
            assert not one.holds(handed[0])
            assert one.committed([T0]) == {T0: -1}
            one.commit({T0: 11})
            one.commit({("t", 0): 12}, holdings=[one.holding(T0)])
            assert one.committed([T0]) == {T0: 12}


async def test_commits_before_the_first_assignment_and_after_leaving_are_refused():
    async with running() as server:
        one = member(server)
        with pytest.raises(StaleMember):
            await one.commit({T0: 1})
        await one.start()
        await until(lambda: one.generation >= 0)
        with pytest.raises(StaleMember):
            await one.commit({T0: 1})
        await polls_until(one, lambda: one.assignment)
        with pytest.raises(CommitFailed, match="negative"):
            await one.commit({T0: -1})
        with pytest.raises(StaleMember, match="x-0"):
            await one.commit({T0: 1, TopicPartition("x", 0): 1})
        await one.commit({T0: 1})
        await one.close()
        with pytest.raises(StaleMember):
            await one.commit({T0: 2})
        with GroupAdmin(server.address) as admin:
            assert await asyncio.to_thread(admin.offsets, "g") == {T0: 1}
            refused = await asyncio.to_thread(admin.commit, "g", {T0: 3})
            assert refused == {}, "the way for those who are outside, of a group that is Empty"


async def test_closing_lets_a_commit_that_is_on_the_way_arrive_and_begins_none():
    async with running() as server:
        for _ in range(20):
            one = member(server)
            await one.start()
            await polls_until(one, lambda: one.assignment)  # noqa: B023
            begun = asyncio.create_task(one.commit({T0: 1}))
            await asyncio.sleep(0)
            await one.close()
            await begun
            with pytest.raises(StaleMember):
                await one.commit({T0: 2})


def test_closing_in_one_thread_ends_the_commits_of_others():
    """The commits wait for a coordinator that does not come back."""
    with Process("--group-initial-rebalance-delay-ms", "0") as server:
        one = BlockingMember(server.address, "g", {"t": 2}, **QUICK)
        one.start()
        wait_until(lambda: one.poll(timeout=0.1) and one.assignment)
        handed = one.holding(T0)
        server.kill()
        ended: list[Exception] = []

        def commit() -> None:
            try:
                one.commit({T0: 1}, holdings=handed)
            except Exception as error:  # noqa: BLE001  # The test says of what kind.
                ended.append(error)

        threads = [threading.Thread(target=commit) for _ in range(4)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(one._calls) == len(threads))
        one.close()
        for thread in threads:
            thread.join(HANG_S)
        assert not any(thread.is_alive() for thread in threads)
        assert [type(error) for error in ended] == [StaleMember] * len(threads)
        with pytest.raises(StaleMember):
            one.commit({T0: 1})


async def test_a_member_is_called_on_the_loop_that_started_it():
    async with running() as server, member(server) as one:
        await polls_until(one, lambda: one.assignment)
        for call in (lambda: one.commit({T0: 1}), one.poll, one.committed):
            with pytest.raises(RuntimeError, match="BlockingMember"):
                await asyncio.to_thread(lambda call=call: asyncio.run(call()))


async def test_leaving_for_want_of_polls_is_one_warning(caplog):
    async with running() as server, member(server, max_poll_interval_ms=1_500) as one:
        await polls_until(one, lambda: one.assignment)
        with caplog.at_level(logging.WARNING, logger="coordinator.client"):
            await until(lambda: not one.assignment)
            await until(lambda: sum(s.groups.get("Empty", 0) for s in server.node.stats()) == 1)
        (record,) = [r for r in caplog.records if r.name == "coordinator.client"]
        assert record.levelno == logging.WARNING
        assert "group g" in record.getMessage()
        assert "max_poll_interval_ms is 1500" in record.getMessage()
        (event,) = await one.poll()
        assert isinstance(event, Lost)
        assert "max_poll_interval_ms is 1500" in event.reason
        await polls_until(one, lambda: one.assignment)


class SlowRows:
    """A source of three batches, and the work on them: each takes nearly the whole interval."""

    topic = "t"

    def __init__(self, pass_time) -> None:
        self._pass_time = pass_time
        self.resumed: list[int] = []

    def partitions(self):
        return (0,)

    def begin_offset(self, partition):
        return 0

    def end_offset(self, partition):
        return 3

    def read(self, partition, begin, end):
        for n in range(begin, end):
            yield pa.RecordBatch.from_pydict({"n": [n]})

    def resume(self, partition, offset):
        self.resumed.append(offset)

    def add(self, partition, batch):
        self._pass_time()

    def store(self, partition, offset):
        pass


async def consumed(server, pass_time):
    """Offsets begun at and the summary of `consume`, whose member has a clock that a test moves.

    Args:
        pass_time: called for each batch with the member and how far its clock is ahead, which it
            changes (`ahead.ms`).
    """
    ahead = SimpleNamespace(ms=0)

    def work():
        rows = SlowRows(lambda: pass_time(one, ahead))
        with BlockingMember(
            server.address,
            "g",
            {"t": 1},
            clock=lambda: epoch_ms() + ahead.ms,
            **{**QUICK, "session_timeout_ms": 1_800_000},
        ) as one:
            return rows.resumed, consume(one, rows, rows, rows_per_commit=3)

    return await asyncio.to_thread(work)


async def test_a_long_chunk_in_consume_is_progress_batch_by_batch():
    """Ten minutes between two polls, by the member's clock, and never five without a batch."""

    def pass_time(member, ahead) -> None:
        ahead.ms += 200_000
        now_ms = epoch_ms() + ahead.ms  # The member looks at its clock before each beat.
        machine = member._member._machine.part.membership
        wait_until(lambda: machine._last_seen_ms > now_ms or not machine.assigned)
        assert machine.assigned, "it was taken for hanging"

    async with running(group_max_session_timeout_ms=1_800_000) as server:
        resumed, summary = await consumed(server, pass_time)
        assert resumed == [0], "it was not taken for hanging"
        assert (summary.rows, summary.commits, summary.rebalances) == (3, 1, 1)


async def test_a_batch_in_consume_that_takes_too_long_costs_the_partition_until_it_is_done():
    """The member leaves, as `max_poll_interval_ms` says, and joins again when the batch is done."""

    def pass_time(member, ahead) -> None:
        if not ahead.ms:
            ahead.ms = 400_000
            wait_until(lambda: not member.assignment)

    async with running(group_max_session_timeout_ms=1_800_000) as server:
        resumed, summary = await consumed(server, pass_time)
        assert resumed == [0, 0], "what was not committed is done again"
        assert (summary.rows, summary.commits, summary.rebalances) == (3, 1, 2)
