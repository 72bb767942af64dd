"""Tasks: the rows of partitions, split among at least so many."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="tasks of Spark need the extra `spark`")

from coordinator.sources import FileLog
from coordinator.sources.base import snapshots_of
from coordinator.spark.ranges import split
from coordinator.spark.tasks import tasks

RANGES = st.dictionaries(
    st.integers(0, 9),
    st.tuples(st.integers(0, 1_000), st.integers(0, 1_000)).map(lambda r: (r[0], r[0] + r[1])),
    min_size=1,
)


@given(RANGES, st.integers(1, 3_000), st.lists(st.integers(0, 2_000), unique=True).map(sorted))
def test_rows_are_split_among_enough_tasks_each_once_and_in_order(ranges, least, starts):
    split_up = split(ranges, least, lambda partition: starts)
    for partition, (begin, end) in ranges.items():
        parts = [(first, last) for p, first, last in split_up if p == partition]
        assert (parts[0][0], parts[-1][1]) == (begin, end)
        assert all(one[1] == other[0] for one, other in pairwise(parts))
        assert len(parts) == 1 or all(first < last for first, last in parts)
    rows = sum(end - begin for begin, end in ranges.values())
    assert len(split_up) >= min(least, rows)
    assert [p for p, _, _ in split_up] == sorted(
        (p for p, _, _ in split_up), key=list(ranges).index
    )


def test_without_a_least_number_a_partition_is_one_task():
    assert split({1: (0, 90), 0: (5, 5)}, None, lambda p: [10]) == [(1, 0, 90), (0, 5, 5)]


def test_a_large_partition_has_more_tasks_than_a_small_one():
    split_up = split({0: (0, 900), 1: (0, 100)}, 10, lambda p: [])
    assert [p for p, _, _ in split_up].count(0) == 9


def test_tasks_begin_where_row_groups_do(tmp_path):
    pq.write_table(pa.table({"n": range(1_000)}), tmp_path / "0.parquet", row_group_size=260)
    snapshots = snapshots_of(FileLog(str(tmp_path), "t", "parquet"), [0])
    found = tasks({0: (0, 1_000)}, snapshots, 4)
    assert [(t.begin, t.end) for t in found] == [(0, 260), (260, 520), (520, 780), (780, 1_000)]
    rows = [n for t in found for b in t.snapshot.read(t.begin, t.end) for n in b["n"].to_pylist()]
    assert rows == list(range(1_000))
