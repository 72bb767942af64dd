"""The flights as a log that grows, so that there is work to do however long something takes."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa

ROOT = Path(__file__).parents[4]


class Feed:
    """The flights of 2013 in 12 partitions; each row tells its partition and its number there.

    Args:
        folder: of the log, which does not have a row yet.
    """

    def __init__(self, folder: Path) -> None:
        sys.path.insert(0, str(ROOT / "deploy/spark"))
        from flights import dataset
        from flights.feed import write_whole

        self._write = write_whole
        self.source = f"parquet:{folder}"
        self.lengths: dict[int, int] = {}
        """Rows of each partition that are in the log."""
        self._folder, self._tables = folder, {}
        for partition, some in dataset.partitioned(dataset.read()):
            some = some.assign(partition=partition, row=range(len(some)))
            self._tables[partition] = pa.Table.from_pandas(some, preserve_index=False)
            self.lengths[partition] = 0

    @property
    def rows(self) -> int:
        """Number of rows in the log."""
        return sum(self.lengths.values())

    def grow(self, rows: int | None) -> None:
        """Append so many rows to each partition, as far as there are; None: all."""
        for partition, table in self._tables.items():
            begin = self.lengths[partition]
            more = table.slice(begin, rows)
            if more.num_rows:
                folder = self._folder / str(partition)
                folder.mkdir(parents=True, exist_ok=True)
                self._write(folder / f"{begin:06}.parquet", more)
                self.lengths[partition] += more.num_rows
