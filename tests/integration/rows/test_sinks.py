"""One suite for every sink: a kill and a pause between any two steps, zombies, lost answers.

On disk; `test_sinks_in_s3.py` takes what concerns the store to S3.
"""

from __future__ import annotations

import asyncio
import pickle
import random
import threading
from collections import Counter
from types import SimpleNamespace

import grpc
import pyarrow as pa
import pytest

from coordinator.assignors import TopicPartition
from coordinator.operator.admin import GroupAdmin
from coordinator.sources import BadLayout, FileLog
from coordinator.spark.ranges import MANIFESTS, NO_BATCH, BatchRanges, OffsetRange
from coordinator.spark.sinks.deciding import STEPS
from coordinator.spark.sinks.protocol import Decision, SinkRefused
from coordinator.spark.sinks.writer import BatchWriter
from tests.kit.patience import HANG_S
from tests.kit.serving import running
from tests.kit.sinks import (
    GROUP,
    KINDS,
    NOTHING,
    OWN,
    PARTITIONS,
    TOPIC,
    Place,
    everything,
    plan,
    query,
    rows_of,
)


@pytest.fixture(params=[*KINDS, OWN])
def place(request, tmp_path):
    return Place(request.param, str(tmp_path))


@pytest.fixture
async def server():
    async with running() as server:
        yield server


class Killed(BaseException):
    """The process ends here, and nothing of it is left."""


def batch(**ends: tuple[int, int, int]) -> BatchRanges:
    """Ranges by partition: begin, end, stored."""
    return BatchRanges(1, {int(p[1:]): OffsetRange(*r) for p, r in ends.items()})


FIRST = batch(p0=(0, 4, -1), p1=(0, 2, -1))
SECOND = batch(p0=(4, 7, 4))
OTHERS = batch(p2=(0, 3, -1))


@pytest.mark.parametrize("step", STEPS)
async def test_a_kill_between_any_two_steps_leaves_each_row_once(server, place, step):
    def dies(at: str) -> None:
        if at == step:
            raise Killed

    def story():
        query(place, server.address).write(rows_of(OTHERS), OTHERS)
        victim = query(place, server.address, dies)
        with pytest.raises(Killed):
            victim.write(rows_of(FIRST), FIRST)
        # The next query runs the batch again, as Spark does, or begins where the group is.
        successor = query(place, server.address)
        counted = successor.write(rows_of(FIRST), FIRST)
        assert counted == (step not in ("decided", "followed"))
        assert place.rows(server.address) == counter(OTHERS, FIRST)
        assert successor.write(rows_of(SECOND), SECOND)
        assert place.rows(server.address) == counter(OTHERS, FIRST, SECOND)

    await asyncio.to_thread(story)


async def test_a_batch_without_rows_looks_at_the_table_and_decides_nothing(server, place):
    def story():
        exact = query(place, server.address)
        assert exact.write(rows_of(NO_BATCH), NO_BATCH)
        assert exact.recover().number == 0
        assert exact.write(rows_of(FIRST), FIRST)
        staged = place.staged()
        assert exact.write(rows_of(NO_BATCH), NO_BATCH)
        assert (exact.recover().number, place.staged()) == (1, staged)
        assert place.rows(server.address) == counter(FIRST)

    await asyncio.to_thread(story)


@pytest.mark.parametrize("step", STEPS)
async def test_a_pause_between_any_two_steps_while_others_go_on(server, place, step):
    reached, go_on = threading.Event(), threading.Event()

    def pauses(at: str) -> None:
        if at == step and not reached.is_set():
            reached.set()
            assert go_on.wait(HANG_S)

    before, others = batch(p2=(0, 1, -1)), batch(p2=(1, 3, 1))

    async def story():
        await asyncio.to_thread(query(place, server.address).write, rows_of(before), before)
        zombie = query(place, server.address, pauses)
        late = asyncio.create_task(asyncio.to_thread(zombie.write, rows_of(FIRST), FIRST))
        assert await asyncio.to_thread(reached.wait, HANG_S)
        await asyncio.to_thread(meanwhile)
        go_on.set()
        counted = await late
        assert counted == (step in ("decided", "followed"))
        assert await asyncio.to_thread(place.rows, server.address) == expected
        third = batch(p1=(2, 5, 2))
        assert await asyncio.to_thread(zombie.write, rows_of(third), third)
        assert await asyncio.to_thread(place.rows, server.address) == expected + counter(third)

    expected = counter(before, FIRST, SECOND, others)

    def meanwhile():
        successor = query(place, server.address)
        successor.write(rows_of(FIRST), FIRST)
        assert successor.write(rows_of(SECOND), SECOND)
        assert query(place, server.address).write(rows_of(others), others)
        assert place.rows(server.address) == expected

    await story()


async def test_what_a_zombie_has_staged_is_dropped(server, place):
    def story():
        assert query(place, server.address).write(rows_of(FIRST), FIRST)
        before = place.staged()
        assert not query(place, server.address).write(rows_of(FIRST), FIRST)
        assert place.staged() == before
        assert place.rows(server.address) == counter(FIRST)

    await asyncio.to_thread(story)


async def test_two_that_follow_the_same_decision_at_once_show_it_once(server, place):
    """The table itself is the fence: both have looked, and neither saw the number."""

    def decides_only():
        def dies(at: str) -> None:
            if at == "decided":
                raise Killed

        with pytest.raises(Killed):
            query(place, server.address, dies).write(rows_of(FIRST), FIRST)

    await asyncio.to_thread(decides_only)
    with GroupAdmin(server.address) as admin:
        stored, manifest = await asyncio.to_thread(admin.stored, GROUP)
    decision = Decision.from_manifest(GROUP, stored[MANIFESTS], manifest)
    sinks = [place.sink() for _ in range(4)]
    start = threading.Barrier(len(sinks))

    def follow(sink):
        start.wait(HANG_S)
        sink.commit(decision.token, decision)

    await asyncio.gather(*(asyncio.to_thread(follow, sink) for sink in sinks))
    assert await asyncio.to_thread(place.rows, server.address) == counter(FIRST)


async def test_recover_finishes_what_was_decided_and_no_more(server, place):
    def dies(at: str) -> None:
        if at == "decided":
            raise Killed

    def story():
        with pytest.raises(Killed):
            query(place, server.address, dies).write(rows_of(FIRST), FIRST)
        successor = query(place, server.address)
        assert successor.recover().number == 1
        assert successor.recover().offsets == {(TOPIC, 0): 4, (TOPIC, 1): 2}
        assert place.rows(server.address) == counter(FIRST)

    await asyncio.to_thread(story)


async def test_a_batch_without_rows_moves_the_offsets_alone(server, place):
    def story():
        exact = query(place, server.address)
        assert exact.write(NOTHING, FIRST)
        assert offsets(server) == {0: 4, 1: 2}
        assert exact.write(rows_of(SECOND), SECOND)
        assert exact.write(NOTHING, OTHERS)
        assert query(place, server.address).write(NOTHING, OTHERS), "done, and nothing to drop"
        assert offsets(server) == {0: 7, 1: 2, 2: 3}
        assert place.rows(server.address) == counter(SECOND)
        with GroupAdmin(server.address) as admin:
            assert admin.offsets(GROUP)[MANIFESTS] == 1

    await asyncio.to_thread(story)


async def test_an_answer_of_the_coordinator_that_is_lost_is_looked_up(server, place, monkeypatch):
    commit, lost = GroupAdmin.commit, []

    def loses_its_answer(self, *arguments, **more):
        found = commit(self, *arguments, **more)
        if not lost:
            lost.append(found)
            query(place, server.address).write(rows_of(SECOND), SECOND)
            raise grpc.RpcError
        return found

    monkeypatch.setattr(GroupAdmin, "commit", loses_its_answer)

    def story():
        assert query(place, server.address).write(rows_of(FIRST), FIRST)
        assert lost == [{}], "it had been carried out"
        assert place.rows(server.address) == counter(FIRST, SECOND)

    await asyncio.to_thread(story)


@pytest.mark.parametrize("place", ["delta", "iceberg", "sql"], indirect=True)
async def test_rows_that_do_not_fit_are_refused_before_anything_is_decided(server, place):
    """Files of Parquet have each a schema of their own."""

    def story():
        query(place, server.address).write(rows_of(OTHERS), OTHERS)
        wide = rows_of(FIRST).append_column("more", pa.array(["x"] * 6))
        with pytest.raises(SinkRefused, match="more"):
            query(place, server.address).write(wide, FIRST)
        assert offsets(server) == {2: 3}
        assert place.rows(server.address) == counter(OTHERS)

    await asyncio.to_thread(story)


async def test_rows_that_a_sql_table_would_refuse_are_refused_while_they_are_staged(
    server, tmp_path
):
    import sqlite3

    place = Place("sql", str(tmp_path))
    with sqlite3.connect(tmp_path / "results.db") as database:
        database.execute(
            "CREATE TABLE results (id INTEGER PRIMARY KEY, p BIGINT, n BIGINT NOT NULL)"
        )

    def story():
        assert query(place, server.address).write(rows_of(FIRST), FIRST)
        empty = pa.table({"p": [0], "n": pa.array([None], pa.int64())})
        with pytest.raises(Exception, match="NOT NULL"):
            query(place, server.address).write(empty, SECOND)
        assert offsets(server) == {0: 4, 1: 2}
        assert place.rows(server.address) == counter(FIRST)

    await asyncio.to_thread(story)


async def test_a_moment_is_the_same_in_a_sql_table_in_every_session_time_zone(server, tmp_path):
    """A database without time zones drops them, so all have to be in one."""
    import sqlite3

    place = Place("sql", str(tmp_path))

    def story():
        for zone, batch in (("America/New_York", FIRST), ("Asia/Tokyo", SECOND)):
            moment = pa.array([1_700_000_000_000_000], pa.timestamp("us", zone))
            assert query(place, server.address).write(pa.table({"at": moment}), batch)
        with sqlite3.connect(tmp_path / "results.db") as database:
            rows = database.execute("SELECT DISTINCT at FROM results").fetchall()
        assert rows == [("2023-11-14 22:13:20.000000",)]

    await asyncio.to_thread(story)


async def test_a_column_named_as_that_of_staged_rows_is_refused_by_name(server, tmp_path):
    place = Place("sql", str(tmp_path))
    for name in ("staged_by", "Staged_By"):
        rows = rows_of(FIRST).append_column(name, pa.array(["x"] * 6))
        with pytest.raises(SinkRefused, match=f"called {name}, .* rename it"):
            await asyncio.to_thread(query(place, server.address).write, rows, FIRST)
    assert await asyncio.to_thread(offsets, server) == {}


async def test_a_table_may_have_a_column_named_as_that_of_staged_rows(server, tmp_path):
    import sqlite3

    place = Place("sql", str(tmp_path))
    with sqlite3.connect(tmp_path / "results.db") as database:
        database.execute("CREATE TABLE results (p BIGINT, n BIGINT, staged_by TEXT DEFAULT 'me')")
    assert await asyncio.to_thread(query(place, server.address).write, rows_of(FIRST), FIRST)
    with sqlite3.connect(tmp_path / "results.db") as database:
        assert database.execute("SELECT DISTINCT staged_by FROM results").fetchall() == [("me",)]


def test_locations_of_iceberg_tables_tell_catalogs_apart_and_keep_their_secrets(tmp_path):
    from coordinator.spark.sinks.iceberg import IcebergSink

    def location(catalog: str, file: str, more: str = "") -> str:
        uri = f"sqlite:///{tmp_path}/{file}"
        properties = {"type": "sql", "uri": uri + more, "warehouse": str(tmp_path)}
        return IcebergSink("ns.table", catalog, properties).location

    one = location("lake", "one.db")
    assert one == f"iceberg:sqlite:///{tmp_path}/one.db#lake.ns.table"
    assert one not in (location("lake", "two.db"), location("sea", "one.db"))
    assert location("lake", "one.db", "?timeout=12") == one
    bare = IcebergSink("ns.table", "lake")
    bare._catalog = SimpleNamespace(properties={"uri": "https://me:secret@host/v1?token=secret"})
    assert bare.location == "iceberg:https://host/v1#lake.ns.table"


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
async def test_what_a_sink_has_written_is_no_source_of_files_from_inside_neither(
    server, tmp_path, kind
):
    place = Place(kind, str(tmp_path))
    await asyncio.to_thread(query(place, server.address).write, rows_of(FIRST), FIRST)
    files = list(tmp_path.rglob("*.parquet"))
    assert files
    for folder in {
        parent for file in files for parent in file.parents if tmp_path in parent.parents
    }:
        with pytest.raises(BadLayout, match=r"files are not all rows that count .*: read it with"):
            FileLog(str(folder), "t", "parquet").partitions()


async def test_another_table_of_the_same_group_is_refused(server, place):
    def story():
        for more in (OTHERS, FIRST):
            query(place, server.address).write(rows_of(more), more)
        other = BatchWriter(place.sink("another"), server.address, GROUP, TOPIC)
        with pytest.raises(SinkRefused, match="one group for each table"):
            other.write(rows_of(SECOND), SECOND)
        assert offsets(server) == {0: 4, 1: 2, 2: 3}

    await asyncio.to_thread(story)


async def test_a_group_that_was_deleted_goes_on_above_the_tables_number(server, place, caplog):
    def story():
        for more in (OTHERS, FIRST):
            query(place, server.address).write(rows_of(more), more)
        with GroupAdmin(server.address) as admin:
            assert admin.delete_group(GROUP) == "NONE"
        assert query(place, server.address).write(rows_of(FIRST), FIRST)
        assert place.rows(server.address)[0, 0] == (1 if place.kind == "parquet" else 2)
        assert place.kind == "parquet" or "written again" in caplog.text

    await asyncio.to_thread(story)


async def test_queries_that_race_for_the_same_rows_count_each_row_once(server, place):
    rows = 30

    def work(seed: int) -> int:
        dice, exact = random.Random(seed), query(place, server.address)
        misses = refused = 0
        while misses < 5:
            more = plan(server.address, dice, rows)
            misses = misses + 1 if more is None else 0
            refused += more is not None and not exact.write(rows_of(more), more)
        return refused

    refused = await asyncio.gather(*(asyncio.to_thread(work, seed) for seed in range(3)))
    counted = await asyncio.to_thread(place.rows, server.address)
    assert counted == everything(rows)
    assert sum(refused) > 0, "otherwise nobody raced"


def counter(*batches: BatchRanges) -> Counter:
    return Counter(
        (p, n) for one in batches for p, r in one.ranges.items() for n in range(r.begin, r.end)
    )


def offsets(server) -> dict[int, int]:
    with GroupAdmin(server.address) as admin:
        offsets = admin.offsets(GROUP)
    keys = [TopicPartition(TOPIC, p) for p in range(PARTITIONS)]
    return {key.partition: offsets[key] for key in keys if key in offsets}


def test_a_delta_table_is_read_once_and_then_brought_up_to_date(tmp_path, monkeypatch):
    import shutil

    import deltalake

    reads = []
    really = deltalake.DeltaTable.__init__
    monkeypatch.setattr(
        deltalake.DeltaTable, "__init__", lambda *a, **k: (reads.append(1), really(*a, **k))[1]
    )
    place = Place("delta", str(tmp_path))
    sinks = [place.sink(), place.sink()]
    decision = Decision(GROUP, 0)
    for number in range(6):
        sink = sinks[number % 2]
        decision = decision.following(
            f"n{number}", sink.stage(rows_of(FIRST), "x"), sink.location, {}
        )
        sink.commit(decision.token, decision)
        assert {each.recover(decision) for each in sinks} == {number + 1}
        if number == 3:
            shutil.copytree(place.location(), tmp_path / "older")
    assert len(reads) <= 4, "twice when there was none, once for each sink"
    # An older copy takes the table's place while queries run.
    shutil.rmtree(place.location())
    shutil.move(tmp_path / "older", place.location())
    assert {each.recover(decision) for each in sinks} == {4}
    assert pickle.loads(pickle.dumps(sinks[0])).recover(decision) == 4


def test_a_commit_to_iceberg_does_not_go_through_all_that_was_committed_before(
    tmp_path, monkeypatch
):
    """Snapshots that the sink copies, manifests of the table, and files of its metadata.

    The catalog itself reads and writes a file that names every snapshot; that is Iceberg's format.
    """
    from datetime import UTC, datetime

    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.table.snapshots import Snapshot

    copies, counts = 0, True
    copied, really = Snapshot.__deepcopy__, SqlCatalog.commit_table

    def copy(self, memo=None):
        nonlocal copies
        copies += counts
        return copied(self, memo)

    def commit_table(self, *arguments):
        nonlocal counts
        counts = False
        try:
            return really(self, *arguments)
        finally:
            counts = True

    monkeypatch.setattr(Snapshot, "__deepcopy__", copy)
    monkeypatch.setattr(SqlCatalog, "commit_table", commit_table)
    place, decision, of_commits = Place("iceberg", str(tmp_path)), Decision(GROUP, 0), []
    sink = place.sink()
    sink.stage(rows_of(FIRST), "makes-the-table")
    with place._table("results").transaction() as transaction:
        transaction.set_properties(
            {
                "commit.manifest.min-count-to-merge": "4",
                "write.metadata.previous-versions-max": "6",
            }
        )
    for number in range(16):
        token = sink.stage(rows_of(FIRST), f"n{number}")
        decision = decision.following(f"n{number}", token, sink.location, {})
        copies = 0
        sink.commit(token, decision)
        of_commits.append(copies)
        table = place._table("results")
        assert len(table.current_snapshot().manifests(table.io)) <= 4
        assert len(list(tmp_path.rglob("*.metadata.json"))) <= 7
    assert len(table.snapshots()) == 16
    # One that merges manifests copies a little more.
    assert max(of_commits[8:]) == max(of_commits[:8]), of_commits
    assert place.rows("") == Counter(dict.fromkeys(counter(FIRST), 16))
    table.maintenance.expire_snapshots().older_than(datetime.now(UTC)).commit()
    assert len(place._table("results").snapshots()) == 1
    assert sink.recover(decision) == 16
    sink.commit(token, decision)
    assert place.rows("").total() == 16 * counter(FIRST).total()


def test_a_namespace_that_another_query_makes_at_the_same_moment_is_taken(tmp_path, monkeypatch):
    from pyiceberg.catalog.sql import SqlCatalog

    place, met = Place("iceberg", str(tmp_path)), []
    exists = SqlCatalog.namespace_exists

    def is_overtaken(self, name):
        found = exists(self, name)
        if not met:
            met.append(name)
            self.create_namespace(name)
        return found

    monkeypatch.setattr(SqlCatalog, "namespace_exists", is_overtaken)
    assert place.sink().stage(rows_of(FIRST), "one")
    assert met


def partitioned(place: Place, by: list[str], schema: pa.Schema) -> None:
    """Make the Delta table of a place."""
    import deltalake

    deltalake.DeltaTable.create(
        place.location(), deltalake.Schema.from_arrow(schema), partition_by=by
    )


@pytest.mark.parametrize("step", STEPS)
async def test_a_kill_over_a_partitioned_delta_table_leaves_each_row_once(server, tmp_path, step):
    place = Place("delta", str(tmp_path))
    partitioned(place, ["p"], NOTHING.schema)

    def dies(at: str) -> None:
        if at == step:
            raise Killed

    def story():
        query(place, server.address).write(rows_of(OTHERS), OTHERS)
        with pytest.raises(Killed):
            query(place, server.address, dies).write(rows_of(FIRST), FIRST)
        query(place, server.address).write(rows_of(FIRST), FIRST)
        assert place.rows(server.address) == counter(OTHERS, FIRST)

    await asyncio.to_thread(story)


async def test_the_values_of_a_partitioned_delta_table_come_back_as_they_were(server, tmp_path):
    from datetime import date

    import deltalake

    place = Place("delta", str(tmp_path))
    columns = {
        "day": pa.array([date(2026, 11, 21), None, date(2026, 11, 21)]),
        "text": pa.array(["a=b/c %2F é ", None, "a=b/c %2F é "]),
        "number": pa.array([-7, 7, -7], pa.int32()),
        "sign": pa.array([True, None, True]),
        "n": pa.array([1, 2, 3], pa.int64()),
    }
    rows = pa.table(columns)
    partitioned(place, ["sign", "text", "day", "number"], rows.schema)
    assert await asyncio.to_thread(query(place, server.address).write, rows, FIRST)
    table = deltalake.DeltaTable(place.location()).to_pyarrow_table()
    assert table.sort_by("n").select(rows.column_names).to_pylist() == rows.to_pylist()
    assert place.staged() == 2, "a file for each value"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"n": [1]}, "partitioned by day, which the rows do not have"),
        ({"n": [1], "day": [""]}, "column day has an empty text"),
        ({"n": [1] * 101, "day": [str(n) for n in range(101)]}, r"rows.repartition\(day\)"),
    ],
)
async def test_rows_that_have_no_place_in_a_partitioned_delta_table_are_refused(
    server, tmp_path, rows, message
):
    place = Place("delta", str(tmp_path))
    partitioned(place, ["day"], pa.schema([("n", pa.int64()), ("day", pa.string())]))
    with pytest.raises(SinkRefused, match=message):
        await asyncio.to_thread(query(place, server.address).write, pa.table(rows), FIRST)
    assert await asyncio.to_thread(offsets, server) == {}


def test_a_delta_table_partitioned_by_a_type_with_several_texts_is_refused(tmp_path):
    place = Place("delta", str(tmp_path))
    rows = pa.table({"n": [1], "share": [0.1]})
    partitioned(place, ["share"], rows.schema)
    with pytest.raises(SinkRefused, match=r"share, which is .*double.*: this sink writes"):
        place.sink().stage(rows, "x")


def test_a_delta_table_that_was_partitioned_anew_meanwhile_is_refused(tmp_path):
    import shutil

    place = Place("delta", str(tmp_path))
    sink = place.sink()
    token = sink.stage(rows_of(FIRST), "x")
    shutil.rmtree(f"{place.location()}/_delta_log")
    partitioned(place, ["p"], NOTHING.schema)
    decision = Decision(GROUP, 0).following("x", token, sink.location, {})
    with pytest.raises(SinkRefused, match="partitioned anew, by p"):
        sink.commit(token, decision)


def test_a_partitioned_iceberg_table_is_refused_with_advice(tmp_path):
    from pyiceberg.transforms import IdentityTransform

    place = Place("iceberg", str(tmp_path))
    place.sink().stage(rows_of(FIRST), "one")
    with place._table("results").update_spec() as spec:
        spec.add_field("p", IdentityTransform())
    with pytest.raises(SinkRefused, match=r"is partitioned, .* or write a Delta table"):
        place.sink().stage(rows_of(FIRST), "two")


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ({"newest": 1}, "is of format version 2, and this sink writes up to 1"),
        ({"required": True}, "(?s)does not take the rows: .*change the table's schema"),
    ],
)
def test_what_an_iceberg_table_demands_and_the_sink_cannot_keep_is_refused(
    tmp_path, made, message, monkeypatch
):
    from pyiceberg.schema import Schema
    from pyiceberg.types import LongType, NestedField

    from coordinator.spark.sinks import iceberg

    place = Place("iceberg", str(tmp_path))
    sink = place.sink()
    catalog = sink._opened()
    catalog.create_namespace("ns")
    is_required = made.get("required", False)
    schema = Schema(
        NestedField(1, "p", LongType(), required=is_required), NestedField(2, "n", LongType())
    )
    catalog.create_table("ns.results", schema)
    # No version of pyiceberg makes a table that it cannot write.
    monkeypatch.setattr(iceberg, "NEWEST_FORMAT", made.get("newest", iceberg.NEWEST_FORMAT))
    with pytest.raises(SinkRefused, match=message):
        sink.stage(NOTHING, "s")
