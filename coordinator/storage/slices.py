"""Snapshots are written in slices, with appends in between."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

SLICE_BYTES = 256 * 1024
"""About; a single record may be longer."""


def slices(records: Iterable[bytes]) -> Iterator[tuple[bytes, ...]]:
    """The records, as many at a time as make a slice."""
    part: list[bytes] = []
    size = 0
    for record in records:
        part.append(record)
        size += len(record)
        if size >= SLICE_BYTES:
            yield tuple(part)
            part, size = [], 0
    if part:
        yield tuple(part)
