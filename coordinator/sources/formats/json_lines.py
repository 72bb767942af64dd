"""JSON lines: an object a line.

Lines are counted once, and the place of every 1,024th is kept, so that reading from any row
touches little more than what is asked for. Compressed text can only be read from its beginning,
so each read decompresses what is in front. An empty line has an offset and no row; one that
holds several objects has one offset for all of them. Rows are parsed by pyarrow. Where no schema is
given, times are texts, as for Spark; where one asks for times, those without a zone are in UTC.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, ClassVar

from coordinator.sources.base import BadRow
from coordinator.sources.file_systems import StorePath
from coordinator.sources.formats.base import (
    COMPRESSIONS,
    RowFile,
    compression_of,
)

STRIDE = 1_024
READ_ROWS, READ_BYTES = 65_536, 16 << 20
"""Limits of what is parsed at once; a stride is parsed at least."""
GUESSED_FROM = 4_096
"""Rows that the schema is guessed from."""
BLOCK = 1 << 20
LONGEST = 64 << 20
"""Size of a line above which it is taken for something else."""


class BadText(ValueError):
    """Lines cannot be read as they are, or tell no schema."""


class JsonLinesFile(RowFile):
    """A file that may grow, unless it is compressed; a line without its end does not count yet."""

    suffixes: ClassVar = tuple(
        s + c for c in ("", *COMPRESSIONS) for s in (".jsonl", ".ndjson", ".json")
    )
    grows: ClassVar = True

    def __init__(self, path: StorePath, size: int, earlier: RowFile | None) -> None:
        self._path = path
        self._compression = compression_of(path.name)
        self._marks: list[int] = []  # Where line 0, STRIDE, 2 * STRIDE … begin.
        self._lines, self._end = 0, 0  # Whole lines, and where the last one ends.
        self._guessed: Any = None
        if isinstance(earlier, JsonLinesFile):
            self._marks = earlier._marks.copy()
            self._lines, self._end = earlier._lines, earlier._end
            self._guessed = earlier._guessed
        self._count(size)
        self.rows, self.size = self._lines, self._end
        if self._compression is not None:
            self.rows, self.size = self.final_rows, size

    @property
    def schema(self) -> Any:
        """Schema guessed from the first rows; None if there are none.

        Raises:
            BadText: they do not agree on one.
        """
        if self._guessed is None:
            self._guessed = self._guess()
        return self._guessed

    @property
    def final_rows(self) -> int:
        return self._lines + (self._unfinished > 0)

    def read(self, first: int, last: int, schema: Any) -> Iterator[tuple[int, Any]]:
        """See `RowFile`.

        Raises:
            BadRow: a row does not fit the schema. ValueError: of types that JSON does not have.
        """
        _check_types(schema)
        for row, text in self._texts(first, last):
            yield from self._parsed(row, text, schema)

    # --- Inside ---

    def _open(self) -> Any:
        import pyarrow as pa

        if self._compression is None:
            return self._path.open()
        raw = pa.OSFile(self._path.path) if self._path.is_local else self._path.open()
        return pa.CompressedInputStream(raw, self._compression)

    def _count(self, size: int) -> None:
        """Count lines from the end of the last one.

        Raises:
            BadText: a line is too long to be one.
        """
        with self._open() as file:
            if self._end:
                file.seek(self._end)
            left = size - self._end
            position = self._end  # Behind what was read.
            while block := file.read(BLOCK if self._compression else min(BLOCK, max(left, 0))):
                left -= len(block)
                at = 0
                while (at := block.find(b"\n", at) + 1) > 0:
                    if self._lines % STRIDE == 0:
                        self._marks.append(self._end)
                    self._lines += 1
                    self._end = position + at
                position += len(block)
                if position - self._end > LONGEST:
                    raise BadText(
                        f"the line at byte {self._end} has no end within {LONGEST >> 20} MiB"
                    )
        self._unfinished = position - self._end
        self._text_end = position

    def _texts(self, first: int, last: int) -> Iterator[tuple[int, bytes]]:
        """Lines of the rows `first` to before `last`, in parts, each with its first row."""
        if first >= last:
            return
        marks = self._marks if self._lines % STRIDE else [*self._marks, self._end]
        stride = first // STRIDE
        with self._open() as file:
            self._skip(file, marks[stride])
            while first < last:
                upto = stride + 1
                while (
                    upto < len(marks)
                    and upto * STRIDE < last
                    and (upto - stride) * STRIDE < READ_ROWS
                    and marks[upto] - marks[stride] < READ_BYTES
                ):
                    upto += 1
                end = marks[upto] if upto < len(marks) else self._text_end
                text = _read_exactly(file, end - marks[stride])
                skipped, taken = first - stride * STRIDE, min(last, upto * STRIDE) - first
                if upto >= len(marks):
                    taken = last - first
                yield first, b"".join(_lines_of(text)[skipped : skipped + taken])
                first, stride = first + taken, upto

    def _skip(self, file: Any, position: int) -> None:
        if self._compression is None:
            file.seek(position)
            return
        while position and (block := file.read(min(BLOCK, position))):
            position -= len(block)

    def _guess(self) -> Any:
        import pyarrow as pa

        for _, text in self._texts(0, min(self.rows or self.final_rows, GUESSED_FROM)):
            if text.strip():
                try:
                    guessed = _parse(text, None).schema
                except (pa.ArrowException, ValueError) as error:
                    raise BadText(
                        f"{self._path}: the schema cannot be told by the first rows ({error}): "
                        "give one, with .schema(...) in Spark or with_schema in Python"
                    ) from error
                return pa.schema([(field.name, _without_times(field.type)) for field in guessed])
        return None

    def _parsed(self, row: int, text: bytes, schema: Any) -> Iterator[tuple[int, Any]]:
        """Record batches of lines.

        Raises:
            BadRow: names the first line that does not fit the schema.
        """
        import pyarrow as pa

        if not text.strip():
            return
        try:
            batches = _parse(text, schema).to_batches()
        except (pa.ArrowException, ValueError):
            for at, line in enumerate(_lines_of(text), row):
                try:
                    yield from self._parsed_line(at, line, schema)
                except (pa.ArrowException, ValueError) as error:
                    raise BadRow(str(error), row=at) from error
            return
        for batch in batches:
            yield row, batch

    def _parsed_line(self, row: int, line: bytes, schema: Any) -> Iterator[tuple[int, Any]]:
        if line.strip():
            for batch in _parse(line, schema).to_batches():
                yield row, batch


def _read_exactly(file: Any, size: int) -> bytes:
    """Streams of compressed files may return less than they are asked for."""
    parts = []
    while size and (part := file.read(size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _lines_of(text: bytes) -> list[bytes]:
    """The lines, each with its end; the last one gets one if it has none."""
    lines = text.split(b"\n")
    rest = lines.pop()
    return [line + b"\n" for line in lines] + ([rest + b"\n"] if rest else [])


def _parse(text: bytes, schema: Any) -> Any:
    """Parse lines into a pyarrow.Table; the schema is guessed if None."""
    import pyarrow.json as pj

    options = pj.ParseOptions(
        explicit_schema=schema,
        unexpected_field_behavior="infer" if schema is None else "ignore",
    )
    return pj.read_json(
        io.BytesIO(text),
        read_options=pj.ReadOptions(block_size=len(text) + 1),
        parse_options=options,
    )


def _without_times(kind: Any) -> Any:
    """A pyarrow.DataType with times as texts."""
    import pyarrow as pa

    if pa.types.is_timestamp(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_without_times(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _without_times(field.type)) for field in kind])
    return kind


def _check_types(schema: Any) -> None:
    """Refuse types for which pyarrow has another form in JSON than Spark, or none.

    Raises:
        ValueError: names the column.
    """
    import pyarrow as pa

    types = pa.types
    for field in schema:
        inner = field.type
        while types.is_list(inner):
            inner = inner.value_type
        if types.is_struct(inner):
            _check_types(list(inner))
        elif types.is_binary(inner) or types.is_date(inner) or types.is_map(inner):
            raise ValueError(
                f"the column {field.name} is to be {field.type}, which lines of JSON are not read "
                "as: ask for a text, or have Spark read json:"
            )
