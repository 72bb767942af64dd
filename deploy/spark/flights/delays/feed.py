"""The feed: appends flights to the log in departure order, one day at a time.

    python -m flights.delays.feed --log FOLDER --pause SECONDS --until FILE

A row's offset in its partition is its place in departure order. So a feed that is restarted needs
no state of its own: it continues after the end of the log.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pyarrow as pa

from coordinator.sources import SegmentWriter
from flights import dataset
from flights.delays.tables import FLIGHTS_SCHEMA, read_flights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument(
        "--pause", type=float, required=True, help="pause between two days, in seconds"
    )
    parser.add_argument(
        "--until", type=Path, required=True, help="file with the last day that may be fed"
    )
    options = parser.parse_args()
    for day, rows in enumerate(feed(options.log, read_flights()), start=1):
        print(f"day {day}: {rows} flights", flush=True)
        time.sleep(options.pause)
        while day >= int(options.until.read_text()):
            time.sleep(options.pause)


def make_log(directory: Path) -> None:
    """Make an empty log, so that queries can start before the feed."""
    for number in range(dataset.PARTITIONS):
        (directory / str(number)).mkdir(parents=True, exist_ok=True)


def feed(directory: Path, flights: pd.DataFrame) -> Iterator[int]:
    """Append one day at each step; yields the number of flights appended."""
    days = flights.groupby(["month", "day"], sort=True).size().index
    with contextlib.ExitStack() as stack:
        partitions = [
            _Partition(
                stack.enter_context(SegmentWriter(directory, number, FLIGHTS_SCHEMA)), rows, days
            )
            for number, rows in dataset.partitioned(flights)
        ]
        for day in range(len(days)):
            yield sum(partition.append_until(day) for partition in partitions)


class _Partition:
    """All future rows of a partition, and its writer."""

    def __init__(self, writer: SegmentWriter, rows: pd.DataFrame, days: pd.MultiIndex) -> None:
        self._writer = writer
        self._rows = pa.Table.from_pandas(rows, schema=FLIGHTS_SCHEMA, preserve_index=False)
        sizes = rows.groupby(["month", "day"]).size().reindex(days, fill_value=0)
        self._ends = list(itertools.accumulate(sizes))

    def append_until(self, day: int) -> int:
        """Append the missing rows up to the end of a day; returns their number."""
        begin = self._writer.end_offset
        missing = max(0, self._ends[day] - begin)
        if missing:
            self._writer.append(self._rows.slice(begin, missing).combine_chunks())
        return missing


if __name__ == "__main__":
    main()
