"""Logs that change in front of what was read, and offsets that are reset: readers are told.

The source's reader without Spark, and plain workers, over files as Spark would write them.
"""

from __future__ import annotations

import asyncio
import json
import logging
from datetime import datetime

import pytest

pytest.importorskip("pyspark", reason="streams need the extra `spark`")

import pyarrow as pa
import pyarrow.parquet as pq

from coordinator.assignors import TopicPartition
from coordinator.cli import reset
from coordinator.cli.log_offsets import LogOffsets
from coordinator.cli.partitions import selection
from coordinator.client import BlockingMember
from coordinator.commit_metadata import parsed
from coordinator.operator.admin import GroupAdmin
from coordinator.sources import BadLayout, LogChanged, NothingFound, open_source
from coordinator.sources.group import consume
from coordinator.spark.options import StreamOptions
from coordinator.spark.planner import BatchPlanner
from coordinator.spark.ranges import MANIFESTS
from coordinator.spark.stream import GroupStreamReader
from tests.integration.waiting import until, wait_until
from tests.kit.serving import running

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
A, B, C = (f"part-00000-{letter * 8}.snappy.parquet" for letter in "abc")


READERS: list[GroupStreamReader] = []


@pytest.fixture
async def server():
    async with running() as server:
        yield server
        for reader in READERS:
            await asyncio.to_thread(reader.stop)
        READERS.clear()


@pytest.fixture
def log(tmp_path):
    """Ten rows in each of two partitions."""
    for number in (0, 1):
        (tmp_path / "log" / str(number)).mkdir(parents=True)
        write(tmp_path / "log" / str(number) / B, 10)
    return tmp_path / "log"


def write(path, rows: int) -> None:
    pq.write_table(pa.table({"n": range(rows)}), path)


class Query:
    """The calls that Spark makes of the reader; `restart` keeps what its checkpoint would."""

    def __init__(self, server, log, **options) -> None:
        given = {"coordinator": server.address, "group": "g", "topic": "t"}
        self.options = {**given, "source": f"parquet:{log}", **options}
        self.done = None
        self.start()

    def start(self) -> None:
        self.reader = GroupStreamReader(StreamOptions.parse(self.options))
        READERS.append(self.reader)
        self.done = json.loads(json.dumps(self.done or self.reader.initialOffset()))

    def restart(self) -> None:
        self.reader.stop()
        self.start()

    def plan(self) -> dict:
        """The ranges of the next batch, which is not done yet."""
        self.planned = self.reader.latestOffset(self.done, self.reader.getDefaultReadLimit())
        if self.planned == self.done:
            return {}
        return {p: (r["begin"], r["end"]) for p, r in self.planned["ranges"].items()}

    def run(self, reader=None) -> int:
        """Do the batch that was planned; its rows."""
        reader = reader or self.reader
        parts = reader.partitions(self.done, self.planned)
        rows = sum(b.num_rows for part in parts for b in reader.read(part))
        self.done = self.planned
        return rows

    def batch(self) -> int:
        self.plan()
        return self.run()


def stored(server) -> dict[TopicPartition, int]:
    with GroupAdmin(server.address) as admin:
        return admin.offsets("g")


def reset_offsets(server, offset: int, *topics: str) -> None:
    with GroupAdmin(server.address) as admin:
        current = admin.offsets("g")
        chosen = [selection(topic) for topic in topics]
        plan = reset.plan(current, chosen, reset.Target(offset=offset), LogOffsets())
        reset.execute(admin, "g", plan.offsets, current)


# --- Files that come and change ---------------------------------------------------------------


async def test_a_file_whose_name_sorts_in_front_is_read_behind_what_was_read(server, log):
    def story():
        query = Query(server, log)
        assert query.batch() == 20
        write(log / "0" / C, 3)
        assert query.batch() == 3
        write(log / "1" / A, 2)
        write(log / "0" / "part-00000-dddddddd.parquet", 2)
        assert query.plan() == {"0": (13, 15), "1": (10, 12)}
        assert query.run() == 4
        assert query.plan() == {}
        query.reader.stop()
        assert stored(server) == {T0: 15, T1: 12}

    await asyncio.to_thread(story)


@pytest.mark.parametrize("who", ["the query, restarted", "another query", "a batch read", "worker"])
async def test_a_file_that_came_while_nobody_looked_is_read_by_whoever_reads_on(server, log, who):
    def story():
        query = Query(server, log)
        query.batch()
        query.reader.commit(query.done)
        query.reader.stop()
        write(log / "0" / A, 2)
        query.restart()
        other = Query(server, log)
        read_on = {
            "the query, restarted": query.batch,
            "another query": other.batch,
            "a batch read": lambda: batch_read(query.options),
            "worker": lambda: work(server, log).rows,
        }
        assert read_on[who]() == 2


def batch_read(options: dict[str, str]) -> int:
    """Rows that a batch read plans."""
    planner = BatchPlanner(StreamOptions.parse(options).in_group(), scans_files=True)
    try:
        planner.begin(may_store=True)
        planner.read_until_now()
        batch = planner.next_batch(1, None)
        return 0 if batch is None else sum(r.end - r.begin for r in batch.ranges.values())
    finally:
        planner.close("read")


@pytest.mark.parametrize("who", ["the query, restarted", "another query", "a batch read", "worker"])
async def test_a_file_that_was_written_over_fails_whoever_reads_on(server, log, who):
    def story():
        query = Query(server, log)
        query.batch()
        query.reader.commit(query.done)
        query.reader.stop()
        write(log / "0" / B, 9)
        query.restart()
        read_on = {
            "the query, restarted": query.plan,
            "another query": Query(server, log).plan,
            "a batch read": lambda: batch_read(query.options),
            "worker": lambda: work(server, log),
        }
        with pytest.raises(LogChanged, match=f"0/{B} was written over since the group"):
            read_on[who]()
        assert stored(server) == {T0: 10, T1: 10}

    await asyncio.to_thread(story)


async def test_files_that_come_between_plan_and_task_change_nothing_of_the_batch(server, log):
    def story():
        query = Query(server, log)
        query.plan()
        write(log / "0" / A, 2)
        assert query.run() == 20
        done, query.done = query.done, query.reader.initialOffset()
        query.restart()
        query.planned = done
        assert query.run() == 20, "the same rows, from the checkpoint"
        assert query.batch() == 2
        query.reader.stop()

    await asyncio.to_thread(story)


async def test_a_file_that_is_written_over_between_plan_and_task_fails_the_task(server, log):
    def story():
        query = Query(server, log)
        query.plan()
        write(log / "0" / B, 11)
        with pytest.raises(LogChanged, match=f"0/{B} was written over"):
            query.run()
        (log / "0" / B).unlink()
        with pytest.raises(LogChanged, match=f"0/{B} is gone"):
            query.run()
        query.reader.stop()

    await asyncio.to_thread(story)


async def test_a_query_that_began_at_the_latest_row_reads_a_file_whose_name_sorts_in_front(
    server, log
):
    def story():
        query = Query(server, log, startingOffsets="latest")
        assert query.plan() == {}
        write(log / "0" / A, 2)
        assert query.batch() == 2
        query.reader.stop()

    await asyncio.to_thread(story)


async def test_a_file_that_was_read_may_be_deleted_and_one_that_was_not_is_loss(
    server, log, caplog
):
    def story():
        query = Query(server, log, maxRowsPerBatch="100")
        query.batch()
        write(log / "0" / C, 3)
        assert query.batch() == 3
        (log / "0" / B).unlink()
        write(log / "0" / A, 2)
        write(log / "0" / "z.parquet", 4)
        assert query.plan() == {"0": (13, 19)}
        query.reader.stop()
        (log / "0" / A).unlink()
        query = Query(server, log)
        with pytest.raises(LogChanged, match="is gone, which the group has recorded"):
            query.plan()
        query.reader.stop()
        query = Query(server, log, failOnDataLoss="false")
        assert query.plan() == {"0": (13, 19)}
        assert "began at offset 13" in caplog.text
        assert query.run() == 4
        query.reader.stop()

    await asyncio.to_thread(story)


async def test_a_log_whose_directory_is_removed_fails_the_query(server, log):
    def story():
        query = Query(server, log)
        query.batch()
        log.rename(log.with_name("moved"))
        with pytest.raises(FileNotFoundError, match="log"):
            query.plan()
        query.reader.stop()

    await asyncio.to_thread(story)


async def test_offsets_that_were_committed_without_marks_are_taken(server, log):
    def story():
        with GroupAdmin(server.address) as admin:
            admin.commit("g", {T0: 4, T1: 10}, expected={T0: -1, T1: -1}, metadata={T0: "", T1: ""})
        query = Query(server, log)
        assert query.plan() == {"0": (4, 10)}
        query.run()
        query.restart()
        assert query.plan() == {}
        assert stored(server) == {T0: 10, T1: 10}
        query.reader.stop()

    await asyncio.to_thread(story)


async def test_a_coordinator_that_takes_no_metadata_is_no_reason_to_stop(tmp_path, log):
    async with running(offset_metadata_max_bytes=0) as server:

        def story():
            query = Query(server, log)
            assert query.batch() == 20
            query.plan()
            assert stored(server) == {T0: 10, T1: 10}
            query.reader.stop()
            reset_offsets(server, 3)
            assert stored(server) == {T0: 3, T1: 3}
            assert work(server, log).rows == 14
            with GroupAdmin(server.address) as admin:
                assert admin.commit("g", {T0: 5}) == {}
            assert stored(server) == {T0: 5, T1: 10}

        await asyncio.to_thread(story)


# --- Plain workers ----------------------------------------------------------------------------


class Noting:
    """`Work` that does something to the log after so many rows."""

    def __init__(self, after: int = 0, then=None) -> None:
        self.after, self.then, self.rows = after, then, 0

    def resume(self, partition, offset) -> None:
        pass

    def add(self, partition, batch) -> None:
        self.rows += batch.num_rows
        if self.then is not None and self.rows >= self.after:
            self.then()
            self.then = None

    def store(self, partition, offset) -> None:
        pass


def work(server, log, *, noting: Noting | None = None, partitions: int = 2, **settings):
    source = open_source(f"parquet:{log}", "t")
    topics = {"t": partitions}
    with BlockingMember(server.address, "g", topics, session_timeout_ms=30_000) as member:
        return consume(member, source, noting or Noting(), rows_per_commit=4, **settings)


async def test_a_worker_stops_at_a_file_that_was_written_over(server, log):
    def story():
        noting = Noting(8, lambda: (write(log / "0" / B, 9), write(log / "1" / B, 9)))
        with pytest.raises(LogChanged, match=B):
            work(server, log, noting=noting)
        assert sum(stored(server).values()) == noting.rows

    await asyncio.to_thread(story)


async def test_a_worker_at_the_ends_of_logs_that_grow_notices_that_one_has_shrunk(server, log):
    def story():
        noting = Noting(20, lambda: write(log / "1" / B, 9))
        with pytest.raises(LogChanged, match=rf"1/{B} (was written over|has shrunk)"):
            work(server, log, noting=noting, forever=True)

    await asyncio.to_thread(story)


async def test_a_worker_goes_on_where_an_operator_has_set_the_offset_meanwhile(server, log):
    def story():
        def go_back():
            with GroupAdmin(server.address) as admin:
                admin.commit("g", {T1: 1}, expected={T1: 4}, metadata={T1: ""})

        noting = Noting(14, go_back)  # In the middle of partition 1, behind 4.
        summary = work(server, log, noting=noting)
        assert stored(server) == {T0: 10, T1: 10}
        assert summary.rows == 10 + 4 + 9
        assert noting.rows == summary.rows + 4, "the refused batch does not count"

    await asyncio.to_thread(story)


async def test_a_member_that_is_closed_meanwhile_ends_its_worker(server, log):
    def story():
        source = open_source(f"parquet:{log}", "t")
        with BlockingMember(server.address, "g", {"t": 2}) as member:
            with pytest.raises(RuntimeError, match="has stopped meanwhile: enough"):
                consume(member, source, Noting(8, lambda: member.close("enough")))
        with pytest.raises(RuntimeError, match="never started"):
            consume(member, source, Noting())

    await asyncio.to_thread(story)


async def test_a_member_that_has_polled_before_and_is_used_after_it(server, log):
    def story():
        source = open_source(f"parquet:{log}", "t")
        with BlockingMember(server.address, "g", {"t": 2}) as member:
            wait_until(lambda: member.poll(timeout=0.1) and member.assignment)
            assert consume(member, source, Noting()).rows == 20
            assert member.assignment == {T0, T1}
            member.commit({T0: 3})
            assert member.poll(timeout=0.0) == []
        assert stored(server) == {T0: 3, T1: 10}

    await asyncio.to_thread(story)


async def test_a_worker_without_anything_to_work_on_fails_unless_that_is_allowed(server, tmp_path):
    def story():
        with pytest.raises(NothingFound, match="nothing was found in t"):
            work(server, tmp_path)
        assert work(server, tmp_path, partitions=0, allow_empty=True).rows == 0
        (tmp_path / "new").mkdir()
        write(tmp_path / "new" / A, 1)
        with pytest.raises(BadLayout, match=A):
            work(server, tmp_path, allow_empty=True)

    await asyncio.to_thread(story)


@pytest.mark.parametrize("rows", [0, -1])
async def test_a_commit_of_no_rows_is_refused(server, log, rows):
    with pytest.raises(ValueError, match=f"rows_per_commit is {rows}"):
        consume(None, open_source(f"parquet:{log}"), Noting(), rows_per_commit=rows)


# --- Sources without anything -----------------------------------------------------------------


async def test_a_query_over_nothing_fails_unless_that_is_allowed(server, tmp_path):
    def story():
        query = Query(server, tmp_path)
        with pytest.raises(NothingFound, match=r"nothing was found in t: .*allowEmpty"):
            query.plan()
        with pytest.raises(NothingFound):
            batch_read(query.options)
        query = Query(server, tmp_path, allowEmpty="true")
        assert query.plan() == {}
        query.reader.stop()

    await asyncio.to_thread(story)


async def test_starting_offsets_of_a_partition_that_is_not_there_are_refused(server, log):
    def story():
        query = Query(server, log, startingOffsets='{"0": 3, "7": 3}')
        with pytest.raises(ValueError, match="names partition 7, and t has those from 0 to 1"):
            query.plan()

    await asyncio.to_thread(story)


# --- Offsets that are reset -------------------------------------------------------------------


def stopped_behind_two_batches(server, log) -> Query:
    """The last batch was from 4 to 8 in each partition, and is stored."""
    query = Query(server, log, maxRowsPerBatch="8")
    query.batch()
    query.batch()
    query.reader.commit(query.done)
    query.reader.stop()
    return query


async def test_a_reset_to_where_the_last_batch_began_is_not_undone_by_the_checkpoint(
    server, log, caplog
):
    def story():
        query = stopped_behind_two_batches(server, log)
        assert stored(server) == {T0: 8, T1: 8}
        reset_offsets(server, 4)
        query.restart()
        assert query.plan() == {"0": (4, 8), "1": (4, 8)}
        assert stored(server) == {T0: 4, T1: 4}
        (line,) = [r for r in caplog.records if "were set by reset-offsets at" in r.message]
        assert line.levelno == logging.WARNING
        assert "{'t-0': 4, 't-1': 4}" in line.message
        query.run()
        query.reader.commit(query.done)
        assert stored(server) == {T0: 8, T1: 8}
        # And once more: the offsets are the same, and so is the tool.
        query.reader.stop()
        reset_offsets(server, 4)
        query.restart()
        assert query.plan() == {"0": (4, 8), "1": (4, 8)}
        query.reader.stop()

    await asyncio.to_thread(story)


async def test_a_reset_of_one_partition_is_not_undone_and_the_other_is_stored(server, log):
    def story():
        query = Query(server, log, maxRowsPerBatch="8")
        query.batch()
        query.batch()
        query.reader.stop()  # The second batch is done, and was not stored.
        assert stored(server) == {T0: 4, T1: 4}
        reset_offsets(server, 4, "t:0")
        query.restart()
        assert query.plan() == {"0": (4, 10), "1": (8, 10)}
        assert stored(server) == {T0: 4, T1: 8}
        query.reader.stop()

    await asyncio.to_thread(story)


async def test_a_reset_elsewhere_is_told_as_one(server, log, caplog):
    def story():
        query = Query(server, log)
        query.batch()
        query.reader.commit(query.done)
        query.reader.stop()
        reset_offsets(server, 2)
        query.restart()
        assert query.plan() == {"0": (2, 10), "1": (2, 10)}
        assert "were set by reset-offsets at" in caplog.text
        query.reader.stop()

    await asyncio.to_thread(story)


async def test_a_script_that_sets_offsets_back_is_not_undone_either(server, log):
    def story():
        query = stopped_behind_two_batches(server, log)
        with GroupAdmin(server.address) as admin:
            assert not admin.commit("g", {T0: 4, T1: 4}, expected={T0: 8, T1: 8})
        query.restart()
        assert query.plan() == {"0": (4, 8), "1": (4, 8)}
        query.reader.stop()

    await asyncio.to_thread(story)


async def test_without_a_reset_a_batch_that_was_not_stored_is_stored_on_restart(
    server, log, caplog
):
    def story():
        query = Query(server, log, maxRowsPerBatch="8")
        query.batch()
        query.batch()
        query.reader.stop()
        query.restart()
        query.plan()
        assert stored(server) == {T0: 8, T1: 8}
        assert "were set" not in caplog.text
        query.reader.stop()

    await asyncio.to_thread(story)


async def test_offsets_that_were_deleted_and_a_first_batch_are_told_apart_by_a_warning(
    server, log, caplog
):
    def story():
        query = Query(server, log)
        query.batch()
        query.restart()
        query.plan()
        assert "use a new checkpointLocation" in caplog.text
        query.reader.stop()

    await asyncio.to_thread(story)


async def test_a_reset_while_the_querys_member_is_away_wins_over_the_batch_under_way(
    server, log, caplog
):
    """The batch takes too long, the member leaves, and the operator finds the group empty."""
    query = Query(server, log, maxRowsPerBatch="8")
    await asyncio.to_thread(query.batch)
    await asyncio.to_thread(query.batch)  # The second one is not stored yet.
    assert await asyncio.to_thread(stored, server) == {T0: 4, T1: 4}
    member = query.reader._planner.member
    member._member._machine.progress.alive(0)  # It has not polled since.
    member._on.loop.call_soon_threadsafe(member._member._driver.step)
    await until(lambda: member.generation < 0)
    await asyncio.to_thread(reset_offsets, server, 4)
    while not (planned := await asyncio.to_thread(query.plan)):
        pass  # It is joining again.
    assert planned == {"0": (4, 8), "1": (4, 8)}
    assert await asyncio.to_thread(stored, server) == {T0: 4, T1: 4}
    assert "outlived its partitions" in caplog.text
    assert "were set by reset-offsets at" in caplog.text


async def test_a_script_that_sets_offsets_under_a_batch_wins_for_all_that_it_sets(server, log):
    """One elsewhere, which is a mismatch, and one to just where the batch began, which is none."""

    def story():
        query = Query(server, log, maxRowsPerBatch="8")
        query.batch()
        query.batch()
        with GroupAdmin(server.address) as admin:
            assert not admin.commit("g", {T0: 6, T1: 4}, expected={T0: 4, T1: 4})
        assert query.plan() == {"0": (6, 10), "1": (4, 8)}
        assert stored(server) == {T0: 6, T1: 4}

    await asyncio.to_thread(story)


async def test_a_done_batch_is_stored_on_restart_before_changed_files_are_refused(server, log):
    def story():
        query = Query(server, log, maxRowsPerBatch="8")
        query.batch()
        query.batch()
        query.reader.stop()  # The second batch is done, and was not stored.
        write(log / "0" / B, 11)
        query.restart()
        with pytest.raises(LogChanged, match=B):
            query.plan()
        assert stored(server) == {T0: 8, T1: 8}, "what was read counts"

    await asyncio.to_thread(story)


async def test_an_exactly_once_sinks_reset_is_not_undone(server, log):
    def story():
        query = Query(server, log, maxRowsPerBatch="8")
        for number in (1, 2):
            query.plan()
            query.run()
            store_as_sink(server, query.done, number)
        query.reader.stop()
        reset_offsets(server, 4, "t:0,1")
        query.restart()
        assert query.plan() == {"0": (4, 8), "1": (4, 8)}
        assert stored(server) == {T0: 4, T1: 4, MANIFESTS: 2}
        query.reader.stop()

    def store_as_sink(server, offset, number):
        from coordinator.spark.ranges import BatchRanges

        batch = BatchRanges.from_offset(offset)
        commits = batch.commits("t")
        with GroupAdmin(server.address) as admin:
            refusals = admin.commit(
                "g",
                {**{key: c.offset for key, c in commits.items()}, MANIFESTS: number},
                expected={
                    **{key: batch.ranges[key.partition].stored for key in commits},
                    MANIFESTS: number - 1 or -1,
                },
                metadata={key: c.metadata for key, c in commits.items()},
            )
            assert not refusals

    await asyncio.to_thread(story)


async def test_a_reset_says_when_and_says_nothing_of_files(server, log):
    def story():
        query = Query(server, log)
        query.batch()
        query.restart()
        query.plan()
        query.reader.stop()
        with GroupAdmin(server.address) as admin:
            assert parsed(admin.offsets_with_metadata("g")[T0].metadata).mark
        reset_offsets(server, 2)
        with GroupAdmin(server.address) as admin:
            manifest = parsed(admin.offsets_with_metadata("g")[T0].metadata)
        assert datetime.fromisoformat(manifest.reset).tzinfo is not None
        assert manifest.mark == ""
        # So a log that has changed can be read anew.
        write(log / "0" / A, 2)
        assert Query(server, log).plan() == {"0": (2, 12), "1": (2, 10)}

    await asyncio.to_thread(story)
