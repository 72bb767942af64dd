"""Order of files as a group has recorded it: every row keeps its offset, whatever names say."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.sources import BadLayout, FileLog, LogChanged, open_source
from coordinator.sources.group_files import GroupFiles
from coordinator.sources.recorded import (
    MAX_BYTES,
    PAGE_BYTES,
    Entry,
    FileRecord,
    RecordUnreadable,
    key_of,
    page_read,
    pages_of,
)
from tests.unit.sources.memory_pages import MemoryPages

SCHEMA = pa.schema([("n", pa.int64())])


def flat(folder: Path, pages: MemoryPages, rule: str = "hash:3", kind: str = "parquet") -> FileLog:
    """A reader with a cache of its own."""
    log = open_source(f"{kind}:{folder}#filePartitions={rule}", "t").with_schema(SCHEMA)
    return log.ordered_by(GroupFiles(pages))


def put(path: Path, *numbers: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"n": list(numbers)}, SCHEMA), path)


def rows(log: FileLog, partition: int, begin: int = 0, end: int | None = None) -> list[int]:
    snapshot = log.snapshot(partition)
    upto = snapshot.end() if end is None else end
    return [n for batch in snapshot.read(begin, upto) for n in batch["n"].to_pylist()]


NAMES = st.lists(st.text("abcXYZ019-", min_size=1, max_size=6), min_size=1, max_size=8, unique=True)


@settings(deadline=None, max_examples=25)
@given(
    NAMES, st.lists(st.integers(0, 3), max_size=8), st.sampled_from(["hash:1", "hash:3", "each"])
)
def test_every_row_has_one_offset_whoever_looks_and_whenever(tmp_path_factory, names, sizes, rule):
    folder = tmp_path_factory.mktemp("log")
    pages = MemoryPages()
    readers = [flat(folder, pages, rule) for _ in range(3)]
    seen: dict[int, list[int]] = {}
    n = 0
    for step, name in enumerate(names):
        size = sizes[step % len(sizes)] if sizes else 1
        put(folder / f"{name}.parquet", *range(n, n + size))
        n += size
        reader = readers[step % 3]
        for p in reader.partitions():
            before = seen.get(p, [])
            now = rows(reader, p)
            assert now[: len(before)] == before, "offsets keep their meaning"
            seen[p] = now
    assert sorted(n for found in seen.values() for n in found) == list(range(n)), "each row once"
    for reader in [*readers, flat(folder, pages, rule)]:
        assert {p: rows(reader, p) for p in reader.partitions()} == seen


def test_readers_that_look_at_the_same_moment_agree(tmp_path):
    pages = MemoryPages()
    one, two = flat(tmp_path, pages, "hash:1"), flat(tmp_path, pages, "hash:1")
    put(tmp_path / "m.parquet", 1)
    assert rows(one, 0) == rows(two, 0) == [1]
    put(tmp_path / "a.parquet", 2)

    def the_other_is_first() -> None:
        put(tmp_path / "b.parquet", 3)
        (tmp_path / "a.parquet").rename(tmp_path / "hidden")  # The listing of the other lacks it.
        assert rows(two, 0) == [1, 3]
        (tmp_path / "hidden").rename(tmp_path / "a.parquet")

    pages.before_write = the_other_is_first
    assert rows(one, 0) == rows(two, 0) == [1, 3, 2]


def test_a_mark_holds_for_recorded_order_and_fails_where_files_count_by_name(tmp_path):
    pages = MemoryPages()
    put(tmp_path / "m.parquet", 1)
    log = flat(tmp_path, pages, "hash:1")
    assert rows(log, 0) == [1]
    put(tmp_path / "a.parquet", 2)
    mark = log.snapshot(0).mark(2)
    put(tmp_path / "b.parquet", 3)
    log.snapshot(0).check(mark)
    by_name = open_source(f"parquet:{tmp_path}#filePartitions=hash:1", "t").with_schema(SCHEMA)
    with pytest.raises(LogChanged, match="not in the order that the group has recorded"):
        by_name.snapshot(0).check(mark)


@pytest.mark.parametrize("without", [{"text_max": 100}, {"can_be_asked": False}])
def test_files_count_by_name_where_the_group_keeps_no_record(tmp_path, caplog, without):
    log = flat(tmp_path, MemoryPages(**without), "hash:1")
    for n, name in enumerate(("m", *"abcdefghijkl")):
        put(tmp_path / f"{name}.parquet", n)
    assert rows(log, 0) == [*range(1, 13), 0]
    put(tmp_path / "0.parquet", 13)
    assert rows(log, 0) == [13, *range(1, 13), 0]
    is_told = "raise offset_metadata_max_bytes to 4096" in caplog.text
    assert is_told == ("text_max" in without)


@pytest.mark.parametrize("recorded_first", [False, True])
def test_a_mark_from_before_there_was_a_record_holds(tmp_path, recorded_first):
    for name in "bcd":
        put(tmp_path / f"{name}.parquet", 1, 2)
    by_name = open_source(f"parquet:{tmp_path}#filePartitions=hash:1", "t").with_schema(SCHEMA)
    mark = by_name.snapshot(0).mark(6)
    log = flat(tmp_path, MemoryPages(), "hash:1")
    if recorded_first:
        log.snapshot(0).check(mark)
        put(tmp_path / "a.parquet", 3)
        log.snapshot(0).check(mark)
        assert rows(log, 0, 6) == [3]
    else:
        put(tmp_path / "a.parquet", 3)
        with pytest.raises(LogChanged, match=r"a\.parquet came in front of d\.parquet"):
            log.snapshot(0).check(mark)


@pytest.mark.parametrize("numbers", [(1,), (1, 2, 3), (9, 9)])
def test_a_file_that_was_written_over_is_refused_by_name(tmp_path, numbers):
    pages = MemoryPages()
    put(tmp_path / "m.parquet", 1, 2)
    assert rows(flat(tmp_path, pages), 0) is not None
    put(tmp_path / "m.parquet", *numbers)
    log = flat(tmp_path, pages)
    with pytest.raises(LogChanged, match=r"m\.parquet was written over since the group"):
        log.snapshots(log.partitions())


def test_a_file_that_is_gone_leaves_a_gap_and_is_told(tmp_path):
    pages = MemoryPages()
    for i, name in enumerate("abc"):
        put(tmp_path / f"{name}.parquet", i, i)
    log = flat(tmp_path, pages, "hash:1")
    mark = log.snapshot(0).mark(6)
    (tmp_path / "b.parquet").unlink()
    put(tmp_path / "0.parquet", 7)
    snapshot = log.snapshot(0)
    assert rows(log, 0) == [0, 0, 2, 2, 7]
    assert rows(log, 0, 4) == [2, 2, 7]
    for told in (mark, ""):
        with pytest.raises(LogChanged, match="its rows began at offset 2") as caught:
            snapshot.check(told)
        assert caught.value.rows_are_gone
    log.snapshot(0).check(snapshot.mark(6))  # Accepted, and from now on known.
    (tmp_path / "a.parquet").unlink()
    assert log.begin_offset(0) == 4
    with pytest.raises(LogChanged, match="is gone"):
        log.snapshot(0).check(snapshot.mark(6))


@pytest.mark.parametrize("together", [True, False])
def test_two_names_of_one_hash_are_refused_and_neither_is_passed_over(tmp_path, together):
    first, second = "part-0467323.parquet", "part-0665377.parquet"
    assert key_of(first) == key_of(second)
    log = flat(tmp_path, MemoryPages(), "hash:1")
    put(tmp_path / first, 1)
    if not together:
        assert rows(log, 0) == [1]
    put(tmp_path / second, 2)
    with pytest.raises(BadLayout, match=f"{first}.*have one hash: rename one|{second}.*one hash"):
        rows(log, 0)


def test_two_names_of_one_hash_are_refused_in_two_partitions_too(tmp_path):
    first, second = "1/part-1813877.parquet", "0/part-2985808.parquet"
    assert key_of(first) == key_of(second)
    log = flat(tmp_path, MemoryPages(), "numbers")
    put(tmp_path / first, 1)
    put(tmp_path / "0/a.parquet", 2)
    assert (rows(log, 1), rows(log, 0)) == ([1], [2])
    put(tmp_path / second, 3)
    with pytest.raises(BadLayout, match=r"2985808\.parquet.*has the hash of a file.*partition 1"):
        rows(log, 0)


def test_another_rule_is_refused_and_the_recorded_one_is_the_default(tmp_path):
    pages = MemoryPages()
    put(tmp_path / "a=x/m.parquet", 1)
    assert flat(tmp_path, pages, "hash:3").snapshot(0).end() in (0, 1)
    with pytest.raises(BadLayout, match="with filePartitions=hash:3, and with hash:4 its offsets"):
        flat(tmp_path, pages, "hash:4").snapshot(0)
    unsaid = open_source(f"parquet:{tmp_path}", "t").ordered_by(GroupFiles(pages))
    assert len(unsaid.partitions()) == 3
    assert len(open_source(f"parquet:{tmp_path}", "t").partitions()) == 8


def test_a_numbered_log_keeps_its_rule_when_a_folder_looks_like_a_date(tmp_path):
    pages = MemoryPages()
    put(tmp_path / "p=0/a.parquet", 1)
    log = open_source(f"parquet:{tmp_path}", "t").ordered_by(GroupFiles(pages))
    assert log.snapshot(0).end() == 1
    put(tmp_path / "p=20261121/a.parquet", 1)
    with pytest.raises(BadLayout, match="p=20261121 would be partition 20,261,121"):
        log.partitions()


# --- Files that grow --------------------------------------------------------------------------


def line(path: Path, *numbers: int, end: str = "\n") -> None:
    with path.open("a") as file:
        file.write("".join(json.dumps({"n": n}) + "\n" for n in numbers[:-1]))
        file.write(json.dumps({"n": numbers[-1]}) + end)


def test_a_file_grows_while_it_is_the_last_and_is_closed_by_the_next(tmp_path):
    pages = MemoryPages()
    one, two = (flat(tmp_path, pages, "hash:1", "jsonl") for _ in range(2))
    line(tmp_path / "m.json", 1)
    assert rows(one, 0) == [1]
    line(tmp_path / "m.json", 2, 3)
    assert rows(two, 0) == rows(one, 0) == [1, 2, 3]
    line(tmp_path / "m.json", 4, end="")  # Not whole while the file may grow.
    assert rows(one, 0) == [1, 2, 3]
    line(tmp_path / "a.json", 5)
    assert rows(one, 0) == rows(two, 0) == [1, 2, 3, 4, 5], "it is the last line, now"
    line(tmp_path / "m.json", 6)
    with pytest.raises(LogChanged, match=r"m\.json was written over"):
        rows(two, 0)


def test_a_growing_file_that_is_gone_when_another_one_comes_is_told(tmp_path):
    pages = MemoryPages()
    log = flat(tmp_path, pages, "hash:1", "jsonl")
    line(tmp_path / "m.json", 1)
    assert rows(log, 0) == [1]
    (tmp_path / "m.json").unlink()
    line(tmp_path / "a.json", 5)
    with pytest.raises(LogChanged, match="nobody knows how many rows it had"):
        rows(log, 0)


def test_segments_are_not_recorded_since_their_names_say_offsets(tmp_path):
    from coordinator.sources import SegmentWriter

    pages = MemoryPages()
    with SegmentWriter(tmp_path, 0, SCHEMA) as writer:
        writer.append(pa.record_batch({"n": [1, 2]}, SCHEMA))
    log = open_source(f"segments:{tmp_path}", "t").ordered_by(GroupFiles(pages))
    assert rows(log, 0) == [1, 2]
    assert pages.stored == []


# --- Pages ------------------------------------------------------------------------------------

ENTRIES = st.builds(
    Entry,
    st.integers(0, 2**40 - 1),
    st.integers(0, 10**6),
    st.none() | st.integers(0, 2**40),
    st.integers(0, 2**16 - 1),
)


@given(st.lists(ENTRIES, max_size=40), st.integers(0, 40))
def test_pages_hold_what_was_put_into_them(entries, cut):
    first = pages_of("hash:8", [], entries[:cut])
    pages = [*first[:-1], *pages_of("hash:8", page_read(first[-1][1])[1], entries[cut:])]
    read = [page_read(text) for _, text in pages]
    assert [entry for _, found in read for entry in found] == entries
    assert [count for count, _ in pages] == [len(found) for _, found in read]
    assert {rule for rule, _ in read} == {"hash:8"}


def test_a_page_is_below_the_limit_of_metadata_and_100_000_files_below_that_of_a_record():
    entries = [Entry(key_of(f"part-{n}"), n % 8, 1_000_000, n % 65_536) for n in range(100_000)]
    pages = pages_of("hash:8", [], entries)
    assert all(len(text) <= 4_096 for _, text in pages)
    record = FileRecord().extended("hash:8", entries)
    assert record.size_bytes <= MAX_BYTES
    assert len(pages) == pytest.approx(record.size_bytes / PAGE_BYTES, abs=3)


@pytest.mark.parametrize("text", ["", "{}", '{"reset": "now"}', "2 hash:8 x", "1 hash:8 ~", "1 a"])
def test_a_page_that_was_overwritten_is_told(text):
    with pytest.raises(RecordUnreadable, match="no page of a record"):
        page_read(text)
