"""Arrow's IPC formats: the file, which has an index at its end, and the stream, which grows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from coordinator.sources.file_systems import StorePath
from coordinator.sources.formats.base import RowFile, pieces


class ArrowFile(RowFile):
    """Complete from the start. Memory-mapped: processes share its pages."""

    suffixes: ClassVar = (".arrow", ".feather")
    grows: ClassVar = False
    has_groups: ClassVar = True

    def __init__(self, path: StorePath, size: int, earlier: RowFile | None) -> None:
        self._path = path
        self.size = size
        reader = self._open()
        self.schema = reader.schema
        self._starts = [0]
        for index in range(reader.num_record_batches):
            self._starts.append(self._starts[-1] + reader.get_batch(index).num_rows)
        self.rows = self._starts[-1]

    @property
    def starts(self) -> list[int]:
        return self._starts

    def read(self, first: int, last: int, schema: Any) -> Iterator[tuple[int, Any]]:
        reader = self._open(schema.names)
        for index, skipped, taken in pieces(self._starts, first, last):
            yield self._starts[index] + skipped, reader.get_batch(index).slice(skipped, taken)

    def _open(self, names: Sequence[str] | None = None) -> Any:
        """The file. `names`: columns to read, if there is any of them; None: all."""
        import pyarrow as pa

        wanted = [i for i, n in enumerate(self.schema.names) if n in names] if names else None
        options = pa.ipc.IpcReadOptions(included_fields=wanted)
        return pa.ipc.open_file(_file(self._path), options=options)


class ArrowStream(RowFile):
    """Batches one after the other; an incomplete one at the end does not count yet."""

    suffixes: ClassVar = (".arrows",)
    grows: ClassVar = True

    def __init__(self, path: StorePath, size: int, earlier: RowFile | None) -> None:
        import pyarrow as pa

        self._path = path
        self.schema = None
        self.size = 0
        self._starts, self._end = [0], 0
        self._places: list[int] = []
        if isinstance(earlier, ArrowStream):
            self.schema, self._end = earlier.schema, earlier._end
            self._starts, self._places = earlier._starts.copy(), earlier._places.copy()
        if size == 0:
            self.rows = 0
            return
        with _file(path) as file:
            file.seek(self._end)
            while (message := _next_message(file)) is not None:
                if message.type == "schema":
                    self.schema = pa.ipc.read_schema(message)
                elif self.schema is None:
                    raise ValueError(f"{path}: a {message.type} in front of the schema")
                elif message.type == "record batch":
                    batch = pa.ipc.read_record_batch(message, self.schema)
                    self._places.append(self._end)
                    self._starts.append(self._starts[-1] + batch.num_rows)
                else:
                    raise ValueError(f"{path}: a {message.type} in it, which cannot be told by row")
                self._end = file.tell()
        self.rows, self.size = self._starts[-1], self._end

    def read(self, first: int, last: int, schema: Any) -> Iterator[tuple[int, Any]]:
        import pyarrow as pa

        file = _file(self._path)
        for index, skipped, taken in pieces(self._starts, first, last):
            file.seek(self._places[index])
            batch = pa.ipc.read_record_batch(pa.ipc.read_message(file), self.schema)
            yield self._starts[index] + skipped, batch.slice(skipped, taken)


def _file(path: StorePath) -> Any:
    """The file, mapped into memory if it is local."""
    import pyarrow as pa

    return pa.memory_map(path.path) if path.is_local else path.open()


def _next_message(file: Any) -> Any:
    """Read the next message; None at the end, and if the message is incomplete."""
    import pyarrow as pa

    try:
        return pa.ipc.read_message(file)
    except (EOFError, OSError, pa.ArrowInvalid):
        return None
