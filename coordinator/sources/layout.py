"""Mapping of folders and files to partitions, and refusal of layouts that would be misread.

A rule says which partition a file belongs to:

    numbers    the number that names a file or folder at the top: 0.parquet, 1/, part=2/
    8          one of 8 partitions: the one with the fewest rows when the group records the file
    each       every file is a partition of its own

`numbers` is the default where names are numbers, and else, as for `part-00000-….parquet`,
`date=2026-11-21/`, `day=20261121/` and `a=1/b=2/`, it is 8. A directory with an unknown layout is
refused, with the expected one, rather than read in part: missing rows would be noticed much later,
or never.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from coordinator.sources.base import BadLayout
from coordinator.sources.file_stores import Entry
from coordinator.sources.file_systems import StorePath

NUMBERS, EACH, DEALT = "numbers", "each", "8"
PARTITION = re.compile(r"(?:[^=]*=)?(\d{1,9})")
_NUMBERED_FILE = re.compile(PARTITION.pattern + r"(?:\.[a-z]\w*)+")
EXPECTED = (
    "expected are files (a.{suffix}), also in folders that are named for values of columns "
    "(date=2026-11-21/), or one file for each partition (0.{suffix}, 1.{suffix}, ...) or one "
    "folder of files for each (0/, 1/, ... or part=0/, part=1/, ...), numbered from 0 on"
)
CHOOSE = (
    "to read files whatever they are called, set filePartitions=8, which deals them out among so "
    "many partitions, or filePartitions=each, which makes a partition of every file"
)
SPARSE_FROM, SPARSE_RATIO = 1_000, 10
"""Above the first, one partition in ten must exist: else the number is a date or an id."""
MOST_PARTITIONS = 10_000
DEEPEST = 32
TABLE_LOGS = {
    "_delta_log": ("a Delta table", 'spark.readStream.format("delta")'),
    "_spark_metadata": ("output of a streaming query", "spark.readStream of its format"),
    ".hoodie": ("a Hudi table", 'spark.readStream.format("hudi")'),
}
"""Folders of table formats, whose metadata says which files count; what each is, and its reader."""
DATA_SUFFIXES = frozenset(
    ".arrow .feather .arrows .parquet .jsonl .ndjson .json .csv .tsv .orc .avro "
    ".gz .bz2 .zst .lz4 .snappy .deflate".split()
)
"""Suffixes of files that hold rows, ours or not."""
IsData = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Listed:
    """A file as it was listed. `name`: its path below the log's directory."""

    name: str
    path: StorePath
    entry: Entry


def is_visible(name: str) -> bool:
    """False for hidden names, as Spark has it: `_SUCCESS`, `.part.crc`, but not `_column=1`."""
    is_hidden = name[0] == "." or (name[0] == "_" and "=" not in name)
    return not (is_hidden or name.endswith("._COPYING_"))


def checked_rule(text: str) -> str:
    """A rule as it is written down.

    Raises:
        ValueError: it is none.
    """
    word = text.strip().lower()
    if word in (NUMBERS, EACH):
        return word
    if re.fullmatch(r"[1-9]\d{0,4}", word) and int(word) <= MOST_PARTITIONS:
        return word
    raise ValueError(
        f"filePartitions={text[:80]}: expected is numbers, each, or a whole number from 1 to "
        f"{MOST_PARTITIONS:,}"
    )


def dealt_among(rule: str) -> int:
    """The number of partitions that a rule deals files out among."""
    return int(rule)


def rule_of(directory: StorePath, is_data: IsData) -> str:
    """The rule for a directory for which none is given."""
    entries = [entry for entry in directory.entries() if is_visible(entry.name)]
    named = [entry for entry in entries if _is_of_column(entry)]
    if not named:
        files = [entry for entry in entries if not entry.is_folder and is_data(entry.name)]
        has_numbers = any(_number(entry, is_data) is not None for entry in entries)
        return DEALT if files and not has_numbers else NUMBERS
    numbers = [found for e in named if (found := PARTITION.fullmatch(e.name)) is not None]
    if len(numbers) < len(named) or _is_sparse([int(found[1]) for found in numbers]):
        return DEALT
    inside = (directory / named[0].name).entries()
    return DEALT if any(map(_is_of_column, inside)) else NUMBERS


def _is_of_column(entry: Entry) -> bool:
    """True for a folder that is named for a column and its value."""
    return entry.is_folder and "=" in entry.name and is_visible(entry.name)


def files_below(directory: StorePath, is_data: IsData, suffixes: tuple[str, ...]) -> list[Listed]:
    """All files of rows in a directory and its folders, in order of path.

    Raises:
        BadLayout: a folder is named for no column, or not all files are in folders of the same
            columns; only files of other formats exist; or it is a table.
    """
    strange: list[str] = []
    found = list(_walk(directory, "", is_data, strange))
    if strange and not found:
        raise BadLayout(
            f"{strange[0]} is not of the format asked for, whose suffix is "
            f"{' or '.join(suffixes)}: name the source's format in front, as in parquet:/directory"
        )
    columns = [tuple(f.partition("=")[0] for f in one.name.split("/")[:-1]) for one in found]
    for one, names in zip(found, columns, strict=True):
        if names != columns[0]:
            raise BadLayout(
                f"{one.path} and {found[0].path} are in folders of different columns "
                f"({'/'.join(names) or 'none'} and {'/'.join(columns[0]) or 'none'}), so their "
                "rows would not have the same columns: read them as two sources"
            )
    return found


def files_in(name: str, place: StorePath, is_data: IsData) -> list[Listed]:
    """The files of a numbered partition, in order of name. `name`: of its file or folder."""
    entries = _entries_of(place)
    if entries is None:
        entry = place.look()
        return [] if entry is None else [Listed(name, place, entry)]
    return [
        Listed(f"{name}/{e.name}", place / e.name, e)
        for e in entries
        if not e.is_folder and is_visible(e.name) and is_data(e.name)
    ]


def places_of(directory: StorePath, is_data: IsData) -> dict[int, str]:
    """Name of the folder or file of each numbered partition.

    Raises:
        BadLayout: two claim to be the same partition.
    """
    places: dict[int, str] = {}
    for entry in directory.entries():
        number = _number(entry, is_data)
        if number is None:
            continue
        if number in places:
            raise BadLayout(
                f"{directory / entry.name} and {directory / places[number]} are both partition "
                f"{number}"
            )
        places[number] = entry.name
    return places


def check_layout(
    directory: StorePath, places: dict[int, str], suffixes: tuple[str, ...], is_data: IsData
) -> None:
    """Check that all files of rows belong to numbered partitions. Walks the directory.

    Raises:
        BadLayout: names the file and the expected layout.
    """
    expected = EXPECTED.format(suffix=suffixes[0][1:] or "csv")
    taken = set(places.values())
    for entry in directory.entries():
        if entry.name in TABLE_LOGS:
            _refuse_table(directory / entry.name)
        if entry.name in taken or not is_visible(entry.name):
            continue
        # Beside partitions, files of another format may be whatever they are.
        wanted = frozenset(suffixes) if places else DATA_SUFFIXES
        found = _first_data(directory / entry.name, entry, wanted)
        if found is not None:
            raise BadLayout(f"{found} belongs to no partition: {expected}; {CHOOSE}")
    if _is_sparse(list(places)):
        highest = max(places)
        raise BadLayout(
            f"{directory / places[highest]} would be partition {highest:,} of a log of which "
            f"{len(places):,} partitions are there: {expected}; {CHOOSE}"
        )
    for number, name in places.items():
        _check_folder(number, directory / name, suffixes, is_data, expected)


def _walk(
    folder: StorePath, prefix: str, is_data: IsData, strange: list[str], depth: int = 0
) -> Iterator[Listed]:
    """Files of rows below a folder. strange: gets the others that may hold rows."""
    if depth > DEEPEST:
        raise BadLayout(f"{folder} is more than {DEEPEST} folders deep")
    for entry in folder.entries():
        path = folder / entry.name
        if entry.name in TABLE_LOGS:
            _refuse_table(path)
        if not is_visible(entry.name):
            continue
        if entry.is_folder:
            below = _walk(path, f"{prefix}{entry.name}/", is_data, strange, depth + 1)
            if "=" not in entry.name:
                _refuse_rows(path, below)
            yield from below
        elif is_data(entry.name):
            yield Listed(prefix + entry.name, path, entry)
        elif _suffix(entry.name) in DATA_SUFFIXES:
            strange.append(str(path))


def _refuse_rows(folder: StorePath, below: Iterator[Listed]) -> None:
    first = next(below, None)
    if first is not None:
        raise BadLayout(
            f"{first.path} is in the folder {folder.name}, which is named for no column: folders "
            "are to be named for a column and its value, as in date=2026-11-21/"
        )


def _refuse_table(path: StorePath) -> None:
    what, reader = TABLE_LOGS[path.name]
    raise BadLayout(
        f"{path}: this is {what}, whose files are not all rows that count: read it with {reader}"
    )


def _number(entry: Entry, is_data: IsData) -> int | None:
    if not is_visible(entry.name):
        return None
    if entry.is_folder:
        found = PARTITION.fullmatch(entry.name)
    else:
        found = _NUMBERED_FILE.fullmatch(entry.name) if is_data(entry.name) else None
    return None if found is None else int(found[1])


def _is_sparse(numbers: list[int]) -> bool:
    highest = max(numbers, default=0)
    return highest >= SPARSE_FROM and highest >= SPARSE_RATIO * len(set(numbers))


def _check_folder(
    number: int, folder: StorePath, suffixes: tuple[str, ...], is_data: IsData, expected: str
) -> None:
    """Look for folders in a partition's folder, and for rows in other formats only."""
    strange: StorePath | None = None
    has_rows = False
    for entry in _entries_of(folder) or ():
        if not is_visible(entry.name):
            continue
        path = folder / entry.name
        if entry.is_folder:
            found = _first_data(path, entry, frozenset(suffixes))
            if found is not None:
                raise BadLayout(
                    f"{found} is in a folder of its own in partition {number}, and would not "
                    f"be read: numbered partitions are not nested; {expected}"
                )
        elif is_data(entry.name):
            has_rows = True
        elif entry.name.lower().endswith(suffixes):
            raise BadLayout(f"{path}: the suffix is to be {suffixes[0]}, in small letters")
        elif strange is None and _suffix(entry.name) in DATA_SUFFIXES:
            strange = path
    if strange is not None and not has_rows:
        raise BadLayout(
            f"{strange} is not of the format asked for, whose suffix is {' or '.join(suffixes)}, "
            f"and partition {number} holds no other: name the source's format in front, as in "
            "parquet:/directory"
        )


def _entries_of(place: StorePath) -> list[Entry] | None:
    """Entries of a folder; None: it is a file."""
    try:
        return place.entries()
    except NotADirectoryError:
        return None


def _first_data(path: StorePath, entry: Entry, wanted: frozenset[str]) -> StorePath | None:
    """A file with one of the suffixes: the path itself, or one below it."""
    if not entry.is_folder:
        return path if any(path.name.lower().endswith(s) for s in wanted) else None
    entries = path.entries()
    for folders in (False, True):
        for inner in entries:
            if is_visible(inner.name) and inner.is_folder is folders:
                found = _first_data(path / inner.name, inner, wanted)
                if found is not None:
                    return found
    return None


def _suffix(name: str) -> str:
    return "." + name.lower().rpartition(".")[2]
