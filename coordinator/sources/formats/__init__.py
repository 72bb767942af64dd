"""File formats, and a cache of the row indexes of files.

The index of a file that has only grown is extended, not made anew.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from coordinator.sources.formats.arrow import ArrowFile, ArrowStream
from coordinator.sources.formats.base import RowFile
from coordinator.sources.formats.parquet import ParquetFile
from coordinator.sources.formats.text import CsvFile, JsonLinesFile

FORMATS: dict[str, type[RowFile]] = {
    "arrow": ArrowFile,
    "segments": ArrowStream,
    "parquet": ParquetFile,
    "jsonl": JsonLinesFile,
    "csv": CsvFile,
}
REMEMBERED = 4_096
"""Indexes that are cached; one takes a few hundred bytes, a Parquet file's some kilobytes."""
REMEMBERED_FACTS = 131_072
"""Files whose facts are cached; some 400 bytes each."""
EDGE = 4_096
"""Bytes at either end of a file that its digest covers."""

_Stamp = tuple[int, int, int]
_Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class FileFacts:
    """Facts of a file that offsets depend on. `size`: the bytes that the rows take up."""

    rows: int
    size: int
    digest: str
    changed_ns: int


_files: OrderedDict[_Key, tuple[_Stamp, RowFile]] = OrderedDict()
_facts: OrderedDict[_Key, tuple[_Stamp, FileFacts]] = OrderedDict()
_lock = threading.Lock()


def opened(path: Path, format: str) -> RowFile:
    """Open a file as it is now.

    Raises:
        FileNotFoundError, PermissionError: it is gone, or may not be read.
        ValueError: it is not of this format, incomplete, or damaged.
    """
    with _lock:
        return _index(str(path), format, path.stat())


def facts(path: str, format: str, status: os.stat_result) -> FileFacts:
    """Facts of a file, from the cache if it has not changed.

    Raises:
        OSError, ValueError: as `opened`.
    """
    key = (format, path)
    with _lock:
        stamp, known = _facts.get(key, (None, None))
        if known is None or stamp != _stamp(status):
            _index(path, format, status)
            known = _facts[key][1]
        _facts.move_to_end(key)
        return known


def digest_of(path: str, size: int) -> str:
    """Digest of the first `size` bytes of a file: of their number, and of both ends."""
    with open(path, "rb", buffering=0) as file:  # Twice as fast, for 10,000 files.
        edges = os.pread(file.fileno(), min(size, EDGE), 0)
        if size > EDGE:
            edges += os.pread(file.fileno(), EDGE, size - EDGE)
    return hashlib.blake2b(b"%d:" % size + edges, digest_size=6).hexdigest()


def _stamp(status: os.stat_result) -> _Stamp:
    return (status.st_ino, status.st_size, status.st_mtime_ns)


def _index(path: str, format: str, status: os.stat_result) -> RowFile:
    """Index of a file, cached or extended if it is still valid. Call with the lock held."""
    key, stamp = (format, path), _stamp(status)
    earlier_stamp, earlier = _files.get(key, (None, None))
    if earlier is None or earlier_stamp is None or stamp != earlier_stamp:
        has_grown = (
            earlier is not None
            and earlier_stamp is not None
            and stamp[0] == earlier_stamp[0]
            and stamp[1] >= earlier_stamp[1]
            # A file that was overwritten in place may be longer too.
            and _digest_known(key) == digest_of(path, earlier.size)
        )
        try:
            earlier = FORMATS[format](Path(path), status.st_size, earlier if has_grown else None)
        except (ValueError, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # It is gone, or may not be read.
            raise ValueError(
                f"{path} is not a whole file of the format {format} ({error}): write files under "
                "a name that begins with . or _, and rename them when they are whole"
            ) from error
        _files[key] = (stamp, earlier)
    _files.move_to_end(key)
    if key not in _facts or _facts[key][0] != stamp:
        known = FileFacts(
            earlier.rows, earlier.size, digest_of(path, earlier.size), status.st_ctime_ns
        )
        _facts[key] = (stamp, known)
    while len(_files) > REMEMBERED:
        _files.popitem(last=False)
    while len(_facts) > REMEMBERED_FACTS:
        _facts.popitem(last=False)
    return earlier


def _digest_known(key: _Key) -> str:
    return _facts[key][1].digest if key in _facts else ""
