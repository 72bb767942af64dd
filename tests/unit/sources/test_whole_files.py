"""Files as units: an offset counts files, and a row says which file it is."""

from __future__ import annotations

import datetime as dt
import os

import pytest

from coordinator.sources import BadLayout, FileLog, LogChanged, open_source
from coordinator.sources.group_files import GroupFiles
from coordinator.spark.options import StreamOptions
from coordinator.spark.refusals import BadOption
from tests.unit.sources.memory_documents import MemoryDocuments

AT = dt.datetime(2026, 11, 21, 9, 30, tzinfo=dt.UTC)


def write(path, content: bytes = b"anything") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, (AT.timestamp(), AT.timestamp()))


def rows(log, partition=0) -> list[dict]:
    snapshot = log.snapshot(partition)
    return [r for b in snapshot.read(0, snapshot.end()) for r in b.to_pylist()]


@pytest.mark.parametrize("kind", ["csv", "json", "orc", "avro", "text", "files"])
def test_a_row_says_where_its_file_is_and_what_its_folders_are_named_for(tmp_path, kind):
    for name in ("b.jpg", "a.bin", "_SUCCESS", ".a.bin.crc", "late._COPYING_"):
        write(tmp_path / "day=2026-11-21" / name)
    log = open_source(f"{kind}:{tmp_path}#filePartitions=1")
    assert (log.unit, log.end_offset(0)) == ("files", 2)
    day = {"modificationTime": AT, "length": 8, "day": "2026-11-21"}
    folder = tmp_path / "day=2026-11-21"
    assert rows(log) == [
        {"path": str(folder / "a.bin"), **day},
        {"path": str(folder / "b.jpg"), **day},
    ]


def test_a_numbered_folder_is_a_partition_and_a_file_beside_it_is_refused(tmp_path):
    write(tmp_path / "0" / "x.csv")
    write(tmp_path / "1.csv.gz")
    log = open_source(f"csv:{tmp_path}")
    assert [log.end_offset(p) for p in log.partitions()] == [1, 1]
    write(tmp_path / "notes.txt")
    with pytest.raises(BadLayout, match=r"notes\.txt belongs to no partition"):
        log.partitions()


@pytest.mark.parametrize("content", [b"else", b"anything"], ids=["other", "same"])
def test_a_file_that_was_written_since_is_noticed_by_its_size_or_time(tmp_path, content):
    write(tmp_path / "0" / "a.csv")
    write(tmp_path / "0" / "b.csv")
    pages = MemoryDocuments()

    def log() -> FileLog:
        return open_source(f"csv:{tmp_path}", "t").ordered_by(GroupFiles(pages))

    listed = log().snapshot(0)
    mark = listed.mark(2)
    log().snapshot(0).check(mark)
    (tmp_path / "0" / "a.csv").write_bytes(content)
    with pytest.raises(LogChanged, match=r"a\.csv was written over since the group"):
        log().snapshot(0)
    with pytest.raises(LogChanged, match=r"a\.csv was written over since it was listed"):
        list(listed.read(0, 2))
    write(tmp_path / "0" / "a.csv")
    assert len(rows(log())) == 2, "it is as it was"


def test_a_batch_is_limited_in_what_the_offsets_count(tmp_path):
    given = {"coordinator": "c:1", "group": "g"}

    def limit(kind, **option):
        return StreamOptions.parse({**given, "source": f"{kind}:{tmp_path}", **option}).max_in_batch

    assert limit("csv", maxFilesPerTrigger="7") == 7
    assert limit("parquet", maxRowsPerBatch="7") == 7
    with pytest.raises(BadOption, match="use maxFilesPerTrigger"):
        limit("csv", maxRowsPerBatch="7")
    with pytest.raises(BadOption, match="use maxRowsPerBatch"):
        limit("jsonl", maxFilesPerTrigger="7")
