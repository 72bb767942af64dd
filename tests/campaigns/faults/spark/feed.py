"""The flights as a log that grows, so that there is work to do however long something takes."""

from __future__ import annotations

import sys
from pathlib import Path

from coordinator.sources import SegmentWriter

ROOT = Path(__file__).parents[4]


class Feed:
    """The flights of 2013 in 12 partitions; each row tells its partition and its number there.

    Args:
        folder: of the log, which does not have a row yet.
    """

    def __init__(self, folder: Path) -> None:
        sys.path.insert(0, str(ROOT / "deploy/spark"))
        import pyarrow as pa

        from flights import dataset

        self.source = f"segments:{folder}"
        self.lengths: dict[int, int] = {}
        """Rows of each partition that are in the log."""
        self._tables, self._writers = {}, {}
        for partition, some in dataset.partitioned(dataset.read()):
            some = some.assign(partition=partition, row=range(len(some)))
            table = pa.Table.from_pandas(some, preserve_index=False)
            self._tables[partition] = table
            self._writers[partition] = SegmentWriter(folder, partition, table.schema)
            self.lengths[partition] = 0

    @property
    def rows(self) -> int:
        """Number of rows in the log."""
        return sum(self.lengths.values())

    def grow(self, rows: int | None) -> None:
        """Append so many rows to each partition, as far as there are; None: all."""
        for partition, writer in self._writers.items():
            more = self._tables[partition].slice(self.lengths[partition], rows)
            if more.num_rows:
                self.lengths[partition] = writer.append(more)

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()
