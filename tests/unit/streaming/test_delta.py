"""What a Delta table demands of an append, and the statistics that its files get."""

from __future__ import annotations

import datetime as dt
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pytest

pytest.importorskip("deltalake", reason="Delta needs the extra `delta`")
pytest.importorskip("pyspark", reason="sinks need the extra `spark`")

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq

from coordinator.sources.file_systems import StorePath
from coordinator.spark.sinks.delta import DeltaSink
from coordinator.spark.sinks.delta_stats import stats_of
from coordinator.spark.sinks.protocol import Decision, SinkRefused
from tests.kit.sinks import Place

ROWS = pa.table({"a": [1, 2], "b": ["x", None]})


def table(
    folder, *, features=(), settings=None, a=None, a_is="long", may_be_null=True
) -> DeltaSink:
    """A table of the columns a and b, by its log as other writers leave it. a: its metadata."""
    fields = [
        {"name": "a", "type": a_is, "nullable": may_be_null, "metadata": a or {}},
        {"name": "b", "type": "string", "nullable": True, "metadata": {}},
    ]
    log = [
        {
            "protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}
            if features
            else {"minReaderVersion": 1, "minWriterVersion": 2}
        },
        {
            "metaData": {
                "id": "5f0b0d5c-0000-0000-0000-000000000000",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": fields}),
                "partitionColumns": [],
                "configuration": settings or {},
                "createdTime": 0,
            }
        },
    ]
    (folder / "_delta_log").mkdir(parents=True)
    text = "\n".join(map(json.dumps, log))
    (folder / "_delta_log" / f"{0:020}.json").write_text(text + "\n")
    return DeltaSink(str(folder))


NESTED = {"type": "struct", "fields": [
    {"name": "x", "type": "long", "nullable": False, "metadata": {}}
]}  # fmt: skip


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ({"features": ["rowTracking", "domainMetadata"]}, "asks its writers for rowTracking"),
        ({"features": ["fromTheFuture"]}, "asks its writers for fromTheFuture"),
        ({"settings": {"delta.enableInCommitTimestamps": "true"}}, "has timestamps in commits"),
        ({"settings": {"delta.columnMapping.mode": "name"}}, "column mapping by name"),
        ({"a": {"delta.generationExpression": "1"}}, "column a is generated"),
        ({"a": {"delta.identity.start": 1, "delta.identity.step": 1}}, "is an identity column"),
        ({"a_is": NESTED}, "column a has a field that may not be null"),
        (
            {"a_is": {"type": "array", "elementType": NESTED, "containsNull": True}},
            "column a has a field that may not be null",
        ),
        (
            {"a_is": {"type": "array", "elementType": "long", "containsNull": False}},
            "column a has a field that may not be null",
        ),
        ({"settings": {"delta.constraints.positive": "a > 0"}}, "only Spark .*constraint positive"),
        ({"may_be_null": False}, "only Spark can ask rows for column a, which may not be null"),
    ],
)
def test_what_the_sink_cannot_keep_is_refused_by_its_name(tmp_path, made, message):
    with pytest.raises(SinkRefused, match=message):
        table(tmp_path / "t", **made).stage(ROWS, "s")
    assert not list(tmp_path.rglob("*.parquet"))


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ({"may_be_null": False}, "column a may not be null, and the rows do not have it"),
        ({"a": {"CURRENT_DEFAULT": "7"}}, "column a has a default, and the rows do not have it"),
    ],
)
def test_rows_without_a_column_that_has_to_have_a_value_are_refused(tmp_path, made, message):
    with pytest.raises(SinkRefused, match=message):
        table(tmp_path / "t", **made).stage(ROWS.select(["b"]), "s")


def test_queries_that_make_a_table_at_the_same_time_all_stage_rows(tmp_path):
    for round_number in range(20):
        start = threading.Barrier(4)

        def stage(number, folder=str(tmp_path / f"t{round_number}"), start=start) -> bool:
            sink = DeltaSink(folder)
            start.wait()
            return bool(sink.stage(ROWS, f"{number}"))

        with ThreadPoolExecutor(4) as threads:
            assert all(threads.map(stage, range(4)))


def test_features_that_ask_nothing_of_an_append_are_welcome(tmp_path):
    features = [
        "appendOnly",
        "invariants",
        "changeDataFeed",
        "generatedColumns",
        "checkConstraints",
    ]
    sink = table(tmp_path / "t", features=features, settings={"delta.appendOnly": "true"})
    assert sink.stage(ROWS, "s")


# --- Statistics ---


def stats(path, table) -> dict:
    pq.write_table(table, path, row_group_size=2)
    return json.loads(stats_of(StorePath.of(str(path))))


def test_bounds_are_those_of_all_row_groups_and_no_narrower(tmp_path):
    late = dt.datetime(2026, 11, 29, 1, 2, 3, 456_789, dt.UTC)
    told = stats(
        tmp_path / "a.parquet",
        pa.table(
            {
                "n": [3, None, -1, 9],
                "text": ["b", "a" * 50, "z" * 50, None],
                "real": [1.5, float("nan"), 7.0, 2.0],
                "at": pa.array([late, late, None, late], pa.timestamp("us", "UTC")),
                "wall": pa.array([late.replace(tzinfo=None)] * 4, pa.timestamp("us")),
                "day": [dt.date(2026, 1, 2)] * 4,
                "dec": [Decimal("1.1")] * 4,
                "flag": [True, False, None, True],
                "raw": [b"a"] * 4,
                "void": pa.array([None] * 4, pa.int64()),
                "far": pa.array([2**62] * 4, pa.timestamp("us")),
                "deep": [{"x": 1}] * 4,
            }
        ),
    )
    assert told["numRecords"] == 4
    assert told["minValues"] == {
        "n": -1, "text": "a" * 32, "real": 1.5, "at": "2026-11-29T01:02:03.456Z",
        "wall": "2026-11-29T01:02:03.456", "day": "2026-01-02",
    }  # fmt: skip
    assert told["maxValues"] == {
        "n": 9, "text": "z" * 32 + "\U0010ffff", "at": "2026-11-29T01:02:03.457Z",
        "wall": "2026-11-29T01:02:03.457", "day": "2026-01-02",
    }  # fmt: skip
    nulls = {"n": 1, "text": 1, "at": 1, "flag": 1, "void": 4}
    flat = ("n", "text", "real", "at", "wall", "day", "dec", "flag", "raw", "void", "far")
    assert told["nullCount"] == {name: nulls.get(name, 0) for name in flat}


def test_a_table_has_the_statistics_of_what_was_staged(tmp_path):
    sink = table(tmp_path / "t")
    sink.commit(sink.stage(ROWS, "s"), Decision("g", 1, "n"))
    (row,) = pa.table(
        deltalake.DeltaTable(tmp_path / "t").get_add_actions(flatten=True)
    ).to_pylist()
    assert (row["num_records"], row["min.a"], row["max.a"], row["null_count.b"]) == (2, 1, 2, 1)


@pytest.mark.parametrize(
    ("kind", "by"), [("delta", "a VACUUM"), ("iceberg", "remove_orphan_files")]
)
def test_a_staged_file_that_somebody_has_deleted_is_told_in_words(tmp_path, kind, by):
    pytest.importorskip("pyiceberg")
    sink = Place(kind, str(tmp_path)).sink()
    token = sink.stage(ROWS, "s")
    for path in tmp_path.rglob("*.parquet"):
        path.unlink()
    decision = Decision("g", 1, "n", token, offsets={("t", 0): 2})
    with pytest.raises(SinkRefused, match=rf"is gone: .*{by} .*ends at \{{\('t', 0\): 2\}}"):
        sink.commit(token, decision)
    assert sink.recover(decision) == 0
