"""Which file belongs to which partition, and refusal of directories that would be misread.

A rule says which partition a file belongs to:

    numbers    the number that names a file or folder at the top: 0.parquet, 1/, part=2/
    8          one of 8 partitions: the one with the fewest rows when the group records the file

`numbers` is the default where names are numbers, and else, as for `part-00000-….parquet`,
`date=2026-11-21/`, `day=20261121/` and `a=1/b=2/`, it is 8. A directory with an unknown layout is
refused, with the expected one, rather than read in part: missing rows would be noticed much later,
or never.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from coordinator.sources.base import BadLayout
from coordinator.sources.file_stores import StoreEntry
from coordinator.sources.file_systems import StorePath

NUMBERS, DEALT = "numbers", "8"
PARTITION = re.compile(r"(?:[^=]*=)?(\d{1,9})")
_NUMBERED_FILE = re.compile(PARTITION.pattern + r"(?:\.[a-z]\w*)+")
EXPECTED = (
    "expected are files (a{suffix}), also in folders that are named for values of columns "
    "(date=2026-11-21/), or one file for each partition (0{suffix}, 1{suffix}, ...) or one "
    "folder of files for each (0/, 1/, ... or part=0/, part=1/, ...), numbered from 0 on; to read "
    "files whatever they are called, set filePartitions=8, which deals them out among so many "
    "partitions"
)
SPARSE_FROM, SPARSE_RATIO = 1_000, 10
"""Above the first, one partition in ten must exist: else the number is a date or an id."""
MOST_PARTITIONS = 10_000
DEEPEST = 32
TABLES = {
    "_delta_log": ("a Delta table", 'spark.readStream.format("delta")'),
    "_spark_metadata": ("output of a streaming query", "spark.readStream of its format"),
    ".hoodie": ("a Hudi table", 'spark.readStream.format("hudi")'),
    "metadata": ("an Iceberg table", 'spark.readStream.format("iceberg")'),
    "manifests": ("results of an exactly-once query", "read_exactly_once"),
}
"""Folders whose content says which files of a table count; what each is of, and its reader."""
_CONTENT = {"metadata": ".metadata.json", "manifests": ".json"}
"""Contents of folders that have a common name, by that name."""
_FILES_IN = {"manifests": "data"}
"""The one folder beside it that has the files; else everything beside it belongs to the table."""
DATA_SUFFIXES = frozenset(
    ".arrow .feather .arrows .parquet .jsonl .ndjson .json .csv .tsv .orc .avro "
    ".gz .bz2 .zst .lz4 .snappy .deflate".split()
)
"""Suffixes of files that hold rows, ours or not."""
IsData = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file as it was listed. `name`: its path below the log's directory."""

    name: str
    path: StorePath
    entry: StoreEntry


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
    if word == NUMBERS:
        return word
    if re.fullmatch(r"[1-9]\d{0,4}", word) and int(word) <= MOST_PARTITIONS:
        return word
    raise ValueError(
        f"filePartitions={text[:80]}: expected is numbers, or a whole number from 1 to "
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
    numbers = [match for e in named if (match := PARTITION.fullmatch(e.name)) is not None]
    if len(numbers) < len(named) or _is_sparse([int(number_match[1]) for number_match in numbers]):
        return DEALT
    inside = (directory / named[0].name).entries()
    return DEALT if any(map(_is_of_column, inside)) else NUMBERS


def dealt_files(
    directory: StorePath, is_data: IsData, suffixes: tuple[str, ...]
) -> list[ListedFile]:
    """All files of rows in a directory and its folders, in order of path.

    Raises:
        BadLayout: a folder is named for no column, or not all files are in folders of the same
            columns; only files of other formats exist; or it is a table.
    """
    files = _files_below(directory, is_data, suffixes)
    first: list[str] | None = None
    for one in files:
        folders = one.name.split("/")[:-1]
        if unnamed := [folder for folder in folders if "=" not in folder]:
            raise BadLayout(
                f"{one.path} is in the folder {unnamed[0]}, which is named for no column: folders "
                "are to be named for a column and its value, as in date=2026-11-21/"
            )
        columns = [folder.partition("=")[0] for folder in folders]
        first = columns if first is None else first
        if columns != first:
            raise BadLayout(
                f"{one.path} and {files[0].path} are in folders of different columns "
                f"({'/'.join(columns) or 'none'} and {'/'.join(first) or 'none'}), so their rows "
                "would not have the same columns: read them as two sources"
            )
    return files


def numbered_files(name: str, folder: StorePath, is_data: IsData) -> list[ListedFile]:
    """The files of a numbered partition, in order of name. `name`: of its file or folder."""
    try:
        entries = folder.entries()
    except NotADirectoryError:
        entry = folder.stat()
        return [] if entry is None else [ListedFile(name, folder, entry)]
    return [
        ListedFile(f"{name}/{e.name}", folder / e.name, e)
        for e in entries
        if not e.is_folder and is_visible(e.name) and is_data(e.name)
    ]


def numbered_folders(directory: StorePath, is_data: IsData) -> dict[int, str]:
    """Name of the folder or file of each numbered partition.

    Raises:
        BadLayout: two claim to be the same partition.
    """
    folders: dict[int, str] = {}
    for entry in directory.entries():
        number = _number(entry, is_data)
        if number is None:
            continue
        if number in folders:
            raise BadLayout(
                f"{directory / entry.name} and {directory / folders[number]} are both partition "
                f"{number}"
            )
        folders[number] = entry.name
    return folders


def check_numbered(
    directory: StorePath, folders: dict[int, str], is_data: IsData, suffixes: tuple[str, ...]
) -> None:
    """Check that all files of rows belong to numbered partitions. Walks the directory.

    Raises:
        BadLayout: names the file and the expected layout.
    """
    taken = set(folders.values())
    for one in _files_below(directory, is_data, suffixes, has_others_beside=bool(folders)):
        top, *below = one.name.split("/")
        if top not in taken:
            raise BadLayout(f"{one.path} belongs to no partition: {expected(suffixes)}")
        if len(below) > 1:
            raise BadLayout(
                f"{one.path} is in a folder of its own in a numbered partition, and would not be "
                f"read: {expected(suffixes)}"
            )
    if _is_sparse(folders):
        highest = max(folders)
        raise BadLayout(
            f"{directory / folders[highest]} would be partition {highest:,} of a log of which "
            f"{len(folders):,} partitions are there: {expected(suffixes)}"
        )


def expected(suffixes: tuple[str, ...]) -> str:
    """The layouts that are expected, for messages."""
    return EXPECTED.format(suffix=suffixes[0] or ".csv")


def refuse_table(directory: StorePath) -> None:
    """Refuse a directory that is a table, or is in one. Looks at it and at all that hold it.

    Raises:
        BadLayout: names the table, and what reads it.
    """
    folder, inside = directory.absolute, ""
    while True:
        # Where nobody may look it cannot be told; stores say so by errors of any kind.
        with suppress(OSError):
            for name in TABLES:
                if not inside or inside == _FILES_IN.get(name, inside):
                    _refuse_mark(folder / name)
        if not folder.path.strip("/"):
            return
        folder, inside = folder.parent, folder.name


def _refuse_mark(path: StorePath) -> None:
    """Refuse a folder that marks a table, if it is one."""
    entry = path.stat()
    if entry is None or not entry.is_folder:
        return
    suffix, beside = _CONTENT.get(path.name), _FILES_IN.get(path.name)
    if beside is not None and (path.parent / beside).stat() is None:
        return
    if suffix is None or any(inner.name.endswith(suffix) for inner in path.entries()):
        reason, reader = TABLES[path.name]
        raise BadLayout(
            f"{path.parent} is {reason}, whose files are not all rows that count ({path.name}): "
            f"read it with {reader}. A group can read what a stream of the table writes into a "
            "directory of its own"
        )


def _files_below(
    directory: StorePath,
    is_data: IsData,
    suffixes: tuple[str, ...],
    *,
    has_others_beside: bool = False,
) -> list[ListedFile]:
    """All files of rows. `has_others_beside`: files at the top may be whatever they are."""
    strange: list[StorePath] = []
    files = list(_walk(directory, "", is_data, strange))
    if has_others_beside:
        strange = [path for path in strange if path.parent != directory]
    if strange and not files:
        raise BadLayout(
            f"{strange[0]} is not of the format asked for, whose suffix is "
            f"{' or '.join(suffixes)}: name the source's format in front, as in parquet:/directory"
        )
    return files


def _walk(
    folder: StorePath, prefix: str, is_data: IsData, strange: list[StorePath], depth: int = 0
) -> Iterator[ListedFile]:
    """Files of rows in a folder and those below. strange: gets the others that may hold rows."""
    if depth > DEEPEST:
        raise BadLayout(f"{folder} is more than {DEEPEST} folders deep")
    for entry in folder.entries():
        path = folder / entry.name
        if entry.name in TABLES:
            _refuse_mark(path)
        if not is_visible(entry.name):
            continue
        if entry.is_folder:
            yield from _walk(path, f"{prefix}{entry.name}/", is_data, strange, depth + 1)
        elif is_data(entry.name):
            yield ListedFile(prefix + entry.name, path, entry)
        elif "." + entry.name.lower().rpartition(".")[2] in DATA_SUFFIXES:
            strange.append(path)


def _is_of_column(entry: StoreEntry) -> bool:
    """True for a folder that is named for a column and its value."""
    return entry.is_folder and "=" in entry.name and is_visible(entry.name)


def _number(entry: StoreEntry, is_data: IsData) -> int | None:
    if not is_visible(entry.name):
        return None
    if entry.is_folder:
        match = PARTITION.fullmatch(entry.name)
    else:
        match = _NUMBERED_FILE.fullmatch(entry.name) if is_data(entry.name) else None
    return None if match is None else int(match[1])


def _is_sparse(numbers: Iterable[int]) -> bool:
    there = set(numbers)
    highest = max(there, default=0)
    return highest >= SPARSE_FROM and highest >= SPARSE_RATIO * len(there)
