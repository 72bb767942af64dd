"""Order of the files of partitions: as the group has recorded them, else by name.

Files that the record lacks are recorded first, behind those that are there. The record is loaded
before the directory is listed, so a recorded file that the listing lacks is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from coordinator.sources.base import BadLayout, LogChanged
from coordinator.sources.formats import FORMATS, final_facts
from coordinator.sources.formats.base import FileFormat, may_grow
from coordinator.sources.layout import EACH, NUMBERS, Listed
from coordinator.sources.marks import BASE_OFFSET
from coordinator.sources.recorded import Entry, FileOrder, FileRecord, check_of, key_of

Files = dict[int, list[Listed]]
"""Files of each partition, by name; of the rule `each` all files, as partition 0."""


class PlacedFile(NamedTuple):
    """A file in its place. `file`: None if it is gone. `entry`: None if it is not recorded."""

    file: Listed | None
    entry: Entry | None


@dataclass(frozen=True, slots=True)
class OrderedFiles:
    """The files of a partition in order."""

    files: list[PlacedFile]
    is_recorded: bool


def in_order(
    look: Callable[[], Files],
    rule: str,
    topic: str,
    format: FileFormat,
    order: FileOrder | None,
) -> dict[int, OrderedFiles]:
    """Files of each partition in order.

    Args:
        look: lists the files as they are now.
    Raises:
        LogChanged: a file that was growing is gone. BadLayout: the group has read the log by
            another rule.
    """
    anew = False
    while order is not None:
        record = order.known(topic, anew=anew)
        if record is None:
            break
        if record.rule not in ("", rule):
            raise BadLayout(
                f"the group has read {topic} with filePartitions={record.rule}, and with {rule} "
                f"its offsets would mean other rows: set filePartitions={record.rule}, or use a "
                "new group"
            )
        files = look()
        by_key = _by_key(files)
        new = _new(record, rule, files)
        if not new:
            return _recorded(record, rule, files, by_key)
        if anew:
            order.append(topic, record, rule, list(_entries(record, rule, new, files, format)))
        anew = not anew
    return _by_name(rule, look())


def _by_name(rule: str, files: Files) -> dict[int, OrderedFiles]:
    if rule == EACH:
        return {
            i: OrderedFiles([PlacedFile(one, None)], is_recorded=False)
            for i, one in enumerate(files.get(0, ()))
        }
    return {
        p: OrderedFiles([PlacedFile(one, None) for one in found], is_recorded=False)
        for p, found in files.items()
    }


def _counts_by_name(rule: str, found: Iterable[Listed]) -> bool:
    """True for a partition that is one file, or whose names say offsets."""
    return rule == NUMBERS and any(
        "/" not in one.name or BASE_OFFSET.fullmatch(one.path.name.rpartition(".")[0])
        for one in found
    )


def _by_key(files: Files) -> dict[int, Listed]:
    """All files by the keys of their entries.

    Raises:
        BadLayout: two have one key, so a record could not tell them apart.
    """
    by_key: dict[int, Listed] = {}
    for found in files.values():
        for one in found:
            other = by_key.setdefault(key_of(one.name), one)
            if other is not one:
                raise BadLayout(f"{one.path} and {other.path} have one hash: rename one")
    return by_key


def _new(record: FileRecord, rule: str, files: Files) -> Files:
    """The files that are to be recorded.

    Raises:
        BadLayout: one has the hash of a file of another partition, as `_by_key`.
    """
    new: Files = {}
    for partition, found in files.items():
        if _counts_by_name(rule, found):
            continue
        missing = []
        for one in found:
            place = record.places.get(key_of(one.name))
            if place is None:
                missing.append(one)
            elif rule != EACH and place[0] != partition:
                raise BadLayout(
                    f"{one.path} has the hash of a file that the group has recorded in partition "
                    f"{place[0]}: rename it"
                )
        if missing:
            new[partition] = missing
    return new


def _entries(
    record: FileRecord, rule: str, new: Files, files: Files, format: FileFormat
) -> Iterable[Entry]:
    kind = FORMATS[format.name]
    if rule == EACH:
        first = max(record.partitions, default=-1) + 1
        new = {first + i: [one] for i, one in enumerate(new[0])}
    for partition, found in new.items():
        known = record.partitions.get(partition)
        if known and known[-1].rows is None:
            yield _closed(known[-1], files[partition], format)
        for one in found:
            key = key_of(one.name)
            if one is found[-1] and may_grow(one.name, kind):
                yield Entry(key, partition, None, 0)
            else:
                yield _final(key, partition, one, format)


def _closed(entry: Entry, found: list[Listed], format: FileFormat) -> Entry:
    """The entry of a file that grew, and that another one follows now."""
    for one in found:
        if key_of(one.name) == entry.key:
            return _final(entry.key, entry.partition, one, format)
    raise LogChanged(
        f"the file at the end of partition {entry.partition} is gone, and nobody knows how many "
        "rows it had: put it back, or read the log in a new group",
        rows_are_gone=True,
    )


def _final(key: int, partition: int, one: Listed, format: FileFormat) -> Entry:
    known = final_facts(one.path, format, one.entry)
    return Entry(key, partition, known.rows, check_of(known.rows, known.size, known.digest))


def _recorded(
    record: FileRecord, rule: str, files: Files, by_key: dict[int, Listed]
) -> dict[int, OrderedFiles]:
    ordered: dict[int, OrderedFiles] = {}
    for partition in record.partitions if rule == EACH else files.keys() | record.partitions.keys():
        found = files.get(partition, [])
        if partition not in record.partitions or _counts_by_name(rule, found):
            ordered[partition] = OrderedFiles(
                [PlacedFile(one, None) for one in found], is_recorded=False
            )
        else:
            entries = record.partitions[partition]
            placed = [PlacedFile(by_key.get(entry.key), entry) for entry in entries]
            ordered[partition] = OrderedFiles(placed, is_recorded=True)
    return ordered
