"""The feed: each flight lands once, in its aircraft's partition, in files that appear whole."""

import itertools

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark", reason="the flights need the extra `demo`")

from coordinator.sources import FileLog
from flights import dataset
from flights.feed import ROWS, Feed


@pytest.fixture(scope="module")
def flights():
    return dataset.read()[:3_000]


def rows_of(folder, number):
    return pa.concat_tables(
        map(pq.read_table, sorted((folder / str(number)).iterdir()))
    ).to_pylist()


def test_each_flight_is_there_once_with_its_aircraft_in_departure_order(flights, tmp_path):
    feed = Feed(tmp_path / "log", flights)
    feed.append(ROWS)
    log = FileLog(str(tmp_path / "log"), dataset.TOPIC, "parquet")
    assert {log.end_offset(number) for number in log.partitions()} == {ROWS}
    feed.start()
    feed.finish()
    rows = {number: rows_of(tmp_path / "log", number) for number in log.partitions()}
    everything = list(itertools.chain.from_iterable(rows.values()))
    keys = {tuple(row[name] for name in dataset.FLIGHT_KEY) for row in everything}
    assert len(everything) == len(keys) == len(flights)
    for number, some in rows.items():
        assert {dataset.partition_of(flight["tailnum"]) for flight in some} == {number}
        departures = [flight["time_hour"] for flight in some]
        assert departures == sorted(departures)
    delays = [row["dep_delay"] for row in everything]
    assert delays.count(None) == flights["dep_delay"].isna().sum() > 0


def test_an_empty_log_has_all_its_partitions(flights, tmp_path):
    Feed(tmp_path / "log", flights)
    log = FileLog(str(tmp_path / "log"), dataset.TOPIC, "parquet")
    assert log.partitions() == list(range(dataset.PARTITIONS))
    assert {log.end_offset(number) for number in log.partitions()} == {0}
