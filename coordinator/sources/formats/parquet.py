"""Parquet: row groups are read whole, and cut to the rows asked for."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar

from coordinator.sources.formats.base import RowFile, pieces


class ParquetFile(RowFile):
    """Complete from the start; its footer says how many rows each row group has."""

    suffixes: ClassVar = (".parquet",)
    grows: ClassVar = False

    def __init__(self, path: Path, size: int, earlier: RowFile | None) -> None:
        import pyarrow.parquet as pq

        self._path = path
        self.size = size
        with pq.ParquetFile(path) as file:
            self.schema = file.schema_arrow
            self._metadata = file.metadata
        groups = range(self._metadata.num_row_groups)
        counts = [self._metadata.row_group(group).num_rows for group in groups]
        self._starts = list(accumulate(counts, initial=0))
        self.rows = self._metadata.num_rows
        if self.rows != self._starts[-1] or min(counts, default=0) < 0:
            raise ValueError(f"{path}: {self.rows} rows, in row groups of {counts} rows")

    def read(self, first: int, last: int, schema: Any) -> Iterator[Any]:
        import pyarrow.parquet as pq

        with pq.ParquetFile(self._path, metadata=self._metadata) as file:
            for group, skipped, taken in pieces(self._starts, first, last):
                table = file.read_row_group(group, columns=schema.names).slice(skipped, taken)
                yield from table.to_batches()
