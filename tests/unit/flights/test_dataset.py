"""Joined tables have one row for each key, and no implausible weather."""

import pytest

pytest.importorskip("pyspark", reason="the flights need the extra `demo`")

import pandas as pd

from flights.dataset import FLIGHT_KEY, JOINS, clean_weather, one_each, read, read_tables


def test_no_join_can_double_a_flight():
    tables = read_tables()
    for name, key in JOINS.items():
        assert not tables[name].duplicated(key).any()
    with pytest.raises(ValueError, match="1 rows have the carrier of another row"):
        one_each(pd.DataFrame({"carrier": ["AA", "AA"]}), ["carrier"])


def test_an_hour_observed_twice_has_its_last_observation_and_a_gale_of_1000_mph_is_unknown():
    weather = pd.DataFrame(
        {
            "origin": ["EWR", "EWR", "JFK"],
            "time_hour": ["a", "a", "a"],
            "wind_speed": [5.0, 7.0, 1048.0],
            "precip": 0.0,
            "visib": 10.0,
        }
    )
    cleaned = clean_weather(weather)
    assert cleaned["wind_speed"].fillna(-1).tolist() == [7.0, -1]
    assert {"precipitation", "visibility"} <= set(cleaned.columns)


def test_the_key_tells_flights_apart():
    assert not read().duplicated(FLIGHT_KEY).any()
