"""Parquet: the columns asked for, in small batches, from the row groups that hold the rows.

Pages are decoded as they are needed, so memory does not grow with row groups. See `positions.py`
for rows in the middle of one.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Any, ClassVar

from coordinator.sources.file_systems import StorePath
from coordinator.sources.formats.base import RowFile, pieces
from coordinator.sources.formats.positions import ParquetPositions

MOST_ROWS, WANTED_BYTES = 65_536, 4 << 20
"""Limits of a batch; one row at least."""
BUFFER, REMOTE_BUFFER = 256 << 10, 4 << 20
"""Bytes of a column that are read at once; a request to an object store takes longer."""
PAGE = 1 << 20
"""Size of pages and dictionaries that writers aim at."""

_positions = ParquetPositions()


class ParquetFile(RowFile):
    """Complete from the start; its footer says how many rows each row group has.

    Timestamps of 96 bits, which older versions of Spark write, are points in time as Spark's
    are: `timestamp[us, UTC]`.
    """

    suffixes: ClassVar = (".parquet",)
    grows: ClassVar = False
    has_groups: ClassVar = True

    def __init__(self, path: StorePath, size: int, earlier: RowFile | None) -> None:
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

    @property
    def starts(self) -> list[int]:
        return self._starts

    def read(self, first: int, last: int, schema: Any) -> Iterator[tuple[int, Any]]:
        names = tuple(name for name in schema.names if name in self.schema.names)
        for group, skipped, taken in pieces(self._starts, first, last):
            row = self._starts[group] + skipped
            for batch in self._rows(group, skipped, taken, names):
                yield row, batch
                row += batch.num_rows

    # --- Inside ---

    def _rows(self, group: int, skipped: int, taken: int, names: tuple[str, ...]) -> Iterator[Any]:
        if not names:
            yield from _without_columns(taken)
            return
        reader = _positions.take((self, group, skipped, names))
        if reader is None:
            reader = _GroupReader(self._open(), self._metadata, group, names, self._buffer)
            reader.skip(skipped)
        wanted = _of_names(self.schema, list(reader.columns))
        for batch in reader.rows(taken):
            yield batch if batch.schema.equals(wanted) else batch.cast(wanted)
        if not reader.is_at_end:
            position = (self, group, skipped + taken, names)
            _positions.keep(position, reader, reader.size_bytes)

    @property
    def _buffer(self) -> int:
        return BUFFER if self._path.is_local else REMOTE_BUFFER

    def _open(self) -> Any:
        import pyarrow.parquet as pq

        return pq.ParquetFile(
            self._path.path if self._path.is_local else self._path.open(),
            metadata=getattr(self, "_metadata", None),
            coerce_int96_timestamp_unit="us",
            buffer_size=self._buffer,
            pre_buffer=False,
        )


class _GroupReader:
    """Columns of one row group, from its beginning on; it goes forward only."""

    def __init__(
        self, file: Any, metadata: Any, group: int, names: tuple[str, ...], buffer: int
    ) -> None:
        described = metadata.row_group(group)
        chunks = [described.column(i) for i in range(described.num_columns)]
        chunks = [chunk for chunk in chunks if chunk.path_in_schema.partition(".")[0] in names]
        row_bytes = sum(chunk.total_uncompressed_size for chunk in chunks) / described.num_rows
        rows = max(1, min(MOST_ROWS, int(WANTED_BYTES / max(row_bytes, 1))))
        self._left: int = described.num_rows
        self._held_bytes: int = sum(
            min(chunk.total_uncompressed_size, 2 * PAGE) + min(chunk.total_compressed_size, buffer)
            for chunk in chunks
        )
        self._file = file  # Kept open.
        self._batches = file.iter_batches(
            rows, row_groups=[group], columns=list(names), use_threads=False
        )
        self._batch: Any = next(self._batches)  # The rest of the last one.
        self.columns: list[str] = self._batch.schema.names

    @property
    def is_at_end(self) -> bool:
        return self._left == 0

    @property
    def size_bytes(self) -> int:
        """Estimate of the memory that is held."""
        left: int = 0 if self._batch is None else self._batch.nbytes
        return self._held_bytes + left

    def rows(self, number: int) -> Iterator[Any]:
        """The next rows, as pyarrow.RecordBatch."""
        while number:
            if self._batch is None:
                self._batch = next(self._batches)
            taken = min(number, self._batch.num_rows)
            batch = self._batch.slice(0, taken)
            self._batch = self._batch.slice(taken) if taken < self._batch.num_rows else None
            number -= taken
            self._left -= taken
            yield batch

    def skip(self, number: int) -> None:
        for _ in self.rows(number):
            pass


def _without_columns(rows: int) -> Iterator[Any]:
    """Batches of rows of a file that has none of the columns."""
    import pyarrow as pa

    while rows:
        number = min(rows, MOST_ROWS)
        yield pa.record_batch({"none": pa.nulls(number)}).select([])
        rows -= number


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
