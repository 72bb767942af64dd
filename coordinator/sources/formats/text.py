"""JSON lines and CSV. A row is a line; of CSV one in which no quoted field is open at its end.

Rows are counted once, and the place of every 1,024th is kept, so that reading from any row
touches little more than what is asked for. Compressed text can only be read from its beginning,
so each read decompresses what is in front. An empty line has an offset and no row; one that
holds several rows (two objects, a bare carriage return) has one offset for all of them.
"""

from __future__ import annotations

import csv
import io
from abc import abstractmethod
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, ClassVar

from coordinator.sources.base import BadRow
from coordinator.sources.conditions import Conditions
from coordinator.sources.file_systems import StorePath
from coordinator.sources.formats.base import (
    COMPRESSIONS,
    FileFormat,
    RowFile,
    compression_of,
)
from coordinator.sources.formats.lines import BLOCK, BadText, Quotes, RecordEnds, unescaped
from coordinator.sources.formats.times import times_in, timestamps, without_times, zoned

STRIDE = 1_024
READ_ROWS, READ_BYTES = 65_536, 16 << 20
"""Limits of what is parsed at once; a stride is parsed at least."""
GUESSED_FROM = 4_096
"""Rows that the schema is guessed from."""


def with_compression(*suffixes: str) -> tuple[str, ...]:
    """The suffixes, and those of compressed files."""
    return suffixes + tuple(s + c for s in suffixes for c in COMPRESSIONS)


class TextFile(RowFile):
    """A file that may grow, unless it is compressed; a line without its end does not count yet."""

    grows: ClassVar = True

    def __init__(
        self, path: StorePath, size: int, earlier: RowFile | None, format: FileFormat
    ) -> None:
        self._path, self._format = path, format
        self._compression = compression_of(path.name)
        self._marks: list[int] = []  # Where record 0, STRIDE, 2 * STRIDE … begin.
        self._records, self._end = 0, 0  # Whole records, and where the last one ends.
        self._guessed: Any = None
        self._columns: list[str] | None = None
        if isinstance(earlier, TextFile):
            self._marks = earlier._marks.copy()
            self._records, self._end = earlier._records, earlier._end
            self._guessed = earlier._guessed
        self._count(size)
        self.rows, self.size = max(self._records - self.has_header, 0), self._end
        if self._compression is not None:
            self.rows, self.size = self.final_rows, size

    @property
    def has_header(self) -> bool:
        """True if the first record is not a row."""
        return False

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
        return max(self._records + (self._unfinished > 0) - self.has_header, 0)

    def read(
        self, first: int, last: int, schema: Any, conditions: Conditions = ()
    ) -> Iterator[tuple[int, Any]]:
        """See `RowFile`.

        Raises:
            BadRow: a row does not fit the schema, and the mode is FAILFAST.
        """
        for row, text in self._texts(first, last):
            yield from self._parsed(row, text, schema)

    # --- What formats say ---

    @abstractmethod
    def _parse(self, text: bytes, schema: Any) -> Any:
        """Parse whole records into a pyarrow.Table; the schema is guessed if None."""
        ...

    def _quotes(self) -> Quotes | None:
        """Style of quotes, in which records may have line breaks; None: a line is a record."""
        return None

    # --- Inside ---

    def _open(self) -> Any:
        import pyarrow as pa

        if self._compression is None:
            return self._path.open()
        raw = pa.OSFile(self._path.path) if self._path.is_local else self._path.open()
        return pa.CompressedInputStream(raw, self._compression)

    def _count(self, size: int) -> None:
        """Count records from the end of the last one."""
        ends = RecordEnds(self._end, self._quotes())
        with self._open() as file:
            if self._end:
                file.seek(self._end)
            left = size - self._end
            while block := file.read(BLOCK if self._compression else min(BLOCK, max(left, 0))):
                left -= len(block)
                for end in ends.feed(block):
                    self._add(end)
        self._unfinished = ends.unfinished
        self._text_end = self._end + self._unfinished
        if self._compression is not None:
            ends.check_end()

    def _add(self, end: int) -> None:
        if self._records % STRIDE == 0:
            self._marks.append(self._end)
        self._records += 1
        self._end = end

    def _texts(self, first: int, last: int) -> Iterator[tuple[int, bytes]]:
        """Bytes of the rows `first` to before `last`, in parts, each with its first row."""
        first, last = first + self.has_header, last + self.has_header
        if first >= last:
            return
        marks = self._marks if self._records % STRIDE else [*self._marks, self._end]
        place = first // STRIDE
        with self._open() as file:
            self._skip(file, marks[place])
            while first < last:
                upto = place + 1
                while (
                    upto < len(marks)
                    and upto * STRIDE < last
                    and (upto - place) * STRIDE < READ_ROWS
                    and marks[upto] - marks[place] < READ_BYTES
                ):
                    upto += 1
                end = marks[upto] if upto < len(marks) else self._text_end
                text = _read_exactly(file, end - marks[place])
                skipped, taken = first - place * STRIDE, min(last, upto * STRIDE) - first
                if upto >= len(marks):
                    taken = last - first
                yield first - self.has_header, self._cut(text, marks[place], skipped, taken)
                first, place = first + taken, upto

    def _cut(self, text: bytes, at: int, skipped: int, taken: int) -> bytes:
        """Records of a text that begins with one."""
        ends = [0, *(end - at for end in RecordEnds(at, self._quotes()).feed(text))]
        if ends[-1] < len(text):
            ends.append(len(text))  # An unfinished last one.
        end = ends[min(skipped + taken, len(ends) - 1)]
        cut = text[ends[min(skipped, len(ends) - 1)] : end]
        return cut if cut.endswith(b"\n") or not cut else cut + b"\n"

    def _skip(self, file: Any, position: int) -> None:
        if self._compression is None:
            file.seek(position)
            return
        while position and (block := file.read(min(BLOCK, position))):
            position -= len(block)

    def _guess(self) -> Any:
        import pyarrow as pa

        for row, text in self._texts(0, min(self.rows or self.final_rows, GUESSED_FROM)):
            tables = []
            for at, table, error in self._sorted_out(row, text, None):
                if table is not None:
                    tables.append(table)
                elif self._format.mode == "FAILFAST":
                    raise BadText(f"{self._path}: the schema cannot be told by row {at}: {error}")
            if tables:
                try:
                    joined = pa.concat_tables(tables, promote_options="permissive")
                except (pa.ArrowTypeError, pa.ArrowInvalid) as error:
                    raise BadText(
                        f"{self._path}: the schema cannot be told by the first rows ({error}): "
                        "give one, with .schema(...) in Spark or with_schema in Python"
                    ) from error
                guessed = times_in(joined).schema
                parts = self._sorted_out(row, text, without_times(guessed))
                texts = [table for _, table, _ in parts if table is not None]
                return zoned(guessed, pa.concat_tables(texts))
        return None

    def _parsed(self, row: int, text: bytes, schema: Any) -> Iterator[tuple[int, Any]]:
        """Record batches of whole records, by the mode."""
        import pyarrow as pa

        if not text.strip():
            return
        corrupt = self._format.corrupt_column
        wanted = pa.schema([field for field in schema if field.name != corrupt])
        for at, table, error in self._sorted_out(row, text, wanted):
            if table is not None:
                for batch in table.to_batches():
                    yield at, batch
            elif self._format.mode == "FAILFAST":
                raise BadRow(str(error), row=at)
            elif self._format.mode == "PERMISSIVE":
                yield at, self._corrupt(self._one(text, row, at), schema)

    def _typed(self, text: bytes, schema: Any) -> Any:
        parsed = self._parse(text, without_times(schema))
        return timestamps(parsed, schema)

    def _sorted_out(
        self, row: int, text: bytes, schema: Any
    ) -> Iterator[tuple[int, Any, Exception | None]]:
        """Parts of a text that can be parsed, as large as possible, and single rows that cannot.

        Yields:
            (first row, pyarrow.Table, None), or (row, None, why it cannot be parsed).
        """
        import pyarrow as pa

        records = self._records_of(text)
        parts = [(0, len(records))]
        while parts:
            begin, end = parts.pop()
            some = b"".join(records[begin:end])
            if not some.strip():
                continue
            try:
                table = self._parse(some, None) if schema is None else self._typed(some, schema)
            except BadText:
                raise
            except (pa.ArrowException, ValueError) as error:
                if end - begin == 1:
                    yield row + begin, None, error
                else:
                    middle = (begin + end) // 2
                    parts += [(middle, end), (begin, middle)]
            else:
                yield row + begin, table, None

    def _records_of(self, text: bytes) -> list[bytes]:
        ends = [0, *RecordEnds(0, self._quotes()).feed(text)]
        return [text[begin:end] for begin, end in pairwise(ends)]

    def _one(self, text: bytes, row: int, at: int) -> str:
        return self._records_of(text)[at - row].rstrip(b"\r\n").decode(errors="replace")

    def _corrupt(self, text: str, schema: Any) -> Any:
        import pyarrow as pa

        values = {
            field.name: pa.array(
                [text if field.name == self._format.corrupt_column else None], field.type
            )
            for field in schema
        }
        return pa.record_batch(values, schema=schema)


def _read_exactly(file: Any, size: int) -> bytes:
    """Streams of compressed files may return less than they are asked for."""
    parts = []
    while size and (part := file.read(size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


class JsonLinesFile(TextFile):
    """An object a line."""

    suffixes: ClassVar = with_compression(".jsonl", ".ndjson", ".json")

    def _parse(self, text: bytes, schema: Any) -> Any:
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


class CsvFile(TextFile):
    """Double quotes, and the names of the columns in the first line, unless `header` is false.

    An unquoted field without a character is null, a quoted one is an empty text.
    """

    suffixes: ClassVar = with_compression(".csv")

    @property
    def has_header(self) -> bool:
        return self._format.header is not False

    def _quotes(self) -> Quotes:
        return Quotes(self._format.separator.encode(), self._format.escape)

    def _parse(self, text: bytes, schema: Any) -> Any:
        import pyarrow.csv as pc

        names = self._names(text, schema)
        if self._format.escape == "\\" and b"\\" in text:
            text = unescaped(self._quotes())(text)
        return pc.read_csv(
            io.BytesIO(text),
            read_options=pc.ReadOptions(column_names=names, block_size=len(text) + 1),
            parse_options=pc.ParseOptions(
                delimiter=self._format.separator, newlines_in_values=True
            ),
            convert_options=pc.ConvertOptions(
                column_types=schema,
                include_columns=None if schema is None else schema.names,
                include_missing_columns=True,
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                null_values=[""],
            ),
        )

    def _names(self, text: bytes, schema: Any) -> list[str]:
        """Names of the columns.

        Raises:
            ValueError: the header names none of the columns asked for, or looks like a row.
        """
        known = self._format.names or (() if schema is None else schema.names)
        if not self.has_header:
            if schema is not None:
                return list(known)
            line = self._records_of(text)[0].decode("utf-8-sig")
            fields = next(csv.reader([line], delimiter=self._format.separator))
            return [f"_c{i}" for i in range(len(fields))]
        names = self._header()
        if known and not set(names) & set(known):
            raise BadText(
                f"{self._path}: its header names the columns {', '.join(names)[:200]}, and none "
                f"of {', '.join(known)[:200]}: set header to false if its first line is a "
                "row, as Spark writes CSV by default"
            )
        return names

    def _header(self) -> list[str]:
        if self._columns is None:
            end, text = None, b""
            ends = RecordEnds(0, self._quotes())
            with self._open() as file:
                while end is None and (block := file.read(4_096)):
                    text += block
                    end = next(iter(ends.feed(block)), None)
            line = text[:end].decode("utf-8-sig", errors="replace")
            reader = csv.reader(io.StringIO(line, newline=""), delimiter=self._format.separator)
            self._columns = next(reader, [])
            self._check_header(self._columns)
        return self._columns

    def _check_header(self, names: list[str]) -> None:
        odd = next((name for name in names if not name.strip() or _is_value(name)), None)
        if odd is not None and self._format.header is None:
            raise BadText(
                f"{self._path}: its first line holds {odd!r}, so it looks like a row: set header "
                "to false if it is one, as Spark writes CSV by default, or to true if it is not"
            )
        if len(set(names)) < len(names):
            raise BadText(f"{self._path}: its header names a column twice: {', '.join(names)}")


def _is_value(text: str) -> bool:
    """True for a number or a time, which no column is named for."""
    try:
        float(text)
    except ValueError:
        return text[:4].isdigit() and text[4:5] == "-"
    return True
