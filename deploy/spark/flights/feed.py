"""The feed: appends flights to the log in departure order, some a second, then all the rest.

Files appear whole: each is written under a hidden name and renamed.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from flights import dataset

PAUSE_S = 1.0
ROWS = 60
"""Rows that each partition gets at a time."""


class Feed(threading.Thread):
    """Feeds partitions, which exist from the start.

    Args:
        folder: of the log, which does not exist yet.
    """

    def __init__(self, folder: Path, flights: pd.DataFrame) -> None:
        super().__init__(daemon=True)
        self._folder = folder
        self._ends = threading.Event()
        self._files = 0
        self._rest = {
            number: pa.Table.from_pandas(rows, schema=dataset.SCHEMA, preserve_index=False)
            for number, rows in dataset.partitioned(flights)
        }
        for number in self._rest:
            (folder / str(number)).mkdir(parents=True)

    def run(self) -> None:
        while not self._ends.wait(PAUSE_S):
            self.append(ROWS)

    def finish(self) -> None:
        """Append all the rest."""
        self._ends.set()
        self.join()
        self.append(None)

    def append(self, rows: int | None) -> None:
        """Append a file of so many rows to each partition; None: of all."""
        self._files += 1
        for number, table in self._rest.items():
            some = table.slice(0, rows)
            if some.num_rows:
                write_whole(self._folder / str(number) / f"{self._files:06}.parquet", some)
            self._rest[number] = table.slice(some.num_rows)


def write_whole(path: Path, rows: pa.Table) -> None:
    """Write a Parquet file that nobody sees before it is complete."""
    hidden = path.with_name(f".{path.name}")
    pq.write_table(rows, hidden)
    hidden.rename(path)
