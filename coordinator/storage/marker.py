"""The marker of a used data folder: the store's number, and the totals that were acknowledged.

A database alone cannot tell that it was emptied, that its write-ahead log is missing or belongs to
another database, or that it is an older copy: SQLite opens all of these. The marker is
a file of one line beside it. It is written once the tables are durable and before anything is
acknowledged, and its two totals are written over in place after every commit and before its
answers. That write is not synced: a killed process leaves it with the operating system, and
after a power failure the marker may be behind the database, never ahead of it. So a database
that is behind its marker has lost something acknowledged.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

import google_crc32c

from coordinator.storage.log import CannotOpen, Damaged

MARKER = "coordinator.store"
READS = 3
"""Attempts to read a marker whose checksum is wrong: its coordinator may be writing it."""

_LINE = re.compile(
    rb"(coordinator store 1 id=([0-9a-f]{16}) shards=(\d{10}) share=(\d{10})/(\d{10})"
    rb" entries=(\d{20}) epochs=(\d{20})) crc=([0-9a-f]{8})\n"
)


@dataclass(frozen=True, slots=True)
class Marker:
    """Contents of a marker.

    `store` is a random number that the database has too, `share` is (K, N) for the K-th of N
    shares of the `shards`. `entries` is the sum of all shards' last sequence numbers and `epochs`
    that of their epochs, as of the last commit that was acknowledged.
    """

    store: int
    shards: int
    share: tuple[int, int] = (1, 1)
    entries: int = 0
    epochs: int = 0

    def owned_shards(self) -> set[int]:
        return shards_of_share(self.share, self.shards)


def shards_of_share(share: tuple[int, int], shards: int) -> set[int]:
    """The shards that the K-th of N nodes leads."""
    number, shares = share
    return set(range(number - 1, shards, shares))


def share_in_words(share: tuple[int, int]) -> str:
    """(1, 2) as "share 1 of 2"."""
    number, shares = share
    return "all shards" if shares == 1 else f"share {number} of {shares}"


def read_marker(folder: Path) -> Marker | None:
    """Read a folder's marker; None: it has none.

    Raises:
        CannotOpen: the file cannot be read.
        Damaged: the file is not what was written.
    """
    path = folder / MARKER
    for _ in range(READS):
        try:
            marker = _decode(path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise CannotOpen(f"{path} cannot be read: {error.strerror}") from error
        if marker is not None:
            return marker
    raise Damaged(f"{path} is not what was written")


def _encode(marker: Marker) -> bytes:
    number, shares = marker.share
    line = (
        f"coordinator store 1 id={marker.store:016x} shards={marker.shards:010}"
        f" share={number:010}/{shares:010} entries={marker.entries:020} epochs={marker.epochs:020}"
    ).encode()
    return b"%s crc=%08x\n" % (line, google_crc32c.value(line))


def _decode(data: bytes) -> Marker | None:
    match = _LINE.fullmatch(data)
    if match is None or google_crc32c.value(match[1]) != int(match[8], 16):
        return None
    shards, number, shares, entries, epochs = (int(match[part]) for part in range(3, 8))
    return Marker(int(match[2], 16), shards, (number, shares), entries, epochs)


def create_marker(folder: Path, marker: Marker) -> None:
    """Write a marker durably and atomically.

    Raises:
        OSError: it cannot be written.
    """
    new = folder / f"{MARKER}.new"
    with new.open("wb") as file:
        file.write(_encode(marker))
        file.flush()
        os.fsync(file.fileno())
    new.replace(folder / MARKER)
    sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that the files created in it are durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class MarkerFile:
    """The marker of the folder that this process serves from, open for its totals.

    Raises:
        OSError: it cannot be opened.
    """

    def __init__(self, folder: Path, marker: Marker) -> None:
        self._marker = marker
        self._file = os.open(folder / MARKER, os.O_WRONLY | os.O_CLOEXEC)

    def acknowledge(self, entries: int, epochs: int) -> None:
        """Note the totals of a commit that is durable."""
        if (entries, epochs) == (self._marker.entries, self._marker.epochs):
            return
        self._marker = replace(self._marker, entries=entries, epochs=epochs)
        # The commit is durable whether or not this succeeds: a marker that is behind allows it.
        with contextlib.suppress(OSError):
            os.pwrite(self._file, _encode(self._marker), 0)

    def close(self) -> None:
        os.close(self._file)
