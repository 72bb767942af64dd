"""Writing logs that `FileLog` reads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from coordinator.sources.files import FileLog

BYTES_A_SEGMENT = 128 << 20


def write_log(directory: Path, partition: int, table: Any, *, rows_per_batch: int = 4_096) -> None:
    """Write a pyarrow.Table as one partition, complete, in the format `arrow`."""
    import pyarrow as pa

    directory.mkdir(parents=True, exist_ok=True)
    with pa.OSFile(str(directory / f"{partition:05}.arrow"), "wb") as sink:
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=rows_per_batch)


class SegmentWriter:
    """Appends to one partition in the format `segments`. A partition must have one writer only.

    A new writer begins a new segment, after the last complete row. Use it as a context manager.

    Args:
        schema: pyarrow.Schema without dictionaries.
        bytes_per_segment: size from which on the next file begins.
    """

    def __init__(
        self,
        directory: Path,
        partition: int,
        schema: Any,
        *,
        bytes_per_segment: int = BYTES_A_SEGMENT,
    ) -> None:
        self._folder = directory / str(partition)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._schema = schema
        self._bytes_per_segment = bytes_per_segment
        self._file: Any = None
        self._stream: Any = None
        self.end_offset = FileLog(str(directory), "", "segments").end_offset(partition)
        """Offset of the next row."""

    def append(self, rows: Any) -> int:
        """Append a pyarrow.RecordBatch or Table; returns the end offset once it is on disk.

        Raises:
            OSError: the write failed. Close the writer; a new one goes on after the last whole row.
        """
        if self._file is None:
            self._begin()
        self._stream.write(rows)
        self._file.flush()
        os.fsync(self._file.fileno())
        self.end_offset += rows.num_rows
        if self._file.tell() >= self._bytes_per_segment:
            self.close()
        return self.end_offset

    def close(self) -> None:
        """Close the segment. The next `append` begins another."""
        if self._file is not None:
            self._stream.close()
            self._file.close()
            self._file = self._stream = None

    def _begin(self) -> None:
        import pyarrow as pa

        path = self._folder / f"{self.end_offset:020}.arrows"
        # An existing file has no complete row. It is replaced, not overwritten: it may be open.
        path.unlink(missing_ok=True)
        self._file = path.open("xb")
        self._stream = pa.ipc.new_stream(self._file, self._schema)

    def __enter__(self) -> SegmentWriter:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()
