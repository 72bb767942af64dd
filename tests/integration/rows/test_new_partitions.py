"""Partitions that appear or vanish while queries run, and where groups begin that begin at the end.

The source's reader without Spark.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections import defaultdict

import pytest

pytest.importorskip("pyspark", reason="streams need the extra `spark`")

from coordinator.assignors import TopicPartition
from coordinator.client import Member
from coordinator.operator.admin import GroupAdmin
from coordinator.sources import LogChanged, NothingFound
from coordinator.spark.refusals import DataLost
from tests.integration.rows.test_changed_logs import A, B, Query, log, server, stored, write
from tests.integration.waiting import until, wait_until

__all__ = ["log", "server"]  # Fixtures.
T0, T1, T2, T3 = (TopicPartition("t", number) for number in range(4))
AT_ONCE = {"topicsRefreshMs": "1"}
QUICK = {"sessionTimeoutMs": "3000"}  # And so heartbeats.


def appear(log, number: int, rows: int) -> None:
    (log / str(number)).mkdir()
    write(log / str(number) / B, rows)


def plan(query: Query) -> dict:
    """The next batch that has rows; a rebalance may be under way."""
    wait_until(query.plan)
    return {p: (r["begin"], r["end"]) for p, r in query.planned["ranges"].items()}


def owned(query: Query) -> int:
    return len(query.reader._planning()._joined().assignment)


async def test_a_partition_that_appears_is_in_a_batch_though_the_checkpoint_has_none_of_it(
    server, log
):
    def story():
        query = Query(server, log, **AT_ONCE)
        assert plan(query) == {"0": (0, 10), "1": (0, 10)}
        query.run()
        appear(log, 2, 7)
        assert plan(query) == {"2": (0, 7)}
        assert query.run() == 7
        assert query.plan() == {}
        assert stored(server) == {T0: 10, T1: 10, T2: 7}

    await asyncio.to_thread(story)


async def test_a_batch_under_way_is_stored_though_its_query_has_found_a_partition(server, log):
    def story():
        query = Query(server, log, maxRowsPerBatch="4", **AT_ONCE)
        assert plan(query) == {"0": (0, 2), "1": (0, 2)}
        appear(log, 2, 1)
        query.run()
        seen = set(plan(query))
        assert stored(server) == {T0: 2, T1: 2}
        while "2" not in seen:
            query.run()
            seen |= set(plan(query))

    await asyncio.to_thread(story)


async def test_a_query_that_leads_finds_and_one_that_has_not_looked_reads(server, log):
    """The one that is assigned it has counted fewer partitions until then."""

    def story():
        leader = Query(server, log, **AT_ONCE, **QUICK)
        plan(leader)
        leader.run()
        leader.reader.commit(leader.done)
        other = Query(server, log, **QUICK)
        queries = (leader, other)
        wait_until(lambda: [owned(query) for query in queries] == [1, 1])
        appear(log, 2, 5)
        appear(log, 3, 5)
        wait_until(lambda: [owned(query) for query in queries] == [2, 2])
        seen = {}
        for query in queries:
            seen |= plan(query)
        assert seen == {"2": (0, 5), "3": (0, 5)}

    await asyncio.to_thread(story)


async def test_shards_of_a_table_are_found(server, tmp_path):
    import sqlalchemy as sa

    url = f"sqlite:///{tmp_path}/rows.db"
    engine = sa.create_engine(url)

    def insert(*rows: tuple[int, int]) -> None:
        with engine.begin() as connection:
            for id, shard in rows:
                connection.exec_driver_sql(f"insert into r values ({id}, {shard})")

    def story():
        with engine.begin() as connection:
            connection.exec_driver_sql("create table r (id integer primary key, shard integer)")
        insert((1, 0), (2, 0))
        table = {"source": f"sql:{url}#table=r&partition_by=shard"}
        query = Query(server, tmp_path, **table, **AT_ONCE)
        assert plan(query) == {"0": (0, 3)}
        query.run()
        insert((5, 2))
        assert plan(query) == {"2": (0, 6)}
        assert query.run() == 1

    await asyncio.to_thread(story)
    engine.dispose()


async def test_a_query_with_an_empty_source_finds_the_first_partition(server, tmp_path):
    def story():
        query = Query(server, tmp_path, allowEmpty="true", startingOffsets="latest", **AT_ONCE)
        assert query.plan() == {}
        appear(tmp_path, 0, 3)
        assert plan(query) == {"0": (0, 3)}, "its rows are new"

    await asyncio.to_thread(story)


async def test_a_partition_that_appeared_while_a_static_query_was_down_is_shared_out(server, log):
    """It takes its place back without a rebalance, and with it an assignment that lacks it."""

    def story():
        query = Query(server, log, instance="i")
        plan(query)
        query.run()
        query.reader.commit(query.done)
        query.reader.stop()
        appear(log, 2, 4)
        query.start()
        assert plan(query) == {"2": (0, 4)}

    await asyncio.to_thread(story)


async def test_a_partition_whose_folder_vanishes_stays_if_it_was_read(server, log):
    def story():
        query = Query(server, log, **AT_ONCE)
        plan(query)
        query.run()
        shutil.rmtree(log / "1")
        write(log / "0" / A, 2)
        assert plan(query) == {"0": (10, 12)}
        query.restart()
        assert query.plan() == {"0": (10, 12)}
        query.run()
        (log / "1").mkdir()
        write(log / "1" / A, 3)
        assert plan(query) == {"1": (10, 13)}
        query.reader.stop()
        shutil.rmtree(log / "1")
        query.restart()
        with pytest.raises(LogChanged, match=f"a file below {log} is gone, which the group"):
            query.plan()

    await asyncio.to_thread(story)


async def test_a_partition_of_one_file_that_vanishes_fails_its_query_and_the_next(
    server, tmp_path, caplog
):
    def story():
        for number in range(2):
            write(tmp_path / f"{number}.parquet", 10)
        query = Query(server, tmp_path, **AT_ONCE)
        plan(query)
        query.run()
        (tmp_path / "1.parquet").unlink()
        with pytest.raises(LogChanged, match=r"1\.parquet is gone, and its rows were counted"):
            plan(query)
        query.restart()
        words = r"partition 1 of t is gone: offset 10 is stored, and there are 1 partitions"
        with pytest.raises(DataLost, match=words):
            query.plan()
        lossy = Query(server, tmp_path, failOnDataLoss="false")
        lossy.done = query.done
        assert lossy.plan() == {}
        (line,) = [r for r in caplog.records if "without it)" in r.message]
        assert line.levelno == logging.WARNING

    await asyncio.to_thread(story)


async def test_a_source_that_is_emptied_fails_the_next_query(server, log):
    def story():
        query = Query(server, log, **AT_ONCE)
        plan(query)
        query.run()
        shutil.rmtree(log)
        log.mkdir()
        query.restart()
        with pytest.raises(NothingFound):
            query.plan()

    await asyncio.to_thread(story)


# --- Groups that begin at the end -------------------------------------------------------------


async def test_latest_is_one_moment_for_the_group_and_partitions_that_appear_are_new(server, log):
    def story():
        query = Query(server, log, startingOffsets="latest", **AT_ONCE)
        assert query.plan() == {}
        assert stored(server) == {T0: 10, T1: 10}
        write(log / "1" / A, 2)
        appear(log, 2, 3)
        query.restart()  # It has committed nothing that it has read.
        assert plan(query) == {"1": (10, 12), "2": (0, 3)}

    await asyncio.to_thread(story)


async def test_partitions_that_latest_does_not_skip_are_told(server, log, caplog):
    """The group has stored some offsets, from a worker or a query of an earlier version."""

    def story():
        with GroupAdmin(server.address) as admin:
            admin.commit("g", {T0: 10})
        assert Query(server, log, startingOffsets="latest").plan() == {"1": (0, 10)}
        (line,) = [r.message for r in caplog.records if "reset-offsets" in r.message]
        assert "group g has stored offsets of t, and none of its partitions 1: " in line

    await asyncio.to_thread(story)


async def test_a_begin_is_stored_again_while_the_group_moves(server, log, monkeypatch):
    codes = ["NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", "REQUEST_TIMED_OUT"]
    moving = defaultdict(codes.copy)
    commit = GroupAdmin.commit

    def refused(self, group, offsets, **more):
        left = moving[min(offsets).topic]
        if not left:
            return commit(self, group, offsets, **more)
        return dict.fromkeys(offsets, left.pop())

    def story():
        monkeypatch.setattr(GroupAdmin, "commit", refused)
        assert Query(server, log, startingOffsets="latest").plan() == {}
        assert stored(server) == {T0: 10, T1: 10}
        assert list(moving.values()) == [[]]

    await asyncio.to_thread(story)


async def test_an_owner_that_comes_later_begins_where_the_group_began(server, log):
    query = Query(server, log, startingOffsets="latest")
    assert await asyncio.to_thread(query.plan) == {}
    await asyncio.to_thread(query.reader.stop)
    write(log / "0" / A, 2)
    successor = Query(server, log, startingOffsets="latest")
    assert await asyncio.to_thread(plan, successor) == {"0": (10, 12)}


async def test_of_queries_that_begin_at_the_same_moment_one_says_where(server, log):
    """Both have found nothing stored; the log has grown between their looks."""

    def story():
        first, second = (Query(server, log, startingOffsets="latest") for _ in range(2))
        nothing = second.reader._options.stored_commits()
        assert first.plan() == {}
        write(log / "0" / A, 2)
        options = second.reader._options.begun([0, 1], nothing, may_store=True)
        assert options.starting_offsets == "earliest"
        assert stored(server) == {T0: 10, T1: 10}

    await asyncio.to_thread(story)


async def test_minus_one_in_kafkas_form_is_a_moment_too(server, log):
    def story():
        query = Query(server, log, startingOffsets='{"t": {"0": 4, "1": -1}}', **AT_ONCE)
        assert plan(query) == {"0": (4, 10)}
        assert stored(server) == {T0: 4, T1: 10}

    await asyncio.to_thread(story)


async def test_members_of_other_kinds_share_what_a_query_finds(server, log):
    query = Query(server, log, **AT_ONCE, **QUICK)
    await asyncio.to_thread(plan, query)
    query.run()
    async with Member(
        server.address, "g", {"t": 2}, assignors=("cooperative-sticky",), heartbeat_interval_ms=100
    ) as other:

        async def poll() -> None:
            while True:
                await other.poll(timeout=0.05)

        polling = asyncio.create_task(poll())
        await asyncio.to_thread(
            wait_until, lambda: query.plan() == {} and len(other.assignment) == 1
        )
        appear(log, 2, 1)
        appear(log, 3, 1)
        await asyncio.to_thread(wait_until, lambda: owned(query) == 2)
        await until(lambda: len(other.assignment) == 2)
        polling.cancel()
