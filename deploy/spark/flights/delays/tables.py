"""Tables of the data set: flights as written to the log, and the tables joined to them."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
import pyarrow as pa

from flights import dataset

FLIGHTS_SCHEMA = pa.schema(
    [
        ("month", pa.int32()),
        ("day", pa.int32()),
        ("hour", pa.int32()),
        ("time_hour", pa.string()),
        ("sched_dep_time", pa.int32()),
        ("dep_time", pa.int32()),
        ("dep_delay", pa.int32()),
        ("arr_delay", pa.int32()),
        ("carrier", pa.string()),
        ("flight", pa.int32()),
        ("tailnum", pa.string()),
        ("origin", pa.string()),
        ("dest", pa.string()),
        ("distance", pa.int32()),
    ]
)
"""Schema of the log. Delays are in minutes; a flight without `dep_time` was cancelled."""

FLIGHT_KEY = ["time_hour", "carrier", "flight", "origin"]
"""Columns that identify a flight."""

FASTEST_WIND_MPH = 250.0
"""Highest plausible wind at the ground; the data set has an outlier of 1048."""


@dataclass(frozen=True)
class Tables:
    """Tables joined to flights, each with one row for each key, and renamed columns."""

    airlines: pd.DataFrame
    airports: pd.DataFrame
    planes: pd.DataFrame
    weather: pd.DataFrame


def read_flights() -> pd.DataFrame:
    """Read all flights with the columns of the log."""
    return dataset.read(FLIGHTS_SCHEMA.names)


def read_tables() -> Tables:
    """Read and clean all four tables."""
    airlines = dataset.read_table("airlines.csv", ["carrier", "name"])
    airports = dataset.read_table("airports.csv", ["faa", "name"])
    planes = dataset.read_table("planes.csv", ["tailnum", "year", "manufacturer", "seats"])
    weather = dataset.read_table(
        "weather.csv", ["origin", "time_hour", "temp", "wind_speed", "precip", "visib"]
    )
    return Tables(
        one_each(airlines.rename(columns={"name": "carrier_name"}), ["carrier"]),
        one_each(airports.rename(columns={"faa": "dest", "name": "dest_name"}), ["dest"]),
        one_each(planes.rename(columns={"year": "plane_built"}), ["tailnum"]),
        clean_weather(weather),
    )


def one_each(rows: pd.DataFrame, key: list[str]) -> pd.DataFrame:
    """Check that keys are unique; returns the rows.

    Raises:
        ValueError: they are not, so a join would duplicate flights.
    """
    doubled = rows[rows.duplicated(key)]
    if len(doubled):
        raise ValueError(f"{len(doubled)} rows have the {' and '.join(key)} of another row")
    return rows


def clean_weather(weather: pd.DataFrame) -> pd.DataFrame:
    """Keep one observation for each airport and hour, and drop implausible winds.

    Of an hour that occurs twice (releases of the data set differ: clocks are put back in
    November) the last observation is kept.
    """
    weather = weather.drop_duplicates(["origin", "time_hour"], keep="last")
    possible = weather["wind_speed"] <= FASTEST_WIND_MPH
    weather = weather.assign(wind_speed=weather["wind_speed"].where(possible))
    return weather.rename(columns={"precip": "precipitation", "visib": "visibility"})
