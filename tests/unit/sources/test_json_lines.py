"""JSON lines as logs: rows that are malformed or compressed, times, and schemas that change."""

from __future__ import annotations

import bz2
import datetime as dt
import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coordinator.sources import BadRow, FileLog, LogChanged, open_source
from coordinator.sources.formats.json_lines import BadText

N = pa.schema([("n", pa.int64())])


def log_of(folder: Path, location: str, schema: pa.Schema | None = None) -> FileLog:
    log = open_source(location.replace(":", f":{folder}", 1), "t")
    return log if schema is None else log.with_schema(schema)


def rows(log: FileLog, begin: int = 0, end: int | None = None) -> list[dict]:
    snapshot = log.snapshot(0)
    upto = snapshot.end() if end is None else end
    return [row for batch in snapshot.read(begin, upto) for row in batch.to_pylist()]


def lines(*numbers: object) -> str:
    return "".join(json.dumps({"n": n}) + "\n" for n in numbers)


# --- Lines that do not fit --------------------------------------------------------------------


def test_rows_that_do_not_fit_are_told_and_the_others_can_be_read(tmp_path):
    (tmp_path / "0.jsonl").write_text(lines(1, "x", 3) + "{\n" + lines(5))
    log = log_of(tmp_path, "jsonl:", N)
    assert log.end_offset(0) == 5
    with pytest.raises(BadRow, match=r"0\.jsonl, offset 1: "):
        rows(log)
    assert rows(log, 2, 3) == [{"n": 3}]
    with pytest.raises(BadRow, match=r"0\.jsonl, offset 3: "):
        rows(log, 2)


def test_rows_in_front_of_one_that_does_not_fit_are_read(tmp_path):
    (tmp_path / "0.jsonl").write_text(lines(1, 2) + "\n" + lines("x"))
    batches = log_of(tmp_path, "jsonl:", N).read(0, 0, 4)
    assert [next(batches).to_pylist() for _ in range(2)] == [[{"n": 1}], [{"n": 2}]]
    with pytest.raises(BadRow, match=r"offset 3: "):
        next(batches)


def test_offsets_in_errors_count_over_files(tmp_path):
    (tmp_path / "0").mkdir()
    (tmp_path / "0/a.json").write_text(lines(1, 2, 3))
    (tmp_path / "0/b.json").write_text(lines(4, "x"))
    with pytest.raises(BadRow, match=r"0/b\.json, offset 4: .*"):
        rows(log_of(tmp_path, "jsonl:", N))


def test_a_column_of_two_kinds_needs_a_schema_and_says_so(tmp_path):
    (tmp_path / "0.jsonl").write_text(lines(1) + lines("x"))
    with pytest.raises(BadText, match=r"0.jsonl: the schema cannot be told .*schema\("):
        log_of(tmp_path, "jsonl:").schema()
    assert rows(log_of(tmp_path, "jsonl:", N), 0, 1) == [{"n": 1}]


@pytest.mark.parametrize(
    "kind",
    [
        pa.binary(),
        pa.date32(),
        pa.list_(pa.binary()),
        pa.map_(pa.string(), pa.int64()),
        pa.struct([("deep", pa.list_(pa.date32()))]),
    ],
    ids=str,
)
def test_types_that_spark_writes_otherwise_are_refused(tmp_path, kind):
    (tmp_path / "0.jsonl").write_text(lines(None))
    with pytest.raises(BadRow, match="which lines of JSON are not read as: ask for a text"):
        rows(log_of(tmp_path, "jsonl:", pa.schema([("n", kind)])))


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("csv:#header=true", "no setting of a directory; there is filePartitions"),
        ("jsonl:#filepartitions=2", "did you mean filePartitions"),
    ],
)
def test_settings_that_cannot_be_are_refused(tmp_path, location, message):
    with pytest.raises(ValueError, match=message):
        log_of(tmp_path, location)


# --- Compression ------------------------------------------------------------------------------

ZST = pa.Codec("zstd")
COMPRESS = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "zst": lambda raw: ZST.compress(raw).to_pybytes(),
}


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("last", ["\n", ""])
def test_compressed_text_is_read_from_any_row_and_to_its_last_line(tmp_path, suffix, last):
    count = 5_000
    content = (lines(*range(count))[:-1] + last).encode()
    (tmp_path / f"0.json.{suffix}").write_bytes(COMPRESS[suffix](content))
    log = log_of(tmp_path, "jsonl:", N)
    assert log.end_offset(0) == count
    for begin, end in ((0, count), (1_023, 1_026), (count - 1, count), (2_048, 2_049)):
        assert [r["n"] for r in rows(log, begin, end)] == list(range(begin, end))


def test_a_compressed_file_that_is_cut_off_is_refused_by_name(tmp_path):
    (tmp_path / "0.json.gz").write_bytes(gzip.compress(lines(*range(9)).encode())[:-12])
    with pytest.raises(ValueError, match=r"0\.json\.gz is not a whole file"):
        log_of(tmp_path, "jsonl:", N).end_offset(0)


def test_a_compressed_file_that_grew_was_written_over(tmp_path):
    file = tmp_path / "0.jsonl.gz"
    file.write_bytes(gzip.compress(b'{"n": 1}\n'))
    mark = FileLog(str(tmp_path), "t", "jsonl").snapshot(0).mark(1)
    file.write_bytes(file.read_bytes() + gzip.compress(b'{"n": 2}\n'))
    with pytest.raises(LogChanged, match=r"0\.jsonl\.gz was written over since its rows"):
        FileLog(str(tmp_path), "t", "jsonl").snapshot(0).check(mark)


# --- Times ------------------------------------------------------------------------------------

AT = dt.datetime(2026, 11, 21, 9, 30, 0, 120_000, dt.UTC)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("2026-11-21T09:30:00.120Z", AT),
        ("2026-11-21T10:30:00.120+01:00", AT),
        ("2026-11-21T09:30:00+00:00", AT.replace(microsecond=0)),
        ("2026-11-21T09:30:00.120", AT),
        ("2026-11-21 09:30:00.12", AT),
    ],
)
def test_times_are_texts_until_times_are_asked_for(tmp_path, written, read):
    row = {"t": written, "deep": {"t": [written]}}
    (tmp_path / "0.json").write_text(json.dumps(row) + "\n")
    log = log_of(tmp_path, "jsonl:")
    assert rows(log) == [row]
    time = pa.timestamp("us", "UTC")
    asked = log.with_schema(pa.schema([("t", time), ("deep", pa.struct([("t", pa.list_(time))]))]))
    assert rows(asked) == [{"t": read, "deep": {"t": [read]}}]


def test_a_date_is_a_time_where_one_is_asked_for(tmp_path):
    (tmp_path / "0.json").write_text('{"t": "2026-11-21"}\n{"t": null}\n')
    log = log_of(tmp_path, "jsonl:", pa.schema([("t", pa.timestamp("us", "UTC"))]))
    assert [r["t"] for r in rows(log)] == [dt.datetime(2026, 11, 21, tzinfo=dt.UTC), None]


def test_parquet_times_of_96_bits_are_points_in_time(tmp_path):
    table = pa.table({"t": pa.array([AT.replace(tzinfo=None)], pa.timestamp("us"))})
    pq.write_table(table, tmp_path / "0.parquet", use_deprecated_int96_timestamps=True)
    log = open_source(f"parquet:{tmp_path}")
    assert str(log.schema().field("t").type) == "timestamp[us, tz=UTC]"
    assert rows(log) == [{"t": AT}]


# --- Schemas that change ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "arrow"])
def test_columns_that_older_files_lack_are_null_and_new_ones_are_found(tmp_path, kind):
    (tmp_path / "0").mkdir()
    for name, table in (
        ("a", pa.table({"n": [1]})),
        ("b", pa.table({"n": [2], "s": ["x"]})),
        ("c", pa.table({"s": ["y"], "n": [3]})),
    ):
        path = tmp_path / f"0/{name}.{kind}"
        if kind == "parquet":
            pq.write_table(table, path)
        elif kind == "arrow":
            with pa.ipc.new_file(path, table.schema) as writer:
                writer.write_table(table)
        else:
            path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    log = open_source(f"{kind}:{tmp_path}")
    assert log.schema().names == ["n", "s"]
    assert rows(log) == [{"n": 1, "s": None}, {"n": 2, "s": "x"}, {"n": 3, "s": "y"}]


def test_a_type_that_widens_is_read_and_one_that_changes_is_refused(tmp_path):
    (tmp_path / "0").mkdir()
    pq.write_table(pa.table({"n": pa.array([1], pa.int32())}), tmp_path / "0/a.parquet")
    pq.write_table(pa.table({"n": pa.array([2], pa.int64())}), tmp_path / "0/b.parquet")
    log = open_source(f"parquet:{tmp_path}")
    assert (log.schema().field("n").type, rows(log)) == (pa.int64(), [{"n": 1}, {"n": 2}])
    pq.write_table(pa.table({"n": ["x"]}), tmp_path / "0/c.parquet")
    with pytest.raises(ValueError, match=r"a\.parquet and .*c\.parquet have columns that do not"):
        open_source(f"parquet:{tmp_path}").schema()
    with pytest.raises(BadRow, match=r"c\.parquet, in the rows from offset 2 on"):
        rows(log)
