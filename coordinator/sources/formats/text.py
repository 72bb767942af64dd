"""JSON lines and CSV: a row is a line, so a quoted field may not hold a line break.

Lines are counted once, and the place of every 1,024th is kept, so that reading from any row
touches little more than what is asked for. An empty line has an offset and no row; one that
holds several rows (two objects, a bare carriage return) has one offset for all of them.
"""

from __future__ import annotations

import csv
import io
from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from coordinator.sources.formats.base import RowFile

STRIDE = 1_024
BLOCK = 1 << 20
READ_ROWS = 65_536
GUESSED_FROM = 4_096
"""Rows that the schema is guessed from."""


class TextFile(RowFile):
    """A file that may grow; a line without its line break does not count yet."""

    has_header: ClassVar = False
    grows: ClassVar = True

    def __init__(self, path: Path, size: int, earlier: RowFile | None) -> None:
        self._path = path
        self._marks: list[int] = []  # Where line 0, STRIDE, 2 * STRIDE … begin.
        self._lines, self._end = 0, 0  # Whole lines, and where the last one ends.
        self.schema = None
        if isinstance(earlier, TextFile):
            self._marks = earlier._marks.copy()
            self._lines, self._end = earlier._lines, earlier._end
            self.schema = earlier.schema
        with path.open("rb") as file:
            file.seek(self._end)
            self._count(file, size)
        self.rows, self.size = max(self._lines - self.has_header, 0), self._end
        if self.schema is None and self.rows:
            self.schema = self._guess(self._bytes(0, min(self.rows, GUESSED_FROM)))

    def read(self, first: int, last: int, schema: Any) -> Iterator[Any]:
        """See `RowFile`.

        Raises:
            pyarrow.ArrowInvalid: a line does not fit the schema. Where it was guessed, give it.
        """
        for start in range(first, last, READ_ROWS):
            text = self._bytes(start, min(start + READ_ROWS, last))
            if text.strip():
                yield from self._parse(text, schema).to_batches()

    # --- Inside ---

    @abstractmethod
    def _parse(self, text: bytes, schema: Any) -> Any:
        """Parse whole lines into a pyarrow.Table; the schema is guessed if None."""
        ...

    def _guess(self, text: bytes) -> Any:
        return self._parse(text, None).schema if text.strip() else None

    def _count(self, file: Any, size: int) -> None:
        """Count lines from the current position of the file."""
        begin = self._end
        while begin < size and (block := file.read(min(BLOCK, size - begin))):
            at = 0
            while (line_break := block.find(b"\n", at)) >= 0:
                if self._lines % STRIDE == 0:
                    self._marks.append(self._end)
                self._lines += 1
                at = line_break + 1
                self._end = begin + at
            begin += len(block)

    def _bytes(self, first: int, last: int) -> bytes:
        """Bytes of the rows `first` to before `last`."""
        first, last = first + self.has_header, last + self.has_header
        mark = first // STRIDE
        upto = -(-last // STRIDE)
        end = self._marks[upto] if upto < len(self._marks) else self._end
        with self._path.open("rb") as file:
            file.seek(self._marks[mark])
            lines = file.read(end - self._marks[mark]).split(b"\n")
        return b"\n".join([*lines[first - mark * STRIDE : last - mark * STRIDE], b""])


class JsonLinesFile(TextFile):
    """An object a line."""

    suffixes: ClassVar = (".jsonl", ".ndjson", ".json")

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
    """Commas, double quotes, and the names of the columns in the first line."""

    suffixes: ClassVar = (".csv",)
    has_header: ClassVar = True

    def _parse(self, text: bytes, schema: Any) -> Any:
        import pyarrow.csv as pc

        with self._path.open(encoding="utf-8-sig", newline="") as file:
            names = next(csv.reader([file.readline()]))
        return pc.read_csv(
            io.BytesIO(text),
            read_options=pc.ReadOptions(column_names=names, block_size=len(text) + 1),
            convert_options=pc.ConvertOptions(
                column_types=schema,
                include_columns=None if schema is None else schema.names,
                strings_can_be_null=True,
            ),
        )
