"""Mapping of folders and files to partitions, and refusal of layouts that would be misread.

A directory with an unknown layout is refused, with the expected one, rather than read in part:
missing rows would be noticed much later, or never.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

PARTITION = re.compile(r"(?:[^=]*=)?(\d{1,9})")
EXPECTED = (
    "expected is one file for each partition (0.{suffix}, 1.{suffix}, ...) or one folder of files "
    "for each (0/, 1/, ... or part=0/, part=1/, ...), numbered from 0 on"
)
SPARSE_FROM, SPARSE_RATIO = 1_000, 10
"""Above the first, one partition in ten must exist: else the number is a date or an id."""
TABLE_LOGS = {"_delta_log": "a Delta table", "_spark_metadata": "output of a streaming query",
              ".hoodie": "a Hudi table"}  # fmt: skip
"""Folders of table formats, whose metadata says which files count: not all of them do."""
DATA_SUFFIXES = frozenset(
    ".arrow .feather .arrows .parquet .jsonl .ndjson .json .csv .tsv .orc .avro "
    ".gz .bz2 .zst .lz4 .snappy".split()
)
"""Suffixes of files that hold rows, ours or not."""


class BadLayout(ValueError):
    """Files are there, and would be misread or not read at all."""


def is_visible(name: str) -> bool:
    """False for hidden names, which begin with `.` or `_`."""
    return name[0] not in "._"


def places_of(directory: str, is_data: Callable[[str], bool]) -> dict[int, Path]:
    """The folder or file of each partition.

    Raises:
        BadLayout: two claim to be the same partition.
    """
    places: dict[int, Path] = {}
    for path in sorted(Path(directory).iterdir()):
        number = _number(path, is_data)
        if number is None:
            continue
        if number in places:
            raise BadLayout(f"{path} and {places[number]} are both partition {number}")
        places[number] = path
    return places


def check_layout(
    directory: str,
    places: dict[int, Path],
    suffixes: tuple[str, ...],
    is_data: Callable[[str], bool],
) -> None:
    """Check that all files of rows belong to partitions. Walks the directory.

    Raises:
        BadLayout: names the file and the expected layout.
    """
    expected = EXPECTED.format(suffix=suffixes[0][1:])
    taken = set(places.values())
    for path in sorted(Path(directory).iterdir()):
        if path.name in TABLE_LOGS:
            raise BadLayout(
                f"{path}: this is {TABLE_LOGS[path.name]}, whose files are not all rows that "
                f"count; write the rows out as a log first: {expected}"
            )
        if path in taken or not is_visible(path.name):
            continue
        # Beside partitions, files of another format may be whatever they are.
        wanted = frozenset(suffixes) if places else DATA_SUFFIXES
        found = _first_data(path, wanted)
        if found is not None:
            raise BadLayout(f"{found} belongs to no partition: {_why(path)}{expected}")
    _check_numbers(places, expected)
    for number, place in places.items():
        if place.is_dir():
            _check_folder(number, place, suffixes, is_data, expected)


def _number(path: Path, is_data: Callable[[str], bool]) -> int | None:
    if not is_visible(path.name):
        return None
    is_folder = path.is_dir()
    found = PARTITION.fullmatch(path.name if is_folder else path.stem)
    return int(found[1]) if found is not None and (is_folder or is_data(path.name)) else None


def _check_numbers(places: dict[int, Path], expected: str) -> None:
    highest = max(places, default=0)
    if highest >= SPARSE_FROM and highest >= SPARSE_RATIO * len(places):
        raise BadLayout(
            f"{places[highest]} would be partition {highest:,} of a log of which {len(places):,} "
            f"partitions are there: the number after = is the partition's, not a date or an id; "
            f"{expected}"
        )


def _check_folder(
    number: int,
    folder: Path,
    suffixes: tuple[str, ...],
    is_data: Callable[[str], bool],
    expected: str,
) -> None:
    """Look for folders in a partition's folder, and for rows in other formats only."""
    strange: str | None = None
    has_rows = False
    with os.scandir(folder) as entries:
        for entry in sorted(filter(lambda e: is_visible(e.name), entries), key=lambda e: e.name):
            if entry.is_dir():
                found = _first_data(Path(entry.path), frozenset(suffixes))
                if found is not None:
                    raise BadLayout(
                        f"{found} is in a folder of its own in partition {number}, and would not "
                        f"be read: partitions are not nested; {expected}"
                    )
            elif is_data(entry.name):
                has_rows = True
            elif _suffix(entry.name) in suffixes:
                raise BadLayout(
                    f"{entry.path}: the suffix is to be {suffixes[0]}, in small letters"
                )
            elif strange is None and _suffix(entry.name) in DATA_SUFFIXES:
                strange = entry.path
    if strange is not None and not has_rows:
        raise BadLayout(
            f"{strange} is not of the format asked for, whose suffix is {' or '.join(suffixes)}, "
            f"and partition {number} holds no other: name the source's format in front, as in "
            "parquet:/directory"
        )


def _why(path: Path) -> str:
    if path.name.startswith("part-") and not path.is_dir():
        return "a flat output directory of Spark has no partitions that offsets could count in; "
    return ""


def _first_data(path: Path, wanted: frozenset[str]) -> Path | None:
    """A file with one of the suffixes: the path itself, or one below it."""

    def refuse(error: OSError) -> None:
        raise error  # An unreadable folder is not an empty one.

    if not path.is_dir():
        return path if _suffix(path.name) in wanted else None
    for base, folders, names in os.walk(path, onerror=refuse):
        folders[:] = sorted(filter(is_visible, folders))
        for name in sorted(filter(is_visible, names)):
            if _suffix(name) in wanted:
                return Path(base, name)
    return None


def _suffix(name: str) -> str:
    return os.path.splitext(name)[1].lower()  # Names, by the thousand.
