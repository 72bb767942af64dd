"""Parquet in slices: the same rows as a whole read, and little work and memory for them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.sources import FileLog
from coordinator.sources.formats import parquet
from coordinator.sources.formats.positions import ParquetPositions

ROWS = 100_000


@pytest.fixture
def decoded(monkeypatch):
    """Rows that pyarrow decodes, batch by batch."""
    found: list[int] = []

    class Counting(pq.ParquetFile):
        def iter_batches(self, *arguments, **options):
            for batch in super().iter_batches(*arguments, **options):
                found.append(batch.num_rows)
                yield batch

    monkeypatch.setattr(pq, "ParquetFile", Counting)
    monkeypatch.setattr(parquet, "_positions", ParquetPositions())
    return found


def log(folder, table, **options) -> FileLog:
    pq.write_table(table, folder / "0.parquet", **options)
    return FileLog(str(folder), "t", "parquet")


def rows(log, begin, end, names=("n",)):
    schema = pa.schema([log.schema().field(name) for name in names])
    batches = list(log.with_schema(schema).read(0, begin, end))
    return pa.Table.from_batches(batches, schema)


def test_small_batches_decode_each_row_once(tmp_path, decoded):
    server = log(tmp_path, pa.table({"n": range(ROWS)}))
    for begin in range(0, 2_000, 40):
        assert rows(server, begin, begin + 40)["n"].to_pylist() == list(range(begin, begin + 40))
    assert sum(decoded) <= 2_000 + parquet.MOST_ROWS


def test_whoever_goes_on_elsewhere_decodes_the_row_group_up_to_there(tmp_path, decoded):
    server = log(tmp_path, pa.table({"n": range(ROWS)}), row_group_size=50_000)
    rows(server, 0, 40)
    assert rows(server, 60_000, 60_040)["n"].to_pylist() == list(range(60_000, 60_040))
    assert sum(decoded) <= 2 * 50_000


def test_a_position_is_of_its_columns(tmp_path, decoded):
    server = log(tmp_path, pa.table({"n": range(100), "m": range(100, 200)}))
    rows(server, 0, 40)
    assert rows(server, 40, 50, ("m", "n")).to_pydict() == {
        "m": list(range(140, 150)),
        "n": list(range(40, 50)),
    }


def test_a_file_that_was_written_over_is_not_read_on_from_its_old_form(tmp_path, decoded):
    server = log(tmp_path, pa.table({"n": range(100)}))
    rows(server, 0, 40)
    log(tmp_path, pa.table({"n": range(1_000, 1_200)}))
    assert rows(server, 40, 50)["n"].to_pylist() == list(range(1_040, 1_050))


def test_two_readers_of_one_row_do_not_share_a_position(tmp_path, decoded):
    server = log(tmp_path, pa.table({"n": range(100)}))
    rows(server, 0, 40)
    one, other = server.read(0, 40, 60), server.read(0, 40, 60)
    assert [next(one), next(other)] == [pa.record_batch({"n": range(40, 60)})] * 2


@pytest.fixture(scope="module")
def all_types(tmp_path_factory):
    """A log of 1,000 rows in row groups of 300, and its rows."""
    some = range(1_000)
    table = pa.table(
        {
            "n": some,
            "maybe": [None if n % 3 else n for n in some],
            "x": [float("nan") if n % 7 == 0 else n / 3 for n in some],
            "price": pa.array([Decimal(n) / 100 for n in some], pa.decimal128(10, 2)),
            "name": [f"é{n % 50}" for n in some],
            "blob": [b"\0" * (n % 5) for n in some],
            "at": pa.array(
                [dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=n) for n in some],
                pa.timestamp("us", "UTC"),
            ),
            "day": [dt.date(2026, 1, 1 + n % 28) for n in some],
            "list": [list(range(n % 4)) for n in some],
            "struct": [{"a": n, "b": [str(n)]} if n % 4 else None for n in some],
            "map": pa.array([[(str(n), n)] for n in some], pa.map_(pa.string(), pa.int64())),
        }
    )
    folder = tmp_path_factory.mktemp("types")
    return log(folder, table, row_group_size=300), table


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_any_slice_of_any_columns_is_that_of_the_whole(all_types, data):
    files, table = all_types
    begin = data.draw(st.integers(0, 1_000))
    end = data.draw(st.integers(begin, 1_000))
    names = data.draw(st.lists(st.sampled_from(table.schema.names), min_size=1, unique=True))
    read = rows(files, begin, end, names)
    # NaN differs from itself, so as text.
    assert str(read.to_pydict()) == str(table.slice(begin, end - begin).select(names).to_pydict())


def test_rows_without_a_column_are_counted(all_types):
    files, _ = all_types
    batches = files.with_schema(pa.schema([])).read(0, 250, 990)
    assert sum(batch.num_rows for batch in batches) == 740


@pytest.mark.parametrize("row_group_size", [20_000, 400_000])
def test_memory_does_not_grow_with_row_groups(tmp_path, monkeypatch, row_group_size):
    count = 400_000
    monkeypatch.setattr(parquet, "_positions", ParquetPositions())
    table = pa.table({f"c{i}": pa.array(range(i, count + i), pa.int64()) for i in range(8)})
    server = log(tmp_path, table, row_group_size=row_group_size, use_dictionary=False)
    bytes_all = table.nbytes
    del table
    before = pa.total_allocated_bytes()
    read, most = 0, 0
    for batch in server.read(0, 0, count - 1):
        read += batch.num_rows
        most = max(most, pa.total_allocated_bytes() - before)
    assert read == count - 1
    assert most < bytes_all // 2 < 13 << 20


def test_positions_are_kept_within_a_bound_and_not_for_ever():
    kept = ParquetPositions(most_bytes=100, waiting_reads=3)
    kept.keep("a", "reader a", 60)
    kept.keep("b", "reader b", 60)  # No room.
    assert (kept.take("b"), kept.take("a")) == (None, "reader a")
    kept.keep("a", "reader a", 60)
    for _ in range(3):
        assert kept.take("elsewhere") is None
    kept.keep("b", "reader b", 60)  # Nobody has asked for the other for long.
    assert (kept.take("a"), kept.take("b")) == (None, "reader b")
    kept.keep("large", "reader", 101)
    assert kept.take("large") is None


def test_of_many_partitions_some_keep_their_positions():
    kept = ParquetPositions(most_bytes=100)
    hits = 0
    for number in range(40):
        place = number % 4
        hits += kept.take(place) is not None
        kept.keep(place, "reader", 60)
    assert hits == 9
