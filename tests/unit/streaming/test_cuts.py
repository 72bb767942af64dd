"""Where a batch may cut a file, for readers that scan files as a whole."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coordinator.sources import FileLog
from coordinator.sources.base import LogChanged
from coordinator.sources.files import FileRange
from coordinator.spark.file_frames import escaped


@pytest.fixture
def snapshot(tmp_path):
    """A partition of two files of 1,000 rows, with row groups of 300."""
    (tmp_path / "0").mkdir()
    for name in ("a", "b"):
        table = pa.table({"n": range(1_000)})
        pq.write_table(table, tmp_path / "0" / f"{name}.parquet", row_group_size=300)
    return FileLog(str(tmp_path), "t", "parquet").snapshot(0)


@pytest.mark.parametrize(
    ("begin", "end", "cut"),
    [
        (0, 1_000, 1_000),  # The end of a file.
        (0, 2_000, 2_000),
        (0, 310, 300),  # A row group is near.
        (0, 275, 300),
        (0, 960, 1_000),  # The end of the file is.
        (0, 400, 400),  # Nothing is; a quarter of the file, or more.
        (0, 250, 250),
        (0, 200, 1_000),  # Less: so many parts would be too many.
        (900, 1_020, 1_000),  # Back to the end of the file before.
        (990, 1_150, 1_000),
        (1_500, 1_800, 1_800),
        (1_950, 1_960, 2_000),
    ],
)
def test_a_batch_ends_where_a_file_may_be_cut(snapshot, begin, end, cut):
    assert snapshot.cut_near(begin, end) == cut


def test_ranges_of_files_are_those_of_offsets_until_a_file_changes(snapshot, tmp_path):
    one, other = (f"file://{tmp_path}/0/{name}.parquet" for name in ("a", "b"))
    assert snapshot.file_ranges(0, 1_000) == [FileRange(one, 0, 1_000, 1_000)]
    assert snapshot.file_ranges(300, 1_001) == [
        FileRange(one, 300, 1_000, 1_000), FileRange(other, 0, 1, 1_000),
    ]  # fmt: skip
    assert [r.is_whole for r in snapshot.file_ranges(300, 2_000)] == [False, True]
    pq.write_table(pa.table({"n": range(7)}), tmp_path / "0" / "b.parquet")
    assert snapshot.file_ranges(0, 1_000)
    with pytest.raises(LogChanged, match=r"b\.parquet was written over"):
        snapshot.file_ranges(999, 1_001)


def test_a_path_is_escaped_as_java_does_it():
    assert escaped("file:///a b/50%/a%20b/ü+ö/[x]#1?/*'é=~\xa0") == (
        "file:/a%20b/50%25/a%2520b/ü+ö/%5Bx%5D%231%3F/*'é=~%C2%A0"
    )
    assert escaped("s3a://bucket/a b") == "s3a://bucket/a%20b"
