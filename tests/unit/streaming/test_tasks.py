"""Tasks: the rows of partitions, split among at least so many."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="tasks of Spark need the extra `spark`")

from coordinator.sources import FileLog
from coordinator.sources.base import snapshots_of
from coordinator.spark.options import StreamOptions
from coordinator.spark.ranges import split
from coordinator.spark.refusals import BadOption
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


def test_columns_that_do_not_exist_are_refused_with_those_that_do(tmp_path):
    pq.write_table(pa.table({"delay": [1], "month": [2]}), tmp_path / "0.parquet")
    given = {"coordinator": "c:1", "group": "g", "source": f"parquet:{tmp_path}"}
    assert StreamOptions.parse({**given, "columns": "month, delay"}).schema().names == [
        "month",
        "delay",
    ]
    with pytest.raises(
        BadOption, match=r"no such column; did you mean delay\?; it has delay, month"
    ):
        StreamOptions.parse({**given, "columns": "dely"}).schema()


def test_the_text_of_malformed_rows_is_not_chosen_alone(tmp_path):
    """Without another column there is nothing that a row may not fit: each would be well-formed."""
    (tmp_path / "0.jsonl").write_text('{"n": 1}\n{"n": "x"}\n')
    given = {"coordinator": "c:1", "group": "g", "source": f"jsonl:{tmp_path}"}
    given |= {"mode": "PERMISSIVE", "columns": "_corrupt_record"}
    schema = pa.schema([("n", pa.int64()), ("_corrupt_record", pa.string())])
    options = StreamOptions.parse(given)
    options = replace(options, source=options.source.with_schema(schema))
    with pytest.raises(BadOption, match=r"_corrupt_record alone: .* choose those too"):
        options.schema()


class TestFilters:
    GIVEN = {"coordinator": "c:1", "group": "g"}  # noqa: RUF012

    def rows(self, folder, filters) -> list[int]:
        options = StreamOptions.parse(
            {**self.GIVEN, "source": f"parquet:{folder}", "filters": filters}
        )
        source = options.reading(options.schema()).source
        return [n for batch in source.read(0, 0, 5) for n in batch["n"].to_pylist()]

    @pytest.fixture
    def folder(self, tmp_path):
        columns = {
            "n": [1, 2, 3, None, 5],
            "s": ["a", "b", None, "a", "é"],
            "day": pa.array([20_000, 20_001, 20_002, None, 20_004], pa.date32()),
            "at": pa.array([0] * 5, pa.timestamp("us", "UTC")),
            "list": [[1]] * 5,
            "price": pa.array(["1.10", "2.20", None, "4.40", "5.50"]).cast(pa.decimal128(8, 2)),
        }
        pq.write_table(pa.table(columns), tmp_path / "0.parquet")
        return tmp_path

    @pytest.mark.parametrize(
        ("filters", "rows"),
        [
            ('[["n", ">", 2]]', [3, 5]),
            ('[["n", ">", 1], ["n", "<=", 3]]', [2, 3]),
            ('[["s", "in", ["a", "é"]]]', [1, None, 5]),
            ('[["s", "is null"]]', [3]),
            ('[["day", "=", "2024-10-05"]]', [2]),
            ('[["price", ">=", "4.40"]]', [None, 5]),
            ('[["s", "in", []]]', []),
        ],
    )
    def test_rows_that_meet_all_are_read(self, folder, filters, rows):
        assert self.rows(folder, filters) == rows

    @pytest.mark.parametrize(
        ("filters", "words"),
        [
            ("n > 2", "expected is a JSON list of conditions"),
            ("[]", "expected is a JSON list"),
            ('[["n", "like", 2]]', "expected is a JSON list"),
            ('[["n", "=", null]]', "expected is a JSON list"),
            ('[["n", "in", 2]]', "expected is a JSON list"),
            ('["n", "=", 2]', "expected is a JSON list"),
            ('[["m", "=", 2]]', "the column m, which is not read"),
            ('[["n", "=", "two"]]', "compares n with what is not of the type int64"),
            ('[["n", "=", 2.5]]', "compares n with what is not of the type int64"),
            (f'[["n", "in", {[*range(65)]}]]', "has 65 values for n, and at most 64 are compared"),
            ('[["at", ">", "2024-10-05 07:00:00"]]', "with its zone, such as 2026-11-21T09:30:00Z"),
            ('[["list", "is null"]]', r"list, which is of the type list<.*>: .* not nested"),
        ],
    )
    def test_others_are_refused(self, folder, filters, words):
        with pytest.raises(ValueError, match=words):
            self.rows(folder, filters)

    def test_they_are_for_directories(self):
        options = StreamOptions.parse(
            {**self.GIVEN, "source": "kafka://b:1/t", "filters": '[["key", "is null"]]'}
        )
        with pytest.raises(BadOption, match="filters are for directories"):
            options.reading(options.schema())

    def test_columns_and_a_schema_do_not_both_choose(self, folder):
        options = StreamOptions.parse(
            {**self.GIVEN, "source": f"parquet:{folder}", "columns": "n,s"}
        )
        with pytest.raises(BadOption, match="both choose the columns"):
            options.reading(pa.schema([("n", pa.int64())]))
