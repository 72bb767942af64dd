"""File formats, and a cache of the row indexes of files.

The index of a file that has only grown is extended, not made anew.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from dataclasses import dataclass

from coordinator.sources.file_stores import StoreEntry
from coordinator.sources.file_systems import StorePath
from coordinator.sources.formats.arrow import ArrowFile, ArrowStream
from coordinator.sources.formats.base import FILES, RowFile, may_grow
from coordinator.sources.formats.json_lines import BadText, JsonLinesFile
from coordinator.sources.formats.parquet import ParquetFile
from coordinator.sources.formats.whole import WholeFile

FORMATS: dict[str, type[RowFile]] = {
    "arrow": ArrowFile,
    "segments": ArrowStream,
    "parquet": ParquetFile,
    "jsonl": JsonLinesFile,
    **dict.fromkeys(("csv", "json", "orc", "avro", "text", "files"), WholeFile),
}
"""Formats by name; those of whole files are told apart for Spark, which reads them."""
REMEMBERED = 4_096
"""Indexes that are cached; one takes a few hundred bytes, a Parquet file's some kilobytes."""
REMEMBERED_FACTS = 131_072
"""Files whose facts are cached; some 400 bytes each."""
EDGE = 4_096
"""Bytes at either end of a file that its digest covers."""

_Stamp = tuple[int, int, int]
_Key = tuple[str, StorePath]


@dataclass(frozen=True, slots=True)
class FileFacts:
    """Facts of a file that offsets depend on. `size`: the bytes that the rows take up.

    digest: of its content (`digest_of`); of a file that is a unit as a whole, of its time.
    """

    rows: int
    size: int
    digest: str
    changed_ns: int


_files: OrderedDict[_Key, tuple[_Stamp, RowFile]] = OrderedDict()
_facts: OrderedDict[_Key, tuple[_Stamp, FileFacts]] = OrderedDict()
_digests: OrderedDict[_Key, tuple[_Stamp, str]] = OrderedDict()
_lock = threading.Lock()


def opened(path: StorePath, format: str) -> RowFile:
    """Open a file as it is now.

    Raises:
        FileNotFoundError, PermissionError: it is gone, or may not be read.
        ValueError: it is not of this format, incomplete, or damaged.
    """
    entry = path.stat()
    if entry is None:
        raise FileNotFoundError(2, os.strerror(2), str(path))
    with _lock:
        return _index(path, format, entry)


def facts(path: StorePath, format: str, entry: StoreEntry) -> FileFacts:
    """Facts of a file that may grow, or has its last form; cached if it has not changed.

    Raises:
        OSError, ValueError: as `opened`.
    """
    key = (format, path)
    with _lock:
        stamp, known = _facts.get(key, (None, None))
        if known is None or stamp != _stamp(entry):
            _index(path, format, entry)
            known = _facts[key][1]
        _facts.move_to_end(key)
        return known


def final_facts(
    path: StorePath, format: str, entry: StoreEntry, rows: int | None = None
) -> FileFacts:
    """Facts of a file to which nothing is added any more, all of whose bytes count.

    Args:
        rows: their number, if it is known: then the file's index is not needed.
    Raises:
        OSError, ValueError: as `opened`.
    """
    with _lock:
        if rows is None:
            rows = _index(path, format, entry).final_rows
        key = (format, path)
        stamp, digest = _digests.get(key, (None, ""))
        if stamp != _stamp(entry):
            digest = _digest(path, format, entry)
            _digests[key] = (_stamp(entry), digest)
            while len(_digests) > REMEMBERED_FACTS:
                _digests.popitem(last=False)
        return FileFacts(rows, entry.size, digest, entry.changed_ns)


def digest_of(path: StorePath, size: int, entry: StoreEntry | None = None) -> str:
    """Digest of the first `size` bytes of a file: of their number, and of both ends.

    Args:
        entry: the file as it was listed, if it has its last form. In an object store its time
            stands for its content, which can only be written as a whole.
    """
    if path.is_local:
        with open(path.path, "rb", buffering=0) as file:  # Twice as fast, for 10,000 files.
            edges = os.pread(file.fileno(), min(size, EDGE), 0)
            if size > EDGE:
                edges += os.pread(file.fileno(), EDGE, size - EDGE)
    elif entry is not None:
        edges = b"%d" % entry.modified_ns
    else:
        with path.open() as file:
            edges = file.read(min(size, EDGE))
            if size > EDGE:
                file.seek(size - EDGE)
                edges += file.read(EDGE)
    return hashlib.blake2b(b"%d:" % size + edges, digest_size=6).hexdigest()


def _stamp(entry: StoreEntry) -> _Stamp:
    return (entry.file_id, entry.size, entry.modified_ns)


def _index(path: StorePath, format: str, entry: StoreEntry) -> RowFile:
    """Index of a file, cached or extended if it is still valid. Call with the lock held."""
    key, stamp = (format, path), _stamp(entry)
    earlier_stamp, earlier = _files.get(key, (None, None))
    grows = may_grow(path.name, FORMATS[format])
    if earlier is None or earlier_stamp is None or stamp != earlier_stamp:
        has_grown = (
            grows
            and earlier is not None
            and earlier_stamp is not None
            and stamp[0] == earlier_stamp[0]
            and stamp[1] >= earlier_stamp[1]
            # A file that was overwritten in place may be longer too.
            and _digest_known(key) == digest_of(path, earlier.size)
        )
        try:
            earlier = FORMATS[format](path, entry.size, earlier if has_grown else None)
        except BadText as error:
            raise BadText(f"{path}: {error}") from error
        except (ValueError, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # It is gone, or may not be read.
            raise ValueError(
                f"{path} is not a whole file of the format {format} ({error}): write files "
                "under a name that begins with . or _, and rename them when they are whole"
            ) from error
        _files[key] = (stamp, earlier)
    _files.move_to_end(key)
    if key not in _facts or _facts[key][0] != stamp:
        digest = digest_of(path, earlier.size) if grows else _digest(path, format, entry)
        known = FileFacts(earlier.rows, earlier.size, digest, entry.changed_ns)
        _facts[key] = (stamp, known)
    while len(_files) > REMEMBERED:
        _files.popitem(last=False)
    while len(_facts) > REMEMBERED_FACTS:
        _facts.popitem(last=False)
    return earlier


def _digest(path: StorePath, format: str, entry: StoreEntry) -> str:
    """Digest of a file that has its last form."""
    if FORMATS[format].unit == FILES:
        content = b"%d:%d" % (entry.size, entry.modified_ns)
        return hashlib.blake2b(content, digest_size=6).hexdigest()
    return digest_of(path, entry.size, entry)


def _digest_known(key: _Key) -> str:
    return _facts[key][1].digest if key in _facts else ""
