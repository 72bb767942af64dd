"""Interface of file formats."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from coordinator.sources.file_systems import StorePath

COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
"""Suffixes of compressed text that can be read, and pyarrow's names."""


ROWS, FILES = "rows", "files"
"""Unit of the offsets of a log."""


class RowFile(ABC):
    """A file as it was when its size was `size`. Frozen once made, so any thread may read.

    Args:
        earlier: index of the same file when it was shorter, to be extended by formats that grow.
    Raises:
        ValueError, OSError, pyarrow.ArrowException: it is not of this format, or damaged.
    """

    suffixes: ClassVar[tuple[str, ...]]
    unit: ClassVar[str] = ROWS
    """Unit of an offset; a file of the unit `files` has one "row"."""
    grows: ClassVar[bool]
    """True if more may be appended to a file that was read."""
    has_groups: ClassVar[bool] = False
    """True if `starts` takes no look at the rows."""
    rows: int
    size: int
    """Bytes that the rows take up; an incomplete row may follow them."""
    schema: Any
    """pyarrow.Schema; None if there are no rows to infer it from."""

    @abstractmethod
    def __init__(self, path: StorePath, size: int, earlier: RowFile | None) -> None: ...

    @property
    def final_rows(self) -> int:
        """Rows of a file to which nothing is added any more: an unfinished last line is one."""
        return self.rows

    @property
    def starts(self) -> Sequence[int]:
        """First rows of the groups of rows that a file has, then the number of its rows."""
        return (0, self.rows)

    @abstractmethod
    def read(self, first: int, last: int, schema: Any) -> Iterator[tuple[int, Any]]:
        """Rows `first` to before `last`, as pyarrow.RecordBatch, each with its first row's number.

        Args:
            schema: wanted pyarrow.Schema. A file with types of its own may return those, and
                leaves out columns that it lacks.
        """
        ...


def may_grow(name: str, kind: type[RowFile]) -> bool:
    """True if more may be appended to a file of this name."""
    return kind.grows and compression_of(name) is None


def compression_of(name: str) -> str | None:
    """pyarrow's name of a file's compression, by its suffix; None: there is none."""
    return next((c for suffix, c in COMPRESSIONS.items() if name.endswith(suffix)), None)


def pieces(starts: Sequence[int], first: int, last: int) -> Iterator[tuple[int, int, int]]:
    """Slices of consecutive pieces that hold the rows `first` to before `last`.

    Args:
        starts: first row of each piece, then the total number of rows.
    Yields:
        (piece, first row in it, rows).
    """
    index = bisect_right(starts, first) - 1
    while first < last:
        upto = min(last, starts[index + 1])
        if first < upto:
            yield index, first - starts[index], upto - first
            first = upto
        index += 1
