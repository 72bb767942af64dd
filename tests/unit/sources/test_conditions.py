"""Conditions leave out rows that do not meet them, and no others."""

from __future__ import annotations

import datetime as dt
import math
import operator
import pickle
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coordinator.sources import FileLog
from coordinator.sources.conditions import (
    EQUAL,
    GREATER,
    GREATER_OR_EQUAL,
    IS_NOT_NULL,
    IS_NULL,
    LESS,
    LESS_OR_EQUAL,
    condition,
)

NAN = float("nan")
COMPARISONS = {
    EQUAL: operator.eq,
    LESS: operator.lt,
    LESS_OR_EQUAL: operator.le,
    GREATER: operator.gt,
    GREATER_OR_EQUAL: operator.ge,
}
T = dt.datetime(2026, 11, 21, tzinfo=dt.UTC)
COLUMNS = {
    "int": (pa.int32(), [1, 5, None, -3, 5, 9, 7, 7, None, 0], 5),
    "long": (pa.int64(), [2**60, 5, None, -(2**61), 5, 9, 7, 7, None, 0], 2**60),
    "float": (pa.float32(), [0.5, NAN, None, -0.0, 0.0, 9, math.inf, 7, None, NAN], 0.0),
    "double": (pa.float64(), [0.5, NAN, None, -0.0, 0.0, 9, -math.inf, 7, None, 1.5], 1.5),
    "price": (
        pa.decimal128(10, 2),
        [None if n is None else Decimal(n) / 100 for n in (150, 5, None, -3, 5, 9, 7, 7, None, 0)],
        Decimal("0.05"),
    ),
    "text": (pa.string(), ["b", "", None, "é", "b", "z", "a" * 300, "B", None, "b "], "b"),
    "blob": (pa.binary(), [b"b", b"", None, b"\xff", b"b", b"z", b"a", b"B", None, b"\0"], b"b"),
    "day": (
        pa.date32(),
        [dt.date(2026, 1, d) if d else None for d in range(10)],
        dt.date(2026, 1, 4),
    ),
    "at": (
        pa.timestamp("us", "UTC"),
        [T + dt.timedelta(hours=h) if h else None for h in range(10)],
        T + dt.timedelta(hours=4),
    ),
    "local": (
        pa.timestamp("us"),
        [(T + dt.timedelta(hours=h)).replace(tzinfo=None) if h else None for h in range(10)],
        (T + dt.timedelta(hours=4)).replace(tzinfo=None),
    ),
    "flag": (pa.bool_(), [True, False, None, True, False] * 2, True),
    "nulls": (pa.int64(), [None] * 10, 1),
}


def is_met(comparison: str, value, other) -> bool:
    """Spark's comparison: NaN is greater than all numbers, and null is not compared."""
    if comparison in (IS_NULL, IS_NOT_NULL):
        return (value is None) == (comparison == IS_NULL)
    if value is None:
        return False
    if isinstance(value, float) and math.isnan(value):
        return comparison in (GREATER, GREATER_OR_EQUAL)
    return COMPARISONS[comparison](value, other)


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """One log with small row groups, and one with a single one."""
    table = pa.table({n: pa.array(values, kind) for n, (kind, values, _) in COLUMNS.items()})
    found = []
    for size in (2, 10):
        folder = tmp_path_factory.mktemp("log")
        pq.write_table(table, folder / "0.parquet", row_group_size=size)
        found.append(FileLog(str(folder), "t", "parquet"))
    return found


@pytest.mark.parametrize("comparison", [*COMPARISONS, IS_NULL, IS_NOT_NULL])
@pytest.mark.parametrize("name", COLUMNS)
def test_rows_are_those_that_spark_would_keep(logs, name, comparison):
    kind, values, other = COLUMNS[name]
    given = () if comparison in (IS_NULL, IS_NOT_NULL) else (other,)
    made = condition(name, comparison, given, kind)
    assert made is not None
    shown = pa.array(values, kind).to_pylist()
    met = [is_met(comparison, value, other) for value in values]
    expected = [value for value, is_so in zip(shown, met, strict=True) if is_so]
    for log in logs:
        some = pickle.loads(pickle.dumps(log.meeting([made])))
        found = [v for batch in some.read(0, 0, 10) for v in batch[name].to_pylist()]
        assert str(found) == str(expected)  # NaN differs from itself.


def test_one_of_several_values_is_enough_and_null_is_none(logs):
    made = condition("int", EQUAL, (9, None, 1), pa.int32())
    for log in logs:
        some = log.meeting([made])
        assert [v for b in some.read(0, 0, 10) for v in b["int"].to_pylist()] == [1, 9]
        nothing = log.meeting([condition("int", EQUAL, (None,), pa.int32())])
        assert not list(nothing.read(0, 0, 10))


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (NAN, pa.float64()),
        (0.1, pa.float32()),
        (Decimal("0.001"), pa.decimal128(10, 2)),
        (2**40, pa.int32()),
        ("1", pa.int64()),
        ([1], pa.list_(pa.int64())),
    ],
)
def test_values_that_are_not_of_the_columns_type_make_no_condition(value, kind):
    assert condition("c", EQUAL, (value,), kind) is None


@pytest.fixture
def read_groups(monkeypatch):
    """Row groups that pyarrow is asked for."""
    found: list[int] = []

    class Counting(pq.ParquetFile):
        def iter_batches(self, *arguments, **options):
            found.extend(options["row_groups"])
            return super().iter_batches(*arguments, **options)

    monkeypatch.setattr(pq, "ParquetFile", Counting)
    return found


@pytest.mark.parametrize(
    ("name", "comparison", "value", "groups"),
    [
        ("n", GREATER, 29, [3]),
        ("n", LESS_OR_EQUAL, 10, [0, 1]),
        ("n", EQUAL, 15, [1]),
        ("n", EQUAL, 99, []),
        ("text", EQUAL, "r25", [2]),
        ("text", GREATER_OR_EQUAL, "r30", [3]),
        ("null_in_0", IS_NULL, None, [0]),
        ("null_in_0", IS_NOT_NULL, None, [1, 2, 3]),
        # NaN is in no statistics.
        ("x", GREATER, 1e9, [0, 1, 2, 3]),
        # The file has another type, so its statistics are not those of what is asked for.
        ("as_long", EQUAL, 99, [0, 1, 2, 3]),
    ],
)
def test_row_groups_are_skipped_by_their_statistics(
    tmp_path, read_groups, name, comparison, value, groups
):
    some = range(40)
    table = pa.table(
        {
            "n": some,
            "text": [f"r{n:02}" for n in some],
            "x": [float(n) for n in some],
            "null_in_0": [None if n < 10 else n for n in some],
            "as_long": pa.array(some, pa.int32()),
        }
    )
    pq.write_table(table, tmp_path / "0.parquet", row_group_size=10)
    log = FileLog(str(tmp_path), "t", "parquet")
    schema = log.schema()
    at = schema.get_field_index("as_long")
    schema = schema.set(at, pa.field("as_long", pa.int64()))
    values = () if value is None else (value,)
    made = condition(name, comparison, values, schema.field(name).type)
    for _ in log.with_schema(schema).meeting([made]).read(0, 0, 40):
        pass
    assert read_groups == groups


def test_files_are_skipped_by_the_columns_of_their_folders(tmp_path, read_groups):
    for day in ("2026-11-20", "2026-11-21", "__HIVE_DEFAULT_PARTITION__"):
        (tmp_path / f"day={day}").mkdir()
        pq.write_table(pa.table({"n": [1, 2]}), tmp_path / f"day={day}/a.parquet")
    log = FileLog(str(tmp_path), "t", "parquet", file_partitions="1")

    def days(comparison, *values):
        some = log.meeting([condition("day", comparison, values, pa.date32())])
        found = [str(d) for b in some.read(0, 0, 6) for d in b["day"].to_pylist()]
        return found, len(read_groups)

    assert days(EQUAL, dt.date(2026, 11, 21)) == (["2026-11-21"] * 2, 1)
    assert days(GREATER, dt.date(2026, 11, 20)) == (["2026-11-21"] * 2, 2)
    assert days(IS_NULL) == (["None"] * 2, 3)


def test_a_column_that_a_file_lacks_is_null(tmp_path):
    pq.write_table(pa.table({"n": [1, 2]}), tmp_path / "0.parquet")
    schema = pa.schema([("n", pa.int64()), ("late", pa.int64())])
    log = FileLog(str(tmp_path), "t", "parquet", schema)

    def rows(comparison, *values):
        some = log.meeting([condition("late", comparison, values, pa.int64())])
        return sum(batch.num_rows for batch in some.read(0, 0, 2))

    assert (rows(EQUAL, 1), rows(IS_NULL), rows(IS_NOT_NULL)) == (0, 2, 0)


def test_rows_of_text_are_left_out_too(tmp_path):
    (tmp_path / "0.jsonl").write_text('{"n": 1}\n{"n": 2}\n{}\n')
    log = FileLog(str(tmp_path), "t", "jsonl", pa.schema([("n", pa.int64())]))
    some = log.meeting([condition("n", GREATER, (1,), pa.int64())])
    assert [v for b in some.read(0, 0, 3) for v in b["n"].to_pylist()] == [2]
