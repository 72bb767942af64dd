"""Files as logs: every row once, at its offset, whatever the format and however they grow."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.sources import FileLog, SegmentWriter, open_source, write_log
from coordinator.sources.formats.base import pieces
from coordinator.sources.formats.json_lines import STRIDE

ROWS = 5_000
TABLE = pa.table({"n": range(ROWS), "name": [f'row {n}, of "many"' for n in range(ROWS)]})


def write_arrow(folder: Path, partition: int, table: pa.Table) -> None:
    write_log(folder, partition, table, rows_per_batch=700)


def write_segments(folder: Path, partition: int, table: pa.Table) -> None:
    with SegmentWriter(folder, partition, table.schema, bytes_per_segment=40_000) as writer:
        for batch in table.to_batches(max_chunksize=300):
            writer.append(batch)


def in_two_files(suffix: str, write) -> object:
    def writer(folder: Path, partition: int, table: pa.Table) -> None:
        place = folder / f"{partition}"
        place.mkdir(parents=True)
        (place / "_SUCCESS").touch()
        write(table.slice(0, 2_000), place / f"a.{suffix}")
        write(table.slice(2_000), place / f"b.{suffix}")

    return writer


def json_lines(table: pa.Table, path: Path) -> None:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in table.to_pylist()))


WRITERS = {
    "arrow": write_arrow,
    "segments": write_segments,
    "parquet": in_two_files("parquet", lambda t, path: pq.write_table(t, path, row_group_size=900)),
    "jsonl": in_two_files("jsonl", json_lines),
}


@pytest.fixture(scope="module", params=WRITERS)
def log(request, tmp_path_factory) -> FileLog:
    folder = tmp_path_factory.mktemp(request.param)
    WRITERS[request.param](folder, 0, TABLE)
    WRITERS[request.param](folder, 2, TABLE.slice(0, 10))
    return FileLog(str(folder), "t", request.param)


def rows(source, partition: int, begin: int, end: int) -> list[dict]:
    return [row for batch in source.read(partition, begin, end) for row in batch.to_pylist()]


def test_a_partition_that_is_not_there_is_empty(log):
    assert log.partitions() == [0, 1, 2]
    assert [log.end_offset(p) for p in log.partitions()] == [ROWS, 0, 10]
    assert rows(log, 1, 0, 100) == []


@pytest.mark.parametrize(
    ("begin", "end"),
    [(0, ROWS), (0, 1), (1_999, 2_001), (699, 2_105), (STRIDE, 2 * STRIDE), (4_990, 9_999), (7, 7)],
)
def test_any_range_is_read_and_nothing_else(log, begin, end):
    assert rows(log, 0, begin, end) == TABLE.slice(begin, end - begin).to_pylist()


def test_a_source_travels_to_workers_with_its_schema(log):
    assert pickle.loads(pickle.dumps(log)).schema().equals(TABLE.schema)


def test_columns_are_chosen_and_cast_by_the_schema_given(log):
    wanted = pa.schema([("n", pa.int32())])
    batches = list(log.with_schema(wanted).read(0, 1_998, 2_002))
    assert all(batch.schema.equals(wanted) for batch in batches)
    assert [n for batch in batches for n in batch["n"].to_pylist()] == list(range(1_998, 2_002))


def test_rows_that_are_not_there_have_no_schema(tmp_path):
    with pytest.raises(LookupError, match="no jsonl rows"):
        open_source(f"jsonl:{tmp_path}").schema()


def test_two_places_of_one_partition_are_refused(tmp_path):
    (tmp_path / "0").mkdir()
    (tmp_path / "day=0").mkdir()
    with pytest.raises(ValueError, match="are both partition 0"):
        FileLog(str(tmp_path), "t").partitions()


# --- Logs that grow ---------------------------------------------------------------------------


def test_a_line_counts_when_it_is_whole(tmp_path):
    path = tmp_path / "0.jsonl"
    log = FileLog(str(tmp_path), "t", "jsonl")
    with path.open("w") as file:
        for text, end in (('{"n": 1}\n{"n"', 1), (": 2}", 1), ("\n", 2), ('\n{"n": 4}\n', 4)):
            file.write(text)
            file.flush()
            assert log.end_offset(0) == end
    assert rows(log, 0, 0, 4) == [{"n": 1}, {"n": 2}, {"n": 4}]


@settings(deadline=None)
@given(st.lists(st.integers(0, 3 * STRIDE), min_size=1, max_size=5))
def test_a_text_that_grows_reads_like_one_that_is_done(tmp_path_factory, growth):
    folder = tmp_path_factory.mktemp("growing")
    log = FileLog(str(folder), "t", "jsonl", pa.schema([("n", pa.int64())]))
    n = 0
    with (folder / "0.jsonl").open("w") as file:
        for more in growth:
            file.writelines(f'{{"n": {n + i}}}\n' for i in range(more))
            file.flush()
            n += more
            assert log.end_offset(0) == n
    assert [row["n"] for row in rows(log, 0, n // 3, n)] == list(range(n // 3, n))


def test_a_batch_counts_when_it_is_whole_and_a_new_writer_goes_on_behind_it(tmp_path):
    schema = pa.schema([("n", pa.int64())])
    log = FileLog(str(tmp_path), "t", "segments")

    def batch(*numbers):
        return pa.record_batch({"n": numbers}, schema=schema)

    writer = SegmentWriter(tmp_path, 0, schema)
    assert log.end_offset(0) == 0
    assert writer.append(batch(1, 2, 3)) == 3 == log.end_offset(0)
    assert writer.append(batch(4, 5)) == 5 == log.end_offset(0)
    (segment,) = (tmp_path / "0").iterdir()
    whole = segment.stat().st_size
    writer.append(batch(6))
    del writer  # The machine stops in the middle of a write.
    for cut in range(whole, segment.stat().st_size):
        torn = tmp_path / f"torn{cut}" / "0"
        torn.mkdir(parents=True)
        (torn / segment.name).write_bytes(segment.read_bytes()[:cut])
        after = FileLog(str(torn.parent), "t", "segments")
        assert after.end_offset(0) == 5
        with SegmentWriter(torn.parent, 0, schema) as again:
            assert again.append(batch(7)) == 6
        assert [row["n"] for row in rows(after, 0, 0, 6)] == [1, 2, 3, 4, 5, 7]


def test_old_segments_may_be_deleted_and_offsets_stay(tmp_path):
    write_segments(tmp_path, 0, TABLE)
    first, *others = sorted((tmp_path / "0").iterdir())
    assert others
    first.unlink()
    log = FileLog(str(tmp_path), "t", "segments")
    begin = log.begin_offset(0)
    assert begin == int(others[0].stem) > 0
    assert log.end_offset(0) == ROWS
    assert rows(log, 0, 0, begin + 1) == TABLE.slice(begin, 1).to_pylist()


def test_a_segment_that_begins_before_the_last_one_ends_is_refused(tmp_path):
    write_segments(tmp_path, 0, TABLE)
    last = max((tmp_path / "0").iterdir())
    last.rename(last.with_stem(f"{int(last.stem) - 1:020}"))
    with pytest.raises(ValueError, match="begins before offset"):
        FileLog(str(tmp_path), "t", "segments").end_offset(0)


@given(st.lists(st.integers(0, 5), max_size=6), st.integers(0, 30), st.integers(0, 30))
def test_pieces_cover_a_range_exactly(lengths, first, last):
    starts = [sum(lengths[:i]) for i in range(len(lengths) + 1)]
    first, last = min(first, starts[-1]), min(last, starts[-1])
    found = [starts[i] + skipped + n for i, skipped, taken in pieces(starts, first, last)
             for n in range(taken)]  # fmt: skip
    assert found == list(range(first, last))
