"""The feed: each flight lands once, in its aircraft's partition, whoever stops it."""

import itertools

import pytest

pytest.importorskip("pyspark", reason="the flights need the extra `demo`")

from coordinator.sources import FileLog
from flights import dataset
from flights.delays.feed import feed, make_log
from flights.delays.tables import FLIGHT_KEY, FLIGHTS_SCHEMA, read_flights


@pytest.fixture(scope="module")
def four_days():
    flights = read_flights()
    return flights[(flights["month"] == 1) & (flights["day"] <= 4)]


def rows_of(log, number):
    return [
        row for batch in log.read(number, 0, log.end_offset(number)) for row in batch.to_pylist()
    ]


def test_each_flight_is_there_once_with_its_aircraft_in_departure_order(four_days, tmp_path):
    assert sum(feed(tmp_path, four_days)) == len(four_days)
    log = FileLog(str(tmp_path), dataset.TOPIC, "segments")
    rows = {number: rows_of(log, number) for number in log.partitions()}
    everything = list(itertools.chain.from_iterable(rows.values()))
    assert len(everything) == len(four_days)
    assert len({tuple(row[name] for name in FLIGHT_KEY) for row in everything}) == len(four_days)
    for number, flights in rows.items():
        assert {dataset.partition_of(flight["tailnum"]) for flight in flights} == {number}
        departures = [flight["time_hour"] for flight in flights]
        assert departures == sorted(departures)


def test_the_days_come_one_by_one(four_days, tmp_path):
    log = FileLog(str(tmp_path), dataset.TOPIC, "segments")
    for day, _ in enumerate(feed(tmp_path, four_days), start=1):
        there = {row["day"] for number in log.partitions() for row in rows_of(log, number)}
        assert there == set(range(1, day + 1))


def test_a_feed_that_is_started_again_goes_on_where_the_log_ends(four_days, tmp_path):
    interrupted = feed(tmp_path, four_days)
    first = next(interrupted) + next(interrupted)
    interrupted.close()
    assert list(feed(tmp_path, four_days))[:2] == [0, 0]
    log = FileLog(str(tmp_path), dataset.TOPIC, "segments")
    ends = [log.end_offset(number) for number in log.partitions()]
    assert 0 < first < sum(ends) == len(four_days)


def test_what_is_missing_is_null_and_delays_are_whole_minutes(four_days, tmp_path):
    for _ in feed(tmp_path, four_days):
        pass
    log = FileLog(str(tmp_path), dataset.TOPIC, "segments")
    assert log.schema().equals(FLIGHTS_SCHEMA)
    delays = [row["dep_delay"] for number in log.partitions() for row in rows_of(log, number)]
    assert delays.count(None) == four_days["dep_delay"].isna().sum() > 0
    assert sum(filter(None, delays)) == four_days["dep_delay"].sum()


def test_an_empty_log_has_all_its_partitions(tmp_path):
    make_log(tmp_path)
    log = FileLog(str(tmp_path), dataset.TOPIC, "segments")
    assert log.partitions() == list(range(dataset.PARTITIONS))
    assert {log.end_offset(number) for number in log.partitions()} == {0}
