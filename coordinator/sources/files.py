"""Directories of files as logs: Parquet, Arrow, JSON lines, CSV, and segments that grow.

    directory/3.parquet                               partition 3, one file
    directory/day=3/a.parquet, b.parquet              partition 3, its files in order of name
    directory/3/00000000000000120000.arrows, ...      partition 3, each file at its own offset

A partition is a number, or a folder that is one or ends in `=` and one. Row 0 of the first file
is at offset 0, and each file goes on where the one before it ends, so files are only added
behind those that are there. A name of twenty digits, as Kafka's segments have, says at which
offset the file begins; then old files may be deleted. Files of Arrow streams, JSON lines and
CSV may grow: what is not yet whole at their end does not count. Names with `.` or `_` in front
and other suffixes are not looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from coordinator.sources.base import conformed
from coordinator.sources.formats import FORMATS, opened

_PARTITION = re.compile(r"(?:[^=]*=)?(\d{1,9})")
_BASE_OFFSET = re.compile(r"\d{20}")


@dataclass(frozen=True)
class FileLog:
    """`Source` over a directory that all workers see under the same path.

    Args:
        format: arrow (files), segments (Arrow streams), parquet, jsonl or csv.
        given_schema: a pyarrow.Schema; by default the first file's, which for JSON lines and
            CSV is guessed from its first rows.
    Raises:
        ValueError: there is no such format.
    """

    directory: str
    topic: str
    format: str = "arrow"
    given_schema: Any = None

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise ValueError(f"no format {self.format!r}; there are {', '.join(FORMATS)}")

    def partitions(self) -> list[int]:
        """From 0 to the highest there is; one that has no folder or file has no rows."""
        return list(range(max(self._places(), default=-1) + 1))

    def begin_offset(self, partition: int) -> int:
        """See `Source`."""
        return next((base for base, _ in self._files(partition)), 0)

    def end_offset(self, partition: int) -> int:
        """See `Source`."""
        end = 0
        for base, path in self._files(partition):
            end = base + opened(path, self.format).rows
        return end

    def schema(self) -> Any:
        """See `Source`."""
        return self._schema

    def with_schema(self, schema: Any) -> FileLog:
        """See `Source`. Columns are chosen by name and cast."""
        return replace(self, given_schema=schema)

    def read(self, partition: int, begin: int, end: int) -> Iterator[Any]:
        """See `Source`."""
        schema = self._schema
        for base, path in self._files(partition):
            if base >= end:
                return
            file = opened(path, self.format)
            first, last = max(begin - base, 0), min(end - base, file.rows)
            if first < last:
                for batch in file.read(first, last, schema):
                    yield conformed(batch, schema)

    # --- Inside ---

    @cached_property
    def _schema(self) -> Any:
        if self.given_schema is not None:
            return self.given_schema
        for partition in self.partitions():
            for _, path in self._files(partition):
                schema = opened(path, self.format).schema
                if schema is not None:
                    return schema
        raise LookupError(f"{self.directory} holds no {self.format} rows to tell the schema by")

    def _places(self) -> dict[int, Path]:
        """The folder or file of each partition.

        Raises:
            ValueError: two claim to be the same partition.
        """
        places: dict[int, Path] = {}
        for path in sorted(Path(self.directory).iterdir()):
            name = path.name if path.is_dir() else path.stem
            found = _PARTITION.fullmatch(name)
            if found is None or not (path.is_dir() or self._is_data(path)):
                continue
            number = int(found[1])
            if number in places:
                raise ValueError(f"{path} and {places[number]} are both partition {number}")
            places[number] = path
        return places

    def _files(self, partition: int) -> Iterator[tuple[int, Path]]:
        """The partition's files with the offsets they begin at.

        Raises:
            ValueError: a file begins before the one in front of it ends.
        """
        place = self._places().get(partition)
        if place is None:
            return
        end = 0
        for path in [place] if place.is_file() else sorted(filter(self._is_data, place.iterdir())):
            base = int(path.stem) if _BASE_OFFSET.fullmatch(path.stem) else end
            if base < end:
                raise ValueError(f"{path} begins before offset {end}, where the last one ends")
            yield base, path
            end = base + opened(path, self.format).rows

    def _is_data(self, path: Path) -> bool:
        return path.suffix in FORMATS[self.format].suffixes and path.name[0] not in "._"
