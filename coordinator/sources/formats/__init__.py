"""One file of rows: how many there are, and how to get at some of them.

What was learned of a file is kept, and learned further when the file has only grown.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
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
"""Files; an index of one is a few hundred bytes."""

_Stamp = tuple[int, int, int]
_known: OrderedDict[tuple[str, Path], tuple[_Stamp, RowFile]] = OrderedDict()
_lock = threading.Lock()


def opened(path: Path, format: str) -> RowFile:
    """A file as it is now.

    Raises:
        FileNotFoundError: it is gone.
        ValueError, OSError, pyarrow.ArrowException: it is not of this format, or damaged.
    """
    status = path.stat()
    stamp = (status.st_ino, status.st_size, status.st_mtime_ns)
    key = (format, path)
    with _lock:
        earlier_stamp, earlier = _known.get(key, (None, None))
        if earlier is None or earlier_stamp is None or stamp != earlier_stamp:
            has_grown = (
                earlier_stamp is not None
                and stamp[0] == earlier_stamp[0]
                and stamp[1] >= earlier_stamp[1]
            )
            kind = FORMATS[format]
            earlier = kind(path, status.st_size, earlier if has_grown else None)
            _known[key] = (stamp, earlier)
        _known.move_to_end(key)
        while len(_known) > REMEMBERED:
            _known.popitem(last=False)
        return earlier
