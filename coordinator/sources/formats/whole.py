"""Files of any format, each of which is one unit of work: whoever has it reads it as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from coordinator.sources.file_systems import StorePath
from coordinator.sources.formats.base import FILES, RowFile


class WholeFile(RowFile):
    """A complete file, which is not opened. Its row says where it is.

    Columns, named as those of Spark's `binaryFile`: path (text; with its scheme, if it is not on a
    local disk), modificationTime (timestamp) and length (int64, bytes).
    """

    suffixes: ClassVar = ("",)
    unit: ClassVar = FILES
    grows: ClassVar = False
    rows = 1

    def __init__(self, path: StorePath, size: int, earlier: RowFile | None) -> None:
        self._path, self.size = path, size

    @property
    def schema(self) -> Any:
        import pyarrow as pa

        return pa.schema(
            [
                ("path", pa.string()),
                ("modificationTime", pa.timestamp("us", "UTC")),
                ("length", pa.int64()),
            ]
        )

    def read(self, first: int, last: int, schema: Any) -> Iterator[tuple[int, Any]]:
        import pyarrow as pa

        entry = self._path.stat()
        if entry is None:
            raise FileNotFoundError(f"{self._path} is gone")
        row = [[str(self._path)], [entry.modified_ns // 1_000], [entry.size]]
        arrays = [pa.array(*cell) for cell in zip(row, self.schema.types, strict=True)]
        yield 0, pa.RecordBatch.from_arrays(arrays, schema=self.schema)
