"""A coordinator that does not answer sources and sinks: told soon, with its address."""

from __future__ import annotations

import asyncio
import logging
import re
import threading

import pytest

pytest.importorskip("pyspark", reason="streams need the extra `spark`")

import pyarrow as pa

from coordinator.assignors import TopicPartition
from coordinator.client.errors import Unavailable
from coordinator.operator.admin import GroupAdmin
from coordinator.sources import write_log
from coordinator.sources.group import retrying
from coordinator.spark import planner
from coordinator.spark.options import StreamOptions
from coordinator.spark.ranges import NOTHING_STORED
from coordinator.spark.sinks.deciding import Decider, Proposal
from coordinator.spark.sinks.protocol import Decision
from coordinator.spark.stream import GroupStreamReader
from tests.integration.waiting import wait_until
from tests.kit.serving import free_port, running


@pytest.fixture
def nobody(tmp_path):
    """Options of a query whose coordinator is not there."""
    write_log(tmp_path, 0, pa.table({"n": range(3)}))
    address = f"127.0.0.1:{free_port()}"
    given = {"coordinator": address, "group": "g", "source": str(tmp_path), "topic": "t"}
    return StreamOptions.parse(given)


def is_told(caplog, address: str) -> bool:
    lines = [r for r in caplog.records if f"at {address}" in r.getMessage()]
    return any(r.levelno == logging.WARNING and "unreachable" in r.getMessage() for r in lines)


def test_a_source_says_so_and_its_error_names_the_address(nobody, caplog, monkeypatch):
    monkeypatch.setattr(retrying, "SILENCE_S", 0.01)
    give_up = threading.Event()
    monkeypatch.setattr(retrying, "PAUSE_S", 0.01)
    monkeypatch.setattr(retrying.time, "monotonic", lambda: 1e6 if give_up.is_set() else 0.0)
    errors: list[Exception] = []

    def ask() -> None:
        try:
            reader = GroupStreamReader(nobody)
            reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
        except Exception as error:  # noqa: BLE001  # It is looked at below.
            errors.append(error)

    asks = threading.Thread(target=ask)
    asks.start()
    wait_until(lambda: is_told(caplog, nobody.coordinator))
    give_up.set()
    asks.join()
    assert isinstance(errors[0], Unavailable)
    assert re.search(f"no answer .* group g at {nobody.coordinator}: .*refused", str(errors[0]))


async def test_an_assignment_that_does_not_come_is_an_error_with_the_address(tmp_path, monkeypatch):
    """The coordinator answers, and goes away before the query has joined."""
    write_log(tmp_path, 0, pa.table({"n": range(3)}))
    monkeypatch.setattr(planner, "JOIN_PATIENCE_S", 0.0)
    async with running(group_initial_rebalance_delay_ms=60_000) as server:
        given = {"coordinator": server.address, "group": "g", "source": str(tmp_path)}
        reader = GroupStreamReader(StreamOptions.parse(given))
        with pytest.raises(Unavailable, match=f"coordinator {server.address}: no assignment"):
            await asyncio.to_thread(
                reader.latestOffset, reader.initialOffset(), reader.getDefaultReadLimit()
            )
        await asyncio.to_thread(reader.stop)


async def test_a_commit_that_is_not_answered_is_an_error_with_the_address(tmp_path, monkeypatch):
    def unanswered(*_: object, **__: object) -> None:
        raise Unavailable("no coordinator answered within 60 s")

    write_log(tmp_path, 0, pa.table({"n": range(3)}))
    async with running() as server:
        given = {"coordinator": server.address, "group": "g", "source": str(tmp_path)}
        reader = GroupStreamReader(StreamOptions.parse(given))
        end = await asyncio.to_thread(
            reader.latestOffset, reader.initialOffset(), reader.getDefaultReadLimit()
        )
        monkeypatch.setattr(planner, "commit_to_group", unanswered)
        with pytest.raises(Unavailable, match=f"coordinator {server.address}: no coordinator "):
            await asyncio.to_thread(reader.commit, end)
        await asyncio.to_thread(reader.stop)


async def test_a_table_that_is_slow_is_not_taken_for_the_coordinator(monkeypatch):
    """Steps of a table are outside of what is timed, those of the coordinator inside."""
    timed: list[str] = []

    class Timer(threading.Timer):
        def start(self) -> None:
            timed.append("")

        def cancel(self) -> None:
            timed.pop()

    class Table:
        location = "table"

        def recover(self, decision: Decision) -> int:
            assert not timed
            return decision.number

        def commit(self, token: str, decision: Decision) -> None:
            assert not timed

    def commit(*arguments: object, **more: object) -> dict[object, str]:
        assert timed
        return asks(*arguments, **more)

    asks = GroupAdmin.commit
    monkeypatch.setattr(GroupAdmin, "commit", commit)
    monkeypatch.setattr(retrying.threading, "Timer", Timer)
    async with running() as server:
        decider = Decider(Table(), server.address, "g")
        key = TopicPartition("t", 0)
        proposal = Proposal({key: NOTHING_STORED}, {key: 3}, {})
        assert await asyncio.to_thread(decider.decide, "rows", proposal)
        assert (await asyncio.to_thread(decider.recover)).number == 1
        decider.close()
    assert not timed
