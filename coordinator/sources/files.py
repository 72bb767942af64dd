"""Directories of files as logs: Parquet, Arrow, JSON lines, segments that grow, and whole files.

    directory/3.parquet                               partition 3, one file
    directory/day=3/a.parquet, b.parquet              partition 3, its files one after the other
    directory/3/00000000000000120000.arrows, ...      partition 3, each file at its own offset
    directory/date=2026-11-21/part-00000-….parquet    values of a column: see `layout.py`
    directory/part-00000-….parquet                    the same without columns

Row 0 of the first file is at offset 0, and each file goes on where the one before it ends. Files
follow each other as the group has recorded them (`recorded.py`), so whatever is added goes behind
what is there; on virtual time, and without a group, they follow each other by name. What was read
is compared with what is there (`marks.py`). A name of twenty digits, as Kafka's segments have, says
at which offset the file begins; then old files may be deleted. Files of Arrow streams and JSON
lines may grow while they are the last: what is not yet whole at their end does not count. Other
layouts are refused (`layout.py`).

Of other formats a file is one unit: an offset counts files, and the row at it says where its file
is, for whoever reads it (`formats/whole.py`).

Folders that are named for columns and values give their files these columns, as texts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice
from typing import Any, NamedTuple

from coordinator.sources.base import BadLayout, BadRow, LogChanged, NothingFound, conformed
from coordinator.sources.file_systems import StorePath
from coordinator.sources.folder_columns import values_of, with_values
from coordinator.sources.formats import (
    FORMATS,
    FileFacts,
    digest_of,
    facts,
    final_facts,
    opened,
)
from coordinator.sources.formats.base import may_grow
from coordinator.sources.layout import (
    NUMBERS,
    ListedFile,
    check_numbered,
    checked_rule,
    dealt_among,
    dealt_files,
    expected,
    numbered_files,
    numbered_folders,
    refuse_table,
    rule_of,
)
from coordinator.sources.listing import Files, OrderedFiles, in_order
from coordinator.sources.marks import BASE_OFFSET, Segment, check_mark, make_mark
from coordinator.sources.readable import GroupReadable
from coordinator.sources.recorded import FileOrder, FileRecord, check_of
from coordinator.sources.recorded import RecordedEntry as FileEntry

PARTS = 4
"""Ranges that cut one file, for a reader that scans it for each."""


class FileRange(NamedTuple):
    """Rows `first` to before `last` of a file that has `rows` rows. `uri`: see `StorePath.uri`."""

    uri: str
    first: int
    last: int
    rows: int

    @property
    def is_whole(self) -> bool:
        """Whether these are all rows of the file."""
        return self.last - self.first == self.rows


@dataclass(frozen=True)
class FileLog(GroupReadable):
    """`Source` over a directory that all workers see under the same location.

    Args:
        directory: a path, or a location that `StorePath.of` takes.
        format: arrow (files), segments (Arrow streams), parquet or jsonl, of which offsets count
            rows; csv, json, orc, avro, text or files (any), of which they count files.
        given_schema: a pyarrow.Schema; by default that of the first file and what the newest adds,
            which for JSON lines is guessed from the first rows; then the folders' columns.
        file_partitions: rule by which files belong to partitions, see `layout.py`; by default by
            the layout.
        order: the group's record of the files; see `sources.group.in_group`.
    Raises:
        ValueError: there is no such format or rule.
    """

    directory: str
    topic: str
    format: str = "arrow"
    given_schema: Any = None
    file_partitions: str = ""
    order: FileOrder | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise ValueError(f"no format {self.format!r}; there are {', '.join(FORMATS)}")
        if self.file_partitions:
            checked_rule(self.file_partitions)

    def partitions(self) -> list[int]:
        """Numbers from 0 on; one without folder or file has no rows.

        Raises:
            BadLayout: files exist that would be misread or not read at all.
        """
        _ = self._is_no_table
        rule = self._rule()
        if rule == NUMBERS:
            folders = numbered_folders(self.root, self._is_data)
            check_numbered(self.root, folders, self._is_data, self._suffixes)
            record = self._record()
            # One whose files were all read and deleted stays.
            known = record.partitions.keys() if record and folders else set()
            return list(range(max({*folders, *known}, default=-1) + 1))
        record = self._record()
        is_known = record is not None and record.count
        is_there = is_known or dealt_files(self.root, self._is_data, self._suffixes)
        return list(range(dealt_among(rule))) if is_there else []

    @property
    def unit(self) -> str:
        """Unit of its offsets: `rows` or `files`."""
        return FORMATS[self.format].unit

    @property
    def expected(self) -> str:
        """Expected layout, for messages."""
        return expected(self._suffixes)

    def begin_offset(self, partition: int) -> int:
        return self.snapshot(partition).begin()

    def end_offset(self, partition: int) -> int:
        return self.snapshot(partition).end()

    def snapshot(self, partition: int) -> FileSnapshot:
        return self.snapshots([partition])[partition]

    def snapshots(self, partitions: Collection[int]) -> dict[int, FileSnapshot]:
        """Snapshots of several partitions, of one listing.

        Raises:
            LogChanged: a file was written over, or two overlap.
        """
        rule = self._rule()
        ordered = self._in_order(rule, partitions)
        return {p: self._snapshot(ordered.get(p), rule) for p in partitions}

    def schema(self) -> Any:
        return self._schema

    def with_schema(self, schema: Any) -> FileLog:
        """See `Source`. Columns are chosen by name and cast; those that a file lacks are null."""
        return replace(self, given_schema=schema)

    def ordered_by(self, order: FileOrder) -> FileLog:
        """The same log with its files in the order that a group has recorded."""
        return replace(self, order=order)

    def read(self, partition: int, begin: int, end: int) -> Iterator[Any]:
        return self.snapshot(partition).read(begin, end)

    def files(self) -> list[StorePath]:
        """All files of rows that are there now."""
        return [one.path for one in self._all_files()]

    # --- Inside ---

    @cached_property
    def root(self) -> StorePath:
        """The directory."""
        return StorePath.of(self.directory)

    @property
    def _suffixes(self) -> tuple[str, ...]:
        return FORMATS[self.format].suffixes

    def _is_data(self, name: str) -> bool:
        return name.endswith(self._suffixes)

    @cached_property
    def _is_no_table(self) -> bool:
        """Looked at once.

        Raises:
            BadLayout: it is one, or in one.
        """
        refuse_table(self.root)
        return True

    def _rule(self) -> str:
        """The rule that is given, or that the group has recorded, or that the layout suggests."""
        if self.file_partitions:
            return checked_rule(self.file_partitions)
        record = self._record()
        return (record and record.rule) or rule_of(self.root, self._is_data)

    def _record(self) -> FileRecord | None:
        return None if self.order is None else self.order.known(self.topic)

    def _in_order(
        self, rule: str, partitions: Collection[int] | None = None
    ) -> dict[int, OrderedFiles]:
        look = partial(self._files_now, rule, partitions)
        return in_order(look, rule, self.topic, self.format, self.order)

    def _files_now(self, rule: str, partitions: Collection[int] | None) -> Files:
        """The files of partitions as they are now; of all, if the rule needs that."""
        if rule == NUMBERS:
            folders = numbered_folders(self.root, self._is_data)
            wanted = folders if partitions is None else partitions & folders.keys()
            return {
                p: numbered_files(folders[p], self.root / folders[p], self._is_data)
                for p in sorted(wanted)
            }
        return {0: dealt_files(self.root, self._is_data, self._suffixes)}

    def _snapshot(self, ordered: OrderedFiles | None, rule: str) -> FileSnapshot:
        files = [one.file for one in ordered.files if one.file is not None] if ordered else []
        # In a numbered partition, names are below its folder.
        prefix = files[0].name[: files[0].name.rfind("/") + 1] if rule == NUMBERS and files else ""
        if ordered is None:
            return FileSnapshot(self, prefix, (), 0)
        if ordered.record:
            return self._recorded_snapshot(ordered, prefix)
        segments: list[Segment] = []
        end = 0
        for one in files:
            segment = self._segment(one, end, prefix, is_last=one is files[-1])
            if segment.start < end:
                raise LogChanged(f"{one.path} begins before offset {end}, where the last one ends")
            segments.append(segment)
            end = segment.start + segment.rows
        return FileSnapshot(self, prefix, tuple(segments), end)

    def _segment(self, one: ListedFile, end: int, prefix: str, *, is_last: bool) -> Segment:
        """A file in order of name. `end`: the offset behind the one before it."""
        grows = may_grow(one.name, FORMATS[self.format])
        known = facts(one.path, self.format, one.entry)
        if grows and not is_last:
            final = final_facts(one.path, self.format, one.entry)
            known = final if final.rows != known.rows else known
        stem = one.path.name.rpartition(".")[0]
        has_base = BASE_OFFSET.fullmatch(stem) is not None
        start = int(stem) if has_base else end
        return self._made(one, start, known, prefix, has_base=has_base, grows=grows)

    def _made(
        self,
        one: ListedFile,
        start: int,
        known: FileFacts,
        prefix: str,
        *,
        grows: bool,
        has_base: bool = False,
    ) -> Segment:
        return Segment(
            one.name.removeprefix(prefix),
            start,
            known.rows,
            known.size,
            known.digest,
            has_base,
            grows,
        )

    def _recorded_snapshot(self, ordered: OrderedFiles, prefix: str) -> FileSnapshot:
        segments: list[Segment] = []
        gone: list[range] = []
        end = ordered.begin
        for one, entry in ordered.files:
            assert entry is not None
            start, end = end, end + (entry.rows or 0)
            if one is None:
                gone.append(range(start, end))
                continue
            if entry.rows is None:
                known = facts(one.path, self.format, one.entry)
                end = start + known.rows
            else:
                known = self._as_recorded(one, entry)
            segments.append(self._made(one, start, known, prefix, grows=entry.rows is None))
        return FileSnapshot(self, prefix, tuple(segments), end, tuple(gone), ordered.record)

    def _as_recorded(self, one: ListedFile, entry: FileEntry) -> FileFacts:
        """Facts of a file, which is looked at again if it may have changed.

        Raises:
            LogChanged: it is not the one that was recorded.
        """
        known = self._compared.get(entry.key)
        looked = one.entry
        if known is not None and (known.size, known.changed_ns) == (
            looked.size, looked.changed_ns
        ):  # fmt: skip
            return known
        known = final_facts(one.path, self.format, looked, entry.rows)
        if check_of(known.rows, known.size, known.digest) != entry.check:
            raise LogChanged(
                f"{one.path} was written over since the group has recorded it, and has "
                f"{known.size} bytes now: put it back as it was, or read the log in a new group"
            )
        self._compared[entry.key] = known
        return known

    @cached_property
    def _compared(self) -> dict[int, FileFacts]:
        """Recorded files that were compared, by key: all are listed for each batch."""
        return {}

    @cached_property
    def _schema(self) -> Any:
        if self.given_schema is not None:
            return self.given_schema
        files = self._all_files()
        schema = self._schema_of(files)
        for name in values_of(files[0].name):
            schema = _with_field(schema, name)
        return schema

    def _all_files(self) -> list[ListedFile]:
        return [one for listed in self._files_now(self._rule(), None).values() for one in listed]

    def _schema_of(self, files: list[ListedFile]) -> Any:
        """Schema of the first file with rows, and what the last one with rows adds to it."""
        import pyarrow as pa

        found_schemas = []
        for some in (files, files[::-1]):
            schemas = ((one.path, opened(one.path, self.format).schema) for one in some)
            found_schemas += list(islice((both for both in schemas if both[1] is not None), 1))
        if not found_schemas:
            raise NothingFound(
                f"{self.directory} holds no {self.format} rows to tell the schema by: give one, "
                "with .schema(...) in Spark or with_schema in Python"
            )
        (first, old), (last, new) = found_schemas
        try:
            return pa.unify_schemas([old, new], promote_options="permissive")
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise BadLayout(
                f"{first} and {last} have columns that do not fit together ({error}): give a "
                "schema, with .schema(...) in Spark or with_schema in Python"
            ) from error


@dataclass(frozen=True, slots=True)
class FileSnapshot:
    """`Snapshot` of a partition: its files as they were listed once.

    Args:
        prefix: folder that the names of the segments are below; empty: the log's directory.
        upto: the offset behind the last row.
        gone: rows of recorded files that are gone.
        record: id of the group's record by which files follow each other; empty: by name.
    """

    log: FileLog
    prefix: str
    segments: tuple[Segment, ...]
    upto: int
    gone: tuple[range, ...] = ()
    record: str = ""

    def begin(self) -> int:
        if self.segments:
            return self.segments[0].start
        return self.upto if self.record else 0

    def end(self) -> int:
        return self.upto

    def starts(self) -> list[int]:
        """See `Snapshot`: where files and row groups begin."""
        kind = FORMATS[self.log.format]
        offsets: list[int] = []
        for segment in self.segments:
            rows: Sequence[int] = (0,)
            if kind.has_groups:
                rows = opened(self._folder / segment.name, self.log.format).starts
            offsets += [segment.start + row for row in rows if row < segment.rows]
        return offsets

    def mark(self, offset: int) -> str:
        return make_mark(self.segments, offset, self.record, self.gone)

    def check(self, mark: str) -> None:
        check_mark(
            mark,
            self.segments,
            self._folder,
            lambda name, size: digest_of(self._folder / name, size),
            self.record,
            self.gone,
        )

    def cut(self, begin: int, end: int) -> FileSnapshot:
        """See `Snapshot`: the files that hold the rows, without the record."""
        segments = (s for s in self.segments if s.start < end and begin < s.start + s.rows)
        return replace(self, log=replace(self.log, order=None), segments=tuple(segments), gone=())

    def read(self, begin: int, end: int) -> Iterator[Any]:
        """See `Snapshot`.

        Raises:
            LogChanged: a file is no longer the one that was listed. BadRow: see there.
        """
        schema = self.log.schema()
        for segment, path, first, last in self._within(begin, end):
            self._check(path, segment)
            yield from self._rows(path, segment, first, last, schema)

    def cut_near(self, begin: int, end: int) -> int:
        """Offset near `end` at which a file may be cut, for readers that scan files as a whole.

        The end of a file, or the begin of a row group, if one is within a tenth of the rows; else
        `end` itself, if no more than `PARTS` such parts make the file; else the end of a file.
        """
        for segment in self.segments:
            if segment.start < end < segment.start + segment.rows:
                break
        else:
            return end
        groups: Sequence[int] = (0,)
        if FORMATS[self.log.format].has_groups:
            groups = opened(self._folder / segment.name, self.log.format).starts
        starts = (segment.start + row for row in (*groups, segment.rows))
        near = min((at for at in starts if at > begin), key=lambda at: abs(at - end))
        if abs(near - end) * 10 <= end - begin:
            return near
        if (end - max(begin, segment.start)) * PARTS >= segment.rows:
            return end
        return segment.start if segment.start > begin else segment.start + segment.rows

    def file_ranges(self, begin: int, end: int) -> list[FileRange]:
        """The files that hold these rows, for others to read.

        Raises:
            LogChanged: a file is no longer the one that was listed.
        """
        ranges = []
        for segment, path, first, last in self._within(begin, end):
            self._check(path, segment)
            ranges.append(FileRange(path.uri, first, last, segment.rows))
        return ranges

    # --- Inside ---

    def _within(self, begin: int, end: int) -> Iterator[tuple[Segment, StorePath, int, int]]:
        """The files that hold these rows, each with the numbers of its first and last."""
        for segment in self.segments:
            first = max(begin - segment.start, 0)
            last = min(end - segment.start, segment.rows)
            if first < last:
                yield segment, self._folder / segment.name, first, last

    @property
    def _folder(self) -> StorePath:
        return self.log.root / self.prefix.rstrip("/") if self.prefix else self.log.root

    def _check(self, path: StorePath, segment: Segment) -> None:
        """Compare a file with what was listed."""
        entry = path.stat()
        if entry is None:
            raise LogChanged(f"{path} is gone since it was listed", rows_are_gone=True)
        if segment.grows:
            is_same = entry.size >= segment.size and digest_of(path, segment.size) == segment.digest
        else:
            known = final_facts(path, self.log.format, entry, segment.rows)
            is_same = (known.size, known.digest) == (segment.size, segment.digest)
        if not is_same:
            raise LogChanged(f"{path} was written over since it was listed")

    def _rows(
        self, path: StorePath, segment: Segment, first: int, last: int, schema: Any
    ) -> Iterator[Any]:
        import pyarrow as pa

        values = values_of(self.prefix + segment.name)
        inside = pa.schema([field for field in schema if field.name not in values])
        at = segment.start + first
        try:
            for row, batch in opened(path, self.log.format).read(first, last, inside):
                at = segment.start + row
                if batch.num_rows:
                    yield with_values(conformed(batch, inside, allow_missing=True), values, schema)
        except BadRow as error:
            raise BadRow(f"{path}, offset {segment.start + error.row}: {error}") from error
        except (pa.ArrowException, ValueError) as error:
            raise BadRow(f"{path}, in the rows from offset {at} on: {error}") from error


def _with_field(schema: Any, name: str) -> Any:
    """The schema with a column of text, in the place of a file's column of that name."""
    import pyarrow as pa

    field = pa.field(name, pa.string())
    at = schema.get_field_index(name)
    return schema.append(field) if at < 0 else schema.set(at, field)
