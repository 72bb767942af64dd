"""Order of the files of partitions: as the group has recorded them, else by name.

Files that the record lacks are recorded first, behind those that are there. The record is loaded
before the directory is listed, so a recorded file that the listing lacks is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from coordinator.sources.base import BadLayout, LogChanged
from coordinator.sources.formats import FORMATS, final_facts
from coordinator.sources.formats.base import may_grow
from coordinator.sources.layout import NUMBERS, ListedFile, dealt_among
from coordinator.sources.marks import BASE_OFFSET
from coordinator.sources.progress import one_more
from coordinator.sources.recorded import FileOrder, FileRecord, RecordedEntry, check_of, key_of

Files = dict[int, list[ListedFile]]
"""Files of each numbered partition, by name; of other rules all files, as partition 0."""


class PlacedFile(NamedTuple):
    """A file in its place. `file`: None if it is gone. `entry`: None if it is not recorded."""

    file: ListedFile | None
    entry: RecordedEntry | None


@dataclass(frozen=True, slots=True)
class OrderedFiles:
    """The files of a partition in order, from the row `begin` on.

    record: id of the group's record that says so; empty: they follow each other by name.
    """

    files: list[PlacedFile]
    record: str = ""
    begin: int = 0


def in_order(
    look: Callable[[], Files],
    rule: str,
    topic: str,
    format: str,
    order: FileOrder | None,
) -> dict[int, OrderedFiles]:
    """Files of each partition in order.

    Args:
        look: lists the files as they are now.
    Raises:
        LogChanged: a file that was growing is gone. BadLayout: the group has read the log by
            another rule, or has counted something else.
    """
    unit = FORMATS[format].unit
    anew = False
    while order is not None:
        record = order.known(topic, anew=anew)
        if record is None:
            break
        _check(record, topic, unit, rule)
        files = look()
        by_key = _by_key(files)
        new = _new(record, rule, files)
        if not new:
            return _recorded(record, rule, files, by_key)
        if anew:
            entries = list(_entries(record, rule, new, by_key, format))
            order.append(topic, unit, rule, entries)
        anew = not anew
    return _by_name(rule, look())


def _check(record: FileRecord, topic: str, unit: str, rule: str) -> None:
    if record.rule not in ("", rule):
        raise BadLayout(
            f"the group has read {topic} with filePartitions={record.rule}, and with {rule} "
            f"its offsets would mean other rows: set filePartitions={record.rule}, or use a "
            "new group"
        )
    if record.unit not in ("", unit):
        raise BadLayout(
            f"the offsets of {topic} count {record.unit} in this group, and this format's count "
            f"{unit}: read it in a new group, whose offsets may be set to the number of files that "
            "were read"
        )


def _by_name(rule: str, files: Files) -> dict[int, OrderedFiles]:
    by_partition: dict[int, list[PlacedFile]]
    if rule == NUMBERS:
        by_partition = {p: [PlacedFile(one, None) for one in some] for p, some in files.items()}
    else:
        partitions = dealt_among(rule)
        by_partition = {p: [] for p in range(partitions)}
        for i, one in enumerate(files[0]):
            by_partition[i % partitions].append(PlacedFile(one, None))
    return {p: OrderedFiles(placed) for p, placed in by_partition.items()}


def _counts_by_name(rule: str, files: Iterable[ListedFile]) -> bool:
    """True for a partition that is one file, or whose names say offsets."""
    return rule == NUMBERS and any(
        "/" not in one.name or BASE_OFFSET.fullmatch(one.path.name.rpartition(".")[0])
        for one in files
    )


def _by_key(files: Files) -> dict[int, ListedFile]:
    """All files by the keys of their entries.

    Raises:
        BadLayout: two have one key, so a record could not tell them apart.
    """
    by_key: dict[int, ListedFile] = {}
    for listed in files.values():
        for one in listed:
            other = by_key.setdefault(key_of(one.name), one)
            if other is not one:
                raise BadLayout(f"{one.path} and {other.path} have one hash: rename one")
    return by_key


def _new(record: FileRecord, rule: str, files: Files) -> Files:
    """The files that are to be recorded."""
    new: Files = {}
    for partition, listed in files.items():
        if _counts_by_name(rule, listed):
            continue
        missing = [one for one in listed if key_of(one.name) not in record.keys]
        if missing:
            new[partition] = missing
    return new


def _entries(
    record: FileRecord, rule: str, new: Files, by_key: dict[int, ListedFile], format: str
) -> Iterator[RecordedEntry]:
    """Entries of new files, and those that close what they follow."""
    kind = FORMATS[format]
    ends = {p: record.end(p) for p in record.partitions.keys() | record.bases.keys()}
    open_there = {
        p: entries[-1]
        for p, entries in record.partitions.items()
        if entries and entries[-1].rows is None
    }
    open_here: dict[int, RecordedEntry] = {}
    for number, files in new.items():
        for one in files:
            partition = _partition(rule, number, ends)
            if (last := open_there.pop(partition, None)) is not None:
                closed = _closed(last, by_key, format)
                ends[partition] += closed.rows or 0
                yield closed
            if partition in open_here:
                yield open_here.pop(partition)
            entry = _final(key_of(one.name), partition, one, format)
            one_more()
            ends[partition] = ends.get(partition, 0) + (entry.rows or 0)
            if may_grow(one.name, kind):
                open_here[partition] = entry
            else:
                yield entry
    yield from (RecordedEntry(entry.key, p, None, 0) for p, entry in open_here.items())


def _partition(rule: str, known: int, ends: dict[int, int]) -> int:
    """The partition of a new file: of a dealt log the one with the fewest rows."""
    if rule == NUMBERS:
        return known
    return min(range(dealt_among(rule)), key=lambda p: (ends.get(p, 0), p))


def _closed(entry: RecordedEntry, by_key: dict[int, ListedFile], format: str) -> RecordedEntry:
    """The entry of a file that grew, and that another one follows now."""
    one = by_key.get(entry.key)
    if one is None:
        raise LogChanged(
            f"the file at the end of partition {entry.partition} is gone, and nobody knows how "
            "many rows it had: put it back, or read the log in a new group",
            rows_are_gone=True,
        )
    return _final(entry.key, entry.partition, one, format)


def _final(key: int, partition: int, one: ListedFile, format: str) -> RecordedEntry:
    known = final_facts(one.path, format, one.entry)
    return RecordedEntry(key, partition, known.rows, check_of(known.rows, known.size, known.digest))


def _recorded(
    record: FileRecord, rule: str, files: Files, by_key: dict[int, ListedFile]
) -> dict[int, OrderedFiles]:
    ordered: dict[int, OrderedFiles] = {}
    there = record.partitions.keys() | record.bases.keys()
    if rule == NUMBERS:
        there |= files.keys()
    else:
        there = set(range(dealt_among(rule)))
    for partition in there:
        listed = files.get(partition, []) if rule == NUMBERS else []
        is_recorded = partition in record.partitions or partition in record.bases
        if rule == NUMBERS and (not is_recorded or _counts_by_name(rule, listed)):
            ordered[partition] = OrderedFiles([PlacedFile(one, None) for one in listed])
        else:
            entries = record.partitions.get(partition, ())
            placed = [PlacedFile(by_key.get(entry.key), entry) for entry in entries]
            begin = record.base(partition).rows
            ordered[partition] = OrderedFiles(placed, record.id, begin)
    return ordered
