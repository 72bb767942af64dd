"""Order of a log's files as a group has recorded it, so that offsets do not depend on names.

Spark names files at random, so a directory that it appends to has no order of its own. The first
reader of a group records the files it finds, by name; whoever finds more appends them. An entry
says which file comes next in which partition, how many rows it has (one, where offsets count
files) and what identifies its content. Entries are never moved, so an offset means the same row
for every reader of the group, a deleted file leaves a gap, and a file that was written over is
noticed.

Entries stand in pages. Pages of which every partition has read all files are folded into one: it
has the hash of each file's path, so that the file is never taken for a new one, and the sums that
the offsets of later files begin at. So a record grows by eight bytes a file, and its limit is on
files that are unread or recent.

    entry    hash of the path (8 bytes), partition, rows + 1 (0: it may still grow), check (4)
    folded   number of pages, of partitions; of each its number, rows and files; hashes

Numbers have seven bits a byte. A file that grows has one more entry once another one follows it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple, Protocol, Self, runtime_checkable

CACHED = 131_072
"""Hashes that are cached: a log is listed for each batch."""
_ENTRIES, _FOLDED = b"E1", b"F1"
"""Kinds of pages, with their versions."""
_KEY, _CHECK = 8, 4


class RecordUnreadable(ValueError):
    """The record of a group's files was overwritten, or a later version made it."""


class RecordedEntry(NamedTuple):
    """A file. `rows`: None while it may grow. `check`: of its rows, size and digest."""

    key: int
    partition: int
    rows: int | None
    check: int


class Base(NamedTuple):
    """Rows and files of a partition that were folded."""

    rows: int = 0
    files: int = 0


@dataclass(frozen=True, slots=True)
class Folded:
    """Pages of which all files were read: their number, the sums by partition, the files' keys."""

    pages: int
    bases: Mapping[int, Base]
    keys: Sequence[int]


@dataclass(frozen=True, slots=True)
class FileRecord:
    """The files that a group has recorded of a log.

    id: of this record; another one may have another order. Empty: nothing is recorded yet.
    unit: what its offsets count. rule: how files were divided among partitions.
    partitions: entries that are not folded. bases: sums of the others, by partition.
    keys: of all files, folded ones too. All states of one record share them, and none is removed.
    """

    id: str = ""
    unit: str = ""
    rule: str = ""
    partitions: dict[int, list[RecordedEntry]] = field(default_factory=dict)
    bases: dict[int, Base] = field(default_factory=dict)
    keys: set[int] = field(default_factory=set)

    @property
    def count(self) -> int:
        """Files that were ever recorded."""
        return len(self.keys)

    @property
    def unfolded(self) -> int:
        """Files that are not folded."""
        return sum(map(len, self.partitions.values()))

    def base(self, partition: int) -> Base:
        return self.bases.get(partition, _NOTHING)

    def end(self, partition: int) -> int:
        """Rows of a partition, without those that a file may still grow by."""
        rows = sum(entry.rows or 0 for entry in self.partitions.get(partition, ()))
        return self.base(partition).rows + rows

    def extended(self, entries: Iterable[RecordedEntry]) -> FileRecord:
        """The record with more entries."""
        partitions = {p: list(known_entries) for p, known_entries in self.partitions.items()}
        for entry in entries:
            extended_entries = partitions.setdefault(entry.partition, [])
            if entry.key not in self.keys:
                self.keys.add(entry.key)
                extended_entries.append(entry)
            elif extended_entries and extended_entries[-1].key == entry.key:
                extended_entries[-1] = entry  # It is closed; else it was folded since.
        return replace(self, partitions=partitions)

    def behind(self, page: Folded) -> FileRecord:
        """The record without the first files of its partitions, which are folded now."""
        partitions, bases = dict(self.partitions), dict(self.bases)
        for p, (rows, files) in page.bases.items():
            before = self.base(p)
            bases[p] = Base(before.rows + rows, before.files + files)
            partitions[p] = partitions.get(p, [])[files:]
        self.keys.update(page.keys)
        return replace(self, partitions=partitions, bases=bases)

    def fold(
        self, pages: Sequence[Sequence[RecordedEntry]], read: Mapping[int, int]
    ) -> Folded | None:
        """The first pages of entries folded; None: a file of theirs is not read, or may grow.

        Args:
            read: offsets up to which partitions were read.
        """
        files: dict[int, int] = {}
        rows: dict[int, int] = {}
        keys: list[int] = []
        for key, p, _, _ in (entry for page in pages for entry in page):
            index = files.get(p, 0)
            entry = self.partitions[p][index] if index < len(self.partitions[p]) else None
            if entry is None or entry.key != key:
                continue  # It closes a file in front.
            if entry.rows is None:
                return None
            keys.append(key)
            files[p], rows[p] = index + 1, rows.get(p, 0) + entry.rows
        if any(self.base(p).rows + more > read.get(p, 0) for p, more in rows.items()):
            return None
        return Folded(len(pages), {p: Base(rows[p], files[p]) for p in rows}, keys)


_NOTHING = Base()


class FileOrder(Protocol):
    """Keeper of a group's records. Every method may raise what the coordinator's client raises."""

    def known(self, topic: str, *, anew: bool = False) -> FileRecord | None:
        """The record of a log, perhaps an older one. None: it cannot be kept.

        Args:
            anew: ask the coordinator.
        """
        ...

    def append(
        self, topic: str, unit: str, rule: str, entries: Sequence[RecordedEntry]
    ) -> FileRecord | None:
        """The record with the entries behind the others. None: somebody else was first.

        Raises:
            ValueError: too many files are unread.
        """
        ...


@runtime_checkable
class Recordable(Protocol):
    """A log whose files can follow each other as a group has recorded them."""

    @property
    def order(self) -> FileOrder | None:
        """The group's record; None: they follow each other by name."""
        ...

    def ordered_by(self, order: FileOrder) -> Self:
        """The same log with its files in the order of a record."""
        ...


@lru_cache(CACHED)
def key_of(name: str) -> int:
    """Hash of a file's path in its log, of 64 bits."""
    raw = hashlib.blake2b(name.encode(errors="surrogateescape"), digest_size=_KEY).digest()
    return int.from_bytes(raw, "big")


@lru_cache(CACHED)
def check_of(rows: int, size: int, digest: str) -> int:
    """Short hash of a file's content."""
    raw = hashlib.blake2b(f"{rows}:{size}:{digest}".encode(), digest_size=_CHECK).digest()
    return int.from_bytes(raw, "big")


# --- Pages ------------------------------------------------------------------------------------


def page_of(content: Sequence[RecordedEntry] | Folded) -> bytes:
    """The bytes of a page."""
    raw = bytearray()
    if isinstance(content, Folded):
        raw += _FOLDED
        _put(raw, content.pages, len(content.bases))
        for partition, base in sorted(content.bases.items()):
            _put(raw, partition, *base)
        for key in content.keys:
            raw += key.to_bytes(_KEY, "big")
        return bytes(raw)
    raw += _ENTRIES
    for entry in content:
        raw += entry.key.to_bytes(_KEY, "big")
        _put(raw, entry.partition, 0 if entry.rows is None else entry.rows + 1)
        raw += entry.check.to_bytes(_CHECK, "big")
    return bytes(raw)


def page_read(raw: bytes) -> list[RecordedEntry] | Folded:
    """The content of a page.

    Raises:
        RecordUnreadable: it is not a page.
    """
    try:
        if raw.startswith(_FOLDED):
            return _folded(raw)
        if raw.startswith(_ENTRIES):
            return list(_entries(raw))
    except IndexError:
        pass
    raise RecordUnreadable(f"this is no page of a record of files: {raw[:40]!r}")


def _folded(raw: bytes) -> Folded:
    (pages, count), at = _numbers(raw, len(_FOLDED), 2)
    bases = {}
    for _ in range(count):
        (partition, *sums), at = _numbers(raw, at, 3)
        bases[partition] = Base(*sums)
    if (len(raw) - at) % _KEY:
        raise IndexError("cut off")
    keys = [int.from_bytes(raw[i : i + _KEY], "big") for i in range(at, len(raw), _KEY)]
    return Folded(pages, bases, keys)


def _entries(raw: bytes) -> Iterator[RecordedEntry]:
    at = len(_ENTRIES)
    while at < len(raw):
        (partition, rows), end = _numbers(raw, at + _KEY, 2)
        if end + _CHECK > len(raw):
            raise IndexError("cut off")
        key = int.from_bytes(raw[at : at + _KEY], "big")
        at = end + _CHECK
        yield RecordedEntry(
            key, partition, rows - 1 if rows else None, int.from_bytes(raw[end:at], "big")
        )


def _put(raw: bytearray, *numbers: int) -> None:
    for number in numbers:
        while number > 0x7F:
            raw.append(number & 0x7F | 0x80)
            number >>= 7
        raw.append(number)


def _numbers(raw: bytes, at: int, count: int) -> tuple[list[int], int]:
    """Numbers, and the place behind them."""
    numbers = []
    for _ in range(count):
        number = shift = 0
        while True:
            byte = raw[at]
            at += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        numbers.append(number)
    return numbers, at
