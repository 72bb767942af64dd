"""Interface of file formats."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar


class RowFile(ABC):
    """A file as it was when its size was `size`. Frozen once made, so any thread may read.

    Args:
        earlier: index of the same file when it was shorter, to be extended by formats that grow.
    Raises:
        ValueError, OSError, pyarrow.ArrowException: it is not of this format, or damaged.
    """

    suffixes: ClassVar[tuple[str, ...]]
    grows: ClassVar[bool]
    """True if more may be appended to a file that was read."""
    rows: int
    size: int
    """Bytes that the rows take up; an incomplete row may follow them."""
    schema: Any
    """pyarrow.Schema; None if there are no rows to infer it from."""

    @abstractmethod
    def __init__(self, path: Path, size: int, earlier: RowFile | None) -> None: ...

    @abstractmethod
    def read(self, first: int, last: int, schema: Any) -> Iterator[Any]:
        """Rows `first` to before `last`, as pyarrow.RecordBatch.

        Args:
            schema: wanted pyarrow.Schema. A file with types of its own may return those.
        """
        ...


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
