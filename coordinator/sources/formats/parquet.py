"""Parquet: row groups are read batch by batch, and cut to the rows asked for."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Any, ClassVar

from coordinator.sources.file_systems import StorePath
from coordinator.sources.formats.base import FileFormat, RowFile, pieces


class ParquetFile(RowFile):
    """Complete from the start; its footer says how many rows each row group has.

    Timestamps of 96 bits, which older versions of Spark write, are points in time as Spark's
    are: `timestamp[us, UTC]`.
    """

    suffixes: ClassVar = (".parquet",)
    grows: ClassVar = False

    def __init__(
        self, path: StorePath, size: int, earlier: RowFile | None, format: FileFormat
    ) -> None:
        self._path = path
        self.size = size
        with self._open() as file:
            self._metadata = file.metadata
            self.schema = _with_times(file.schema_arrow, self._metadata.schema)
        groups = range(self._metadata.num_row_groups)
        counts = [self._metadata.row_group(group).num_rows for group in groups]
        self._starts = list(accumulate(counts, initial=0))
        self.rows = self._metadata.num_rows
        if self.rows != self._starts[-1] or min(counts, default=0) < 0:
            raise ValueError(f"{path}: {self.rows} rows, in row groups of {counts} rows")

    def read(self, first: int, last: int, schema: Any) -> Iterator[tuple[int, Any]]:
        names = [name for name in schema.names if name in self.schema.names]
        with self._open(self._metadata) as file:
            for group, skipped, taken in pieces(self._starts, first, last):
                table = file.read_row_group(group, columns=names).slice(skipped, taken)
                row = self._starts[group] + skipped
                wanted = _of_names(self.schema, table.schema.names)
                for batch in table.to_batches():
                    yield row, batch if batch.schema.equals(wanted) else batch.cast(wanted)
                    row += batch.num_rows

    def _open(self, metadata: Any = None) -> Any:
        import pyarrow.parquet as pq

        place = self._path.path if self._path.is_local else self._path.open()
        return pq.ParquetFile(place, metadata=metadata, coerce_int96_timestamp_unit="us")


def _of_names(schema: Any, names: list[str]) -> Any:
    import pyarrow as pa

    return pa.schema([schema.field(name) for name in names])


def _with_times(schema: Any, columns: Any) -> Any:
    """The schema with timestamps of 96 bits, which have no zone in the file, in UTC."""
    import pyarrow as pa

    for i in range(len(columns)):
        column = columns.column(i)
        if column.physical_type == "INT96" and "." not in column.path:
            at = schema.get_field_index(column.path)
            schema = schema.set(at, pa.field(column.path, pa.timestamp("us", "UTC")))
    return schema
