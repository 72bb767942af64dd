"""Order of a log's files as a group has recorded it, so that offsets do not depend on names.

Spark names files at random, so a directory that it appends to has no order of its own. The first
reader of a group records the files it finds, by name; whoever finds more appends them. An entry
says which file comes next in which partition, how many rows it has and what identifies its
content. Entries are never moved, so an offset means the same row for every reader of the group, a
deleted file leaves a gap, and a file that was written over is noticed.

    entry    hash of the path (5 bytes), partition, rows + 1 (0: it may still grow), check (2)

Numbers have seven bits a byte. A file that grows has one more entry once another one follows it.
Entries are kept in pages, see `group_files.py`. A file costs ten or
eleven bytes, so there is room for some 120,000 files.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol, Self, runtime_checkable

MAX_BYTES = 5 << 18
"""Size of all entries of a log: 1.25 MiB."""
PAGE_BYTES = 3_200
"""Size of a page's entries: as text they are a quarter longer, and stay below 4,096 characters."""
CACHED = 131_072
"""Hashes that are cached: a log is listed for each batch."""
VERSION = "1"


class RecordUnreadable(ValueError):
    """The record of a group's files was overwritten, or a later version made it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file. `rows`: None while it may grow. `check`: of its rows, size and digest."""

    key: int
    partition: int
    rows: int | None
    check: int


@dataclass(frozen=True, slots=True)
class FileRecord:
    """The files that a group has recorded of a log.

    rule: how files were divided among partitions. places: the index of a file's entry in its
    partition, by its key. count, size_bytes: of entries, those that close a file included.
    """

    rule: str = ""
    partitions: dict[int, list[Entry]] = field(default_factory=dict)
    places: dict[int, tuple[int, int]] = field(default_factory=dict)
    count: int = 0
    size_bytes: int = 0

    def entry(self, key: int) -> Entry | None:
        """The entry of a file; None: it is not recorded."""
        place = self.places.get(key)
        return None if place is None else self.partitions[place[0]][place[1]]

    def extended(self, rule: str, entries: Sequence[Entry]) -> FileRecord:
        """The record with more entries; this one stays as it is."""
        partitions = {p: list(found) for p, found in self.partitions.items()}
        places = dict(self.places)
        for entry in entries:
            if (place := places.get(entry.key)) is not None:
                partitions[place[0]][place[1]] = entry  # It is closed.
                continue
            found = partitions.setdefault(entry.partition, [])
            places[entry.key] = (entry.partition, len(found))
            found.append(entry)
        size = self.size_bytes + sum(len(_packed(entry)) for entry in entries)
        return FileRecord(rule, partitions, places, self.count + len(entries), size)


class FileOrder(Protocol):
    """Keeper of a group's records. Every method may raise what the coordinator's client raises."""

    def known(self, topic: str, *, anew: bool = False) -> FileRecord | None:
        """The record of a log, perhaps an older one. None: it cannot be kept.

        Args:
            anew: ask the coordinator.
        """
        ...

    def append(
        self, topic: str, record: FileRecord, rule: str, entries: Sequence[Entry]
    ) -> FileRecord | None:
        """The record with the entries behind the others. None: somebody else was first.

        Raises:
            ValueError: the record would be too long.
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
    """Hash of a file's path in its log, of 40 bits."""
    raw = hashlib.blake2b(name.encode(errors="surrogateescape"), digest_size=5).digest()
    return int.from_bytes(raw, "big")


@lru_cache(CACHED)
def check_of(rows: int, size: int, digest: str) -> int:
    """Short hash of a file's content."""
    raw = hashlib.blake2b(f"{rows}:{size}:{digest}".encode(), digest_size=2).digest()
    return int.from_bytes(raw, "big")


def pages_of(rule: str, last: Sequence[Entry], entries: Sequence[Entry]) -> list[tuple[int, str]]:
    """Pages that hold the entries, the first with those of the last page before them.

    Args:
        last: the entries of the last page so far.
    Returns:
        Of each page the number of entries and the text.
    """
    pages: list[tuple[int, str]] = []
    packed, count = b"".join(map(_packed, last)), len(last)
    for entry in entries:
        more = _packed(entry)
        if len(packed) + len(more) > PAGE_BYTES:
            pages.append((count, _text(rule, packed)))
            packed, count = b"", 0
        packed, count = packed + more, count + 1
    return [*pages, (count, _text(rule, packed))]


def page_read(text: str) -> tuple[str, list[Entry]]:
    """The rule and the entries of a page.

    Raises:
        RecordUnreadable: it is not a page.
    """
    try:
        version, rule, packed = text.split(" ")
        if version != VERSION:
            raise ValueError(f"version {version}")
        return rule, list(_unpacked(base64.b85decode(packed)))
    except (ValueError, IndexError) as error:
        raise RecordUnreadable(f"this is no page of a record of files: {text[:40]!r}") from error


def _text(rule: str, packed: bytes) -> str:
    return f"{VERSION} {rule} {base64.b85encode(packed).decode()}"


def _packed(entry: Entry) -> bytes:
    raw = bytearray(entry.key.to_bytes(5, "big"))
    for number in (entry.partition, 0 if entry.rows is None else entry.rows + 1):
        while number > 0x7F:
            raw.append(number & 0x7F | 0x80)
            number >>= 7
        raw.append(number)
    return bytes(raw + entry.check.to_bytes(2, "big"))


def _unpacked(raw: bytes) -> Iterable[Entry]:
    at = 0
    while at < len(raw):
        key = int.from_bytes(raw[at : at + 5], "big")
        at += 5
        numbers = []
        for _ in range(2):
            number = shift = 0
            while True:
                byte = raw[at]
                at += 1
                number |= (byte & 0x7F) << shift
                shift += 7
                if byte < 0x80:
                    break
            numbers.append(number)
        if at + 2 > len(raw):
            raise IndexError("cut off")
        check = int.from_bytes(raw[at : at + 2], "big")
        at += 2
        yield Entry(key, numbers[0], numbers[1] - 1 if numbers[1] else None, check)
