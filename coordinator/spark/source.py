"""A log of rows in files: one Arrow IPC file a partition, read by offset.

The file's footer is its index, so reading from any offset touches only the batches it
needs, and memory mapping shares them between processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SUFFIX = ".arrow"


@dataclass(frozen=True)
class ArrowLog:
    """`PartitionSource` over a directory written by `write_arrow_log`.

    It is small and travels to workers; files are opened where it is read.
    """

    directory: str
    topic: str

    def partitions(self) -> list[int]:
        """The partitions there are, in order."""
        return sorted(int(path.stem) for path in Path(self.directory).glob(f"*{SUFFIX}"))

    def schema(self) -> Any:
        """Of the rows, as a pyarrow.Schema.

        Raises:
            FileNotFoundError: there is no partition.
        """
        numbers = self.partitions()
        if not numbers:
            raise FileNotFoundError(f"{self.directory} holds no partition (*{SUFFIX})")
        return self._open(numbers[0]).schema

    def end_offset(self, partition: int) -> int:
        """Rows in the partition.

        Raises:
            FileNotFoundError: there is no such partition.
        """
        reader = self._open(partition)
        return sum(reader.get_batch(i).num_rows for i in range(reader.num_record_batches))

    def read(self, partition: int, offset: int, limit: int) -> Iterator[Any]:
        """Rows `offset` to `offset + limit`, or to the end, as pyarrow.RecordBatch.

        Raises:
            FileNotFoundError: there is no such partition.
        """
        reader = self._open(partition)
        start = 0
        for index in range(reader.num_record_batches):
            batch = reader.get_batch(index)
            first = max(offset - start, 0)
            last = min(offset + limit - start, batch.num_rows)
            if first < last:
                yield batch.slice(first, last - first)
            start += batch.num_rows
            if start >= offset + limit:
                return

    def _open(self, partition: int) -> Any:  # Any: pyarrow is optional and untyped.
        import pyarrow as pa

        path = Path(self.directory) / f"{partition:05}{SUFFIX}"
        return pa.ipc.open_file(pa.memory_map(str(path)))


def write_arrow_log(
    directory: Path, partition: int, table: Any, *, rows_per_batch: int = 4_096
) -> None:
    """Write a pyarrow.Table as one partition of an `ArrowLog`."""
    import pyarrow as pa

    directory.mkdir(parents=True, exist_ok=True)
    with pa.OSFile(str(directory / f"{partition:05}{SUFFIX}"), "wb") as sink:
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=rows_per_batch)
