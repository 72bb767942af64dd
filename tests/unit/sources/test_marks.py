"""Marks: a committed offset never comes to mean other rows without somebody being told."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.commit_metadata import parsed
from coordinator.sources import FileLog, LogChanged, SegmentWriter
from coordinator.sources.marks import Segment, check_mark, make_mark
from tests.campaigns.fuzz.mutate import mutations

NAME = "part-00000-{}.snappy.parquet"  # As Spark names them: nothing about them rises.
A, B, C, D = (NAME.format(letter * 8) for letter in "abcd")


def parquet(path: Path, *numbers: int) -> None:
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table({"n": numbers}), path)


def json_lines(path: Path, *numbers: int) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f'{{"n": {n}}}\n' for n in numbers))


@pytest.fixture
def log(tmp_path) -> FileLog:
    """Two files, b and d, with four rows, in partition 0."""
    parquet(tmp_path / "0" / B, 1, 2)
    parquet(tmp_path / "0" / D, 3, 4)
    return FileLog(str(tmp_path), "t", "parquet")


def mark(log: FileLog, offset: int) -> str:
    return log.snapshot(0).mark(offset)


def refused(log: FileLog, mark: str) -> LogChanged:
    with pytest.raises(LogChanged) as caught:
        log.snapshot(0).check(mark)
    assert "\n" not in str(caught.value)
    return caught.value


def test_a_file_in_front_of_what_was_read_is_refused(log, tmp_path):
    counted = {offset: mark(log, offset) for offset in (1, 2, 3, 4)}
    parquet(tmp_path / "0" / A, 8, 9)
    for offset, some in counted.items():
        assert f"{B if offset < 3 else D} begins at offset" in str(refused(log, some))
        assert not refused(log, some).rows_are_gone


def test_a_file_between_two_that_were_read_is_refused_and_one_in_front_of_unread_ones_is_not(
    log, tmp_path
):
    at_two, at_three = mark(log, 2), mark(log, 3)
    parquet(tmp_path / "0" / C, 8, 9)
    log.snapshot(0).check(at_two)
    assert f"{D} begins at offset 4, and began at 2" in str(refused(log, at_three))


def test_files_behind_what_was_read_and_in_other_partitions_are_welcome(log, tmp_path):
    counted = mark(log, 4)
    parquet(tmp_path / "0" / NAME.format("eeeeeeee"), 5)
    parquet(tmp_path / "1" / A, 8, 9)
    log.snapshot(0).check(counted)


def test_nothing_read_is_nothing_to_compare(log):
    assert mark(log, 0) == ""
    log.snapshot(0).check("")
    assert mark(FileLog(log.directory, "t", "jsonl"), 7) == ""


@pytest.mark.parametrize("which", [B, D])
def test_a_file_that_was_read_and_is_gone_is_refused(log, tmp_path, which):
    counted = mark(log, 4)
    (tmp_path / "0" / which).unlink()
    assert D in str(refused(log, counted))
    assert refused(log, counted).rows_are_gone


@pytest.mark.parametrize("numbers", [(7, 8), (7,), (7, 8, 9)])
def test_a_file_that_was_written_over_is_refused_also_with_as_many_rows_and_bytes(
    log, tmp_path, numbers
):
    counted = mark(log, 4)
    before = (tmp_path / "0" / D).stat()
    parquet(tmp_path / "0" / D, *numbers)
    if len(numbers) == 2:
        assert (tmp_path / "0" / D).stat().st_size == before.st_size
    assert D in str(refused(log, counted))


def test_a_partition_whose_folder_is_gone_is_refused(log, tmp_path):
    counted = mark(log, 4)
    (tmp_path / "0").rename(tmp_path / "_0")
    assert D in str(refused(log, counted))


def test_a_copy_of_a_log_has_the_same_marks(log, tmp_path):
    counted = mark(log, 4)
    for path in (tmp_path / "0").iterdir():
        path.write_bytes(path.read_bytes())
        os.utime(path, ns=(1, 1))
    log.snapshot(0).check(counted)


def test_ten_sorts_in_front_of_nine_and_is_refused_with_the_reason(tmp_path):
    parquet(tmp_path / "0" / "part-9.parquet", 1)
    log = FileLog(str(tmp_path), "t", "parquet")
    counted = mark(log, 1)
    parquet(tmp_path / "0" / "part-10.parquet", 2)
    assert "part-10 stands before part-9" in str(refused(log, counted))


def test_a_link_to_another_file_is_another_file(tmp_path):
    parquet(tmp_path / "one.parquet", 1)
    parquet(tmp_path / "two.parquet", 2)
    (tmp_path / "log/0").mkdir(parents=True)
    link = tmp_path / "log/0/a.parquet"
    link.symlink_to(tmp_path / "one.parquet")
    log = FileLog(str(tmp_path / "log"), "t", "parquet")
    counted = mark(log, 1)
    log.snapshot(0).check(counted)
    link.unlink()
    link.symlink_to(tmp_path / "two.parquet")
    assert "a.parquet was written over" in str(refused(log, counted))


# --- Files that grow --------------------------------------------------------------------------


def test_the_last_file_may_grow_and_those_in_front_may_not(tmp_path):
    json_lines(tmp_path / "0/a.jsonl", 1, 2)
    log = FileLog(str(tmp_path), "t", "jsonl")
    for offset in (1, 2):
        counted = mark(log, offset)
        with (tmp_path / "0/a.jsonl").open("a") as file:
            file.write('{"n": 5}\n')
        log.snapshot(0).check(counted)
    json_lines(tmp_path / "0/b.jsonl", 3)
    counted = mark(log, 5)
    with (tmp_path / "0/a.jsonl").open("a") as file:
        file.write('{"n": 5}\n')
    assert "0/b.jsonl begins at offset" in str(refused(log, counted))


@pytest.mark.parametrize("numbers", [(1,), (2, 1), (3, 4, 5, 6), (100, 200, 300), ()])
def test_a_file_that_may_grow_and_was_written_over_in_place_is_refused(tmp_path, numbers):
    json_lines(tmp_path / "0/a.jsonl", 1, 2)
    log = FileLog(str(tmp_path), "t", "jsonl")
    counted = mark(log, 2)
    json_lines(tmp_path / "0/a.jsonl", *numbers)  # The same inode.
    assert "0/a.jsonl" in str(refused(log, counted))
    assert log.end_offset(0) == len(numbers)
    log = log.with_schema(pa.schema([("n", pa.int64())]))
    assert [n for batch in log.read(0, 0, 9) for n in batch["n"].to_pylist()] == list(numbers)


def test_segments_grow_are_continued_and_are_deleted_from_the_front(tmp_path):
    schema = pa.schema([("n", pa.int64())])
    log = FileLog(str(tmp_path), "t", "segments")
    marks = []
    for _ in range(3):  # Each writer begins a segment, and closing it appends to the last one.
        with SegmentWriter(tmp_path, 0, schema) as writer:
            for _ in range(20):
                end = writer.append(pa.record_batch({"n": [1]}, schema=schema))
                marks.append(mark(log, end))
                for earlier in marks:
                    log.snapshot(0).check(earlier)
    for path in sorted((tmp_path / "0").iterdir()):
        path.unlink()
        for earlier in marks:
            log.snapshot(0).check(earlier)


# --- Any files, and any marks ---------------------------------------------------------------


def segments(names: list[str], rows: dict[str, int] | None = None) -> list[Segment]:
    found, start = [], 0
    for name in sorted(names):
        count = (rows or {}).get(name, 2)
        found.append(Segment(name, start, count, 10, "d", has_base=False, grows=False))
        start += count
    return found


def is_refused(mark: str, now: list[Segment]) -> str:
    try:
        check_mark(mark, now, Path("log"), lambda name, size: "d")
    except LogChanged as error:
        return str(error)
    return ""


@settings(deadline=None)
@given(st.sets(st.integers(0, 300), min_size=2, max_size=80), st.data())
def test_any_file_more_less_or_other_in_front_of_an_offset_is_noticed_and_only_there(numbers, data):
    names = [f"{number:04}" for number in sorted(numbers)]
    offset = data.draw(st.integers(1, 2 * len(names)))
    counted = make_mark(segments(names), offset)
    assert not is_refused(counted, segments(names))
    last = names[(offset - 1) // 2]
    more = data.draw(st.integers(0, 300).map(lambda n: f"{n:04}x"))
    assert bool(is_refused(counted, segments([*names, more]))) == (more < last)
    less = data.draw(st.sampled_from(names))
    left = [name for name in names if name != less]
    assert bool(is_refused(counted, segments(left))) == (less <= last)
    changed = segments(names, {less: 3})
    assert bool(is_refused(counted, changed)) == (less < last)


@pytest.mark.parametrize(
    "mark",
    ["nonsense", "[]", "7", "null", '{"v": 2}', '{"v": 1}', "[" * 100_000,
     json.dumps({"v": 2, "record": "", "at": 1, "gone": 0, "file": 1, "start": 0, "size": 0,
                 "digest": ""})],
)  # fmt: skip
def test_a_mark_of_somebody_else_is_none(mark):
    assert not is_refused(mark, segments(["a"]))


def test_whatever_somebody_else_has_stored_beside_an_offset_is_borne():
    logs = [
        [],
        segments(["b"]),
        segments([f"{number:03}" for number in range(30)]),
        [
            replace(s, has_base=True, grows=True)
            for s in segments([f"{2 * number:020}.arrows" for number in range(30)])
        ],
    ]
    marks = [make_mark(log, offset).encode() for log in logs for offset in (1, 7, 60)]
    torn = json.loads(marks[-1]) | {"gone": -1, "start": -1}
    for data in islice(mutations([*filter(None, marks), json.dumps(torn).encode()], seed=1), 3_000):
        text = data.decode(errors="replace")
        for mark in (text, parsed(text).mark):
            for log in logs:
                is_refused(mark, log)
