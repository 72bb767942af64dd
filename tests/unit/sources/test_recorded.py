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
from coordinator.sources.progress import reporting_progress_to
from tests.unit.sources.memory_documents import MemoryDocuments

SCHEMA = pa.schema([("n", pa.int64())])


def flat(
    folder: Path, documents: MemoryDocuments, rule: str = "3", kind: str = "parquet"
) -> FileLog:
    """A reader with a cache of its own."""
    log = open_source(f"{kind}:{folder}#filePartitions={rule}", "t").with_schema(SCHEMA)
    return log.ordered_by(GroupFiles(documents))


def put(path: Path, *numbers: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"n": list(numbers)}, SCHEMA), path)


def rows(log: FileLog, partition: int, begin: int = 0, end: int | None = None) -> list[int]:
    snapshot = log.snapshot(partition)
    upto = snapshot.end() if end is None else end
    return [n for batch in snapshot.read(begin, upto) for n in batch["n"].to_pylist()]


NAMES = st.lists(st.text("abcXYZ019-", min_size=1, max_size=6), min_size=1, max_size=8, unique=True)


@settings(deadline=None, max_examples=25)
@given(NAMES, st.lists(st.integers(0, 3), max_size=8), st.sampled_from(["1", "3"]))
def test_every_row_has_one_offset_whoever_looks_and_whenever(tmp_path_factory, names, sizes, rule):
    folder = tmp_path_factory.mktemp("log")
    documents = MemoryDocuments()
    readers = [flat(folder, documents, rule) for _ in range(3)]
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
    assert sorted(n for item in seen.values() for n in item) == list(range(n)), "each row once"
    for reader in [*readers, flat(folder, documents, rule)]:
        assert {p: rows(reader, p) for p in reader.partitions()} == seen


def test_readers_that_look_at_the_same_moment_agree(tmp_path):
    documents = MemoryDocuments()
    one, two = flat(tmp_path, documents, "1"), flat(tmp_path, documents, "1")
    put(tmp_path / "m.parquet", 1)
    assert rows(one, 0) == rows(two, 0) == [1]
    put(tmp_path / "a.parquet", 2)

    def the_other_is_first() -> None:
        put(tmp_path / "b.parquet", 3)
        (tmp_path / "a.parquet").rename(tmp_path / "hidden")  # The listing of the other lacks it.
        assert rows(two, 0) == [1, 3]
        (tmp_path / "hidden").rename(tmp_path / "a.parquet")

    documents.before_write = the_other_is_first
    assert rows(one, 0) == rows(two, 0) == [1, 3, 2]


def test_a_mark_holds_for_recorded_order_and_fails_where_files_count_by_name(tmp_path):
    documents = MemoryDocuments()
    put(tmp_path / "m.parquet", 1)
    log = flat(tmp_path, documents, "1")
    assert rows(log, 0) == [1]
    put(tmp_path / "a.parquet", 2)
    mark = log.snapshot(0).mark(2)
    put(tmp_path / "b.parquet", 3)
    log.snapshot(0).check(mark)
    by_name = open_source(f"parquet:{tmp_path}#filePartitions=1", "t").with_schema(SCHEMA)
    with pytest.raises(LogChanged, match="not in the order that the group has recorded"):
        by_name.snapshot(0).check(mark)


def test_files_count_by_name_where_nobody_can_be_asked(tmp_path):
    log = flat(tmp_path, MemoryDocuments(can_be_asked=False), "1")
    for n, name in enumerate(("m", *"abcdefghijkl")):
        put(tmp_path / f"{name}.parquet", n)
    assert rows(log, 0) == [*range(1, 13), 0]
    put(tmp_path / "0.parquet", 13)
    assert rows(log, 0) == [13, *range(1, 13), 0]


@pytest.mark.parametrize("recorded_first", [False, True])
def test_a_mark_from_before_there_was_a_record_holds(tmp_path, recorded_first):
    for name in "bcd":
        put(tmp_path / f"{name}.parquet", 1, 2)
    by_name = open_source(f"parquet:{tmp_path}#filePartitions=1", "t").with_schema(SCHEMA)
    mark = by_name.snapshot(0).mark(6)
    log = flat(tmp_path, MemoryDocuments(), "1")
    if recorded_first:
        log.snapshot(0).check(mark)
        put(tmp_path / "a.parquet", 3)
        log.snapshot(0).check(mark)
        assert rows(log, 0, 6) == [3]
    else:
        put(tmp_path / "a.parquet", 3)
        with pytest.raises(LogChanged, match=r"d\.parquet begins at offset 5, and began at 4"):
            log.snapshot(0).check(mark)


@pytest.mark.parametrize("numbers", [(1,), (1, 2, 3), (9, 9)])
def test_a_file_that_was_written_over_is_refused_by_name(tmp_path, numbers):
    documents = MemoryDocuments()
    put(tmp_path / "m.parquet", 1, 2)
    assert rows(flat(tmp_path, documents), 0) is not None
    put(tmp_path / "m.parquet", *numbers)
    log = flat(tmp_path, documents)
    with pytest.raises(LogChanged, match=r"m\.parquet was written over since the group"):
        log.snapshots(log.partitions())


def test_a_file_that_is_gone_leaves_a_gap_and_is_told_unless_it_was_read(tmp_path):
    documents = MemoryDocuments()
    for i, name in enumerate("abc"):
        put(tmp_path / f"{name}.parquet", i, i)
    log = flat(tmp_path, documents, "1")
    read, unread = log.snapshot(0).mark(4), log.snapshot(0).mark(3)
    (tmp_path / "b.parquet").unlink()
    put(tmp_path / "0.parquet", 7)
    snapshot = log.snapshot(0)
    assert rows(log, 0) == [0, 0, 2, 2, 7]
    assert rows(log, 0, 4) == [2, 2, 7]
    snapshot.check(read)
    for told in (unread, ""):
        with pytest.raises(LogChanged, match="its rows began at offset 2") as caught:
            snapshot.check(told)
        assert caught.value.rows_are_gone
    snapshot.check(snapshot.mark(3))  # Accepted, and from now on known.
    (tmp_path / "a.parquet").unlink()
    assert log.begin_offset(0) == 4
    log.snapshot(0).check(snapshot.mark(3))
    (tmp_path / "c.parquet").unlink()
    with pytest.raises(LogChanged, match="is gone"):
        log.snapshot(0).check(snapshot.mark(3))


def test_what_offsets_count_is_recorded_and_another_unit_is_refused(tmp_path, caplog):
    caplog.set_level("INFO")
    documents = MemoryDocuments()
    put(tmp_path / "a.parquet", 1, 2)
    assert rows(flat(tmp_path, documents, "1"), 0) == [1, 2]
    put(tmp_path / "b.parquet", 3)
    assert rows(flat(tmp_path, documents, "1"), 0, 2) == [3]
    assert caplog.messages == ["offsets of t in group g count rows, with filePartitions=1"]
    with pytest.raises(BadLayout, match="count rows in this group, and this format's count files"):
        flat(tmp_path, documents, "1", "files").snapshot(0)


def test_files_are_dealt_out_by_their_rows(tmp_path):
    log = flat(tmp_path, MemoryDocuments(), "2")
    put(tmp_path / "a.parquet", *range(10))
    for name in "bcdef":
        put(tmp_path / f"{name}.parquet", 1, 2)
    assert [log.end_offset(p) for p in log.partitions()] == [10, 10]
    put(tmp_path / "0.parquet", 3)
    assert rows(log, 0)[10:] == [3]


def test_each_file_of_a_look_counts_as_progress(tmp_path):
    log, messages = flat(tmp_path, MemoryDocuments(), "2"), []
    for name in "abc":
        put(tmp_path / f"{name}.parquet", 1)
    with reporting_progress_to(lambda: messages.append(1)):
        log.snapshots(log.partitions())
        assert len(messages) == 3
        log.snapshots(log.partitions())
    put(tmp_path / "d.parquet", 1)
    log.snapshots(log.partitions())
    assert len(messages) == 3


def test_a_group_that_forgot_the_order_of_the_files_refuses_what_it_had_read(tmp_path):
    put(tmp_path / "b.parquet", 1)
    mark = flat(tmp_path, MemoryDocuments(), "1").snapshot(0).mark(1)
    put(tmp_path / "a.parquet", 2)
    with pytest.raises(LogChanged, match="not in the order that the group has recorded"):
        flat(tmp_path, MemoryDocuments(), "1").snapshot(0).check(mark)


def test_another_rule_is_refused_and_the_recorded_one_is_the_default(tmp_path):
    documents = MemoryDocuments()
    put(tmp_path / "a=x/m.parquet", 1)
    assert flat(tmp_path, documents, "3").snapshot(0).end() in (0, 1)
    with pytest.raises(BadLayout, match="with filePartitions=3, and with 4 its offsets"):
        flat(tmp_path, documents, "4").snapshot(0)
    unsaid = open_source(f"parquet:{tmp_path}", "t").ordered_by(GroupFiles(documents))
    assert len(unsaid.partitions()) == 3
    assert len(open_source(f"parquet:{tmp_path}", "t").partitions()) == 8


def test_a_numbered_log_keeps_its_rule_when_a_folder_looks_like_a_date(tmp_path):
    documents = MemoryDocuments()
    put(tmp_path / "p=0/a.parquet", 1)
    log = open_source(f"parquet:{tmp_path}", "t").ordered_by(GroupFiles(documents))
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
    documents = MemoryDocuments()
    one, two = (flat(tmp_path, documents, "1", "jsonl") for _ in range(2))
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
    documents = MemoryDocuments()
    log = flat(tmp_path, documents, "1", "jsonl")
    line(tmp_path / "m.json", 1)
    assert rows(log, 0) == [1]
    (tmp_path / "m.json").unlink()
    line(tmp_path / "a.json", 5)
    with pytest.raises(LogChanged, match="nobody knows how many rows it had"):
        rows(log, 0)


def test_segments_are_not_recorded_since_their_names_say_offsets(tmp_path):
    from coordinator.sources import SegmentWriter

    documents = MemoryDocuments()
    with SegmentWriter(tmp_path, 0, SCHEMA) as writer:
        writer.append(pa.record_batch({"n": [1, 2]}, SCHEMA))
    log = open_source(f"segments:{tmp_path}", "t").ordered_by(GroupFiles(documents))
    assert rows(log, 0) == [1, 2]
    assert documents.stored == {}
