"""Positions in Parquet files, kept by a process for the next small batch.

A row group can only be read from its beginning. A query that takes 40 rows at a time from a row
group of a million would decode what is in front of them again for every batch, so a reader that has
stopped within a row group stays open, and whoever goes on at that row in this process takes it.

The memory of what is kept is bounded: by an estimate of what open readers hold, which is the page
and the dictionary of each column. A reader that finds no room is closed, unless others have waited
long for nobody: with more partitions than there is room for, some then keep their positions,
where evicting the oldest would help none.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

KEPT_BYTES = 112 << 20
WAITING_READS = 64
"""Number of other positions that are asked for before one that nobody asked for gives way."""


@dataclass(slots=True)
class _Kept:
    reader: Any
    size_bytes: int
    since: int


class ParquetPositions:
    """Open readers by where they stand. Any thread may call; a reader is given to one only."""

    def __init__(self, most_bytes: int = KEPT_BYTES, waiting_reads: int = WAITING_READS) -> None:
        self._most_bytes, self._waiting_reads = most_bytes, waiting_reads
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()  # The oldest first.
        self._bytes = 0
        self._reads = 0
        self._lock = threading.Lock()

    def take(self, position: Hashable) -> Any | None:
        """The reader that stands there; None: there is none."""
        with self._lock:
            self._reads += 1
            kept = self._kept.pop(position, None)
            if kept is None:
                return None
            self._bytes -= kept.size_bytes
            return kept.reader

    def keep(self, position: Hashable, reader: Any, size_bytes: int) -> None:
        """Keep a reader where it stands, if there is room."""
        with self._lock:
            while self._kept and self._bytes + size_bytes > self._most_bytes:
                place_of_oldest, oldest = next(iter(self._kept.items()))
                if self._reads - oldest.since < self._waiting_reads:
                    return
                del self._kept[place_of_oldest]
                self._bytes -= oldest.size_bytes
            if size_bytes <= self._most_bytes and position not in self._kept:
                self._kept[position] = _Kept(reader, size_bytes, self._reads)
                self._bytes += size_bytes
