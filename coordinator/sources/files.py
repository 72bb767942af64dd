"""Directories of files as logs: Parquet, Arrow, JSON lines, CSV, and segments that grow.

    directory/3.parquet                               partition 3, one file
    directory/day=3/a.parquet, b.parquet              partition 3, its files in order of name
    directory/3/00000000000000120000.arrows, ...      partition 3, each file at its own offset

A partition is a number, or a folder that is one or ends in `=` and one. Row 0 of the first file
is at offset 0, and each file goes on where the one before it ends, so files are only added
behind those that are there: `marks.py` has a file that comes in front of what was read, or that
was changed or deleted, refused with its name. A name of twenty digits, as Kafka's segments have,
says at which offset the file begins; then old files may be deleted. Files of Arrow streams, JSON
lines and CSV may grow while they are the last: what is not yet whole at their end does not
count. Names with `.` or `_` in front and other suffixes are not looked at; other layouts are
refused (`layout.py`).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from coordinator.sources.base import LogChanged, NothingFound, conformed
from coordinator.sources.formats import FORMATS, digest_of, facts, opened
from coordinator.sources.layout import EXPECTED, check_layout, is_visible, places_of
from coordinator.sources.marks import BASE_OFFSET, Segment, check_mark, make_mark


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
        """Numbers from 0 to the highest found; one without folder or file has no rows.

        Raises:
            BadLayout: files exist that would be misread or not read at all.
        """
        places = self._places()
        check_layout(self.directory, places, FORMATS[self.format].suffixes, self._is_data)
        return list(range(max(places, default=-1) + 1))

    @property
    def expected(self) -> str:
        """Expected layout, for messages."""
        return EXPECTED.format(suffix=FORMATS[self.format].suffixes[0][1:])

    def begin_offset(self, partition: int) -> int:
        return next((segment.start for segment in self._segments(partition)), 0)

    def end_offset(self, partition: int) -> int:
        return self.snapshot(partition).end()

    def snapshot(self, partition: int) -> FileSnapshot:
        place = self._places().get(partition)
        return FileSnapshot(self, place, tuple(self._segments(partition)))

    def schema(self) -> Any:
        return self._schema

    def with_schema(self, schema: Any) -> FileLog:
        """See `Source`. Columns are chosen by name and cast."""
        return replace(self, given_schema=schema)

    def read(self, partition: int, begin: int, end: int) -> Iterator[Any]:
        return self.snapshot(partition).read(begin, end)

    # --- Inside ---

    @cached_property
    def _schema(self) -> Any:
        if self.given_schema is not None:
            return self.given_schema
        for partition in self.partitions():
            for path in self.snapshot(partition).paths():
                schema = opened(path, self.format).schema
                if schema is not None:
                    return schema
        raise NothingFound(
            f"{self.directory} holds no {self.format} rows to tell the schema by: give one, with "
            ".schema(...) in Spark or with_schema in Python"
        )

    def _places(self) -> dict[int, Path]:
        return places_of(self.directory, self._is_data)

    def _segments(self, partition: int) -> Iterator[Segment]:
        """Files of a partition in order, with their offsets. Raises `LogChanged` if two overlap."""
        place = self._places().get(partition)
        if place is None:
            return
        end = 0
        grows = FORMATS[self.format].grows
        for path, status in self._listed(place):
            known = facts(path, self.format, status)
            name = os.path.basename(path)  # Names, by the thousand.
            stem = name.rpartition(".")[0]
            has_base = BASE_OFFSET.fullmatch(stem) is not None
            start = int(stem) if has_base else end
            if start < end:
                raise LogChanged(f"{path} begins before offset {end}, where the last one ends")
            yield Segment(
                name, start, known.rows, known.size, known.digest, known.changed_ns, has_base, grows
            )
            end = start + known.rows

    def _listed(self, place: Path) -> Iterator[tuple[str, os.stat_result]]:
        """The data files of a partition in order of name, as they are now."""
        status = place.stat()
        if not stat.S_ISDIR(status.st_mode):
            yield str(place), status
            return
        with os.scandir(place) as entries:
            found = sorted((e.name, e) for e in entries if self._is_data(e.name))
        for _, entry in found:
            status = entry.stat()
            if stat.S_ISREG(status.st_mode):
                yield entry.path, status

    def _is_data(self, name: str) -> bool:
        return name.endswith(FORMATS[self.format].suffixes) and is_visible(name)


@dataclass(frozen=True, slots=True)
class FileSnapshot:
    """`Snapshot` of a partition: its files as they were listed once.

    Args:
        place: folder or file of the partition; None: there is none.
    """

    log: FileLog
    place: Path | None
    segments: tuple[Segment, ...]

    def end(self) -> int:
        return self.segments[-1].start + self.segments[-1].rows if self.segments else 0

    def mark(self, offset: int) -> str:
        return make_mark(self.segments, offset)

    def check(self, mark: str) -> None:
        folder = self._folder()
        check_mark(
            mark, self.segments, folder, lambda name, size: digest_of(str(folder / name), size)
        )

    def read(self, begin: int, end: int) -> Iterator[Any]:
        schema = self.log.schema()
        for segment, path in zip(self.segments, self.paths(), strict=True):
            first = max(begin - segment.start, 0)
            last = min(end - segment.start, segment.rows)
            if first < last:
                for batch in opened(path, self.log.format).read(first, last, schema):
                    yield conformed(batch, schema)

    def paths(self) -> list[Path]:
        """Paths of the files, in order."""
        folder = self._folder()
        return [folder / segment.name for segment in self.segments]

    def _folder(self) -> Path:
        """Folder of the partition's files; the log's directory, if the partition is one file."""
        if self.place is None or (self.segments and self.place.name == self.segments[0].name):
            return Path(self.log.directory)
        return self.place
