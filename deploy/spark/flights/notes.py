"""Workers' notes of their own work: which partition, and when.

Every process appends to a file of its own, one line for each note, so that SIGKILL loses none.
Times are `time.monotonic`, which all processes of a machine share.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

TAKES, WORKS, STAGED, REFUSED = "takes", "works", "staged", "refused"
"""A worker begins a partition that it was assigned; it begins or has done a piece of work on it.
A query has written the rows of a batch, and not decided yet that they count; they do not count."""


@dataclass(frozen=True, slots=True)
class Note:
    """`at_s`: seconds. `kind`: `TAKES`, `WORKS`, `STAGED` or `REFUSED`."""

    at_s: float
    member: str
    kind: str
    partition: int


class Notebook:
    """The notes of one process.

    Args:
        folder: of the notes of all workers. member: client id of this one.
    """

    def __init__(self, folder: Path, member: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._member = member
        # Line-buffered: a note is with the operating system before the work goes on.
        self._file = (folder / f"{member}-{os.getpid()}.jsonl").open("a", buffering=1)

    def note(self, kind: str, partitions: Iterable[int], at_s: float | None = None) -> None:
        """Write a note; `at_s`: if it is not of now."""
        at_s = time.monotonic() if at_s is None else at_s
        line = [at_s, self._member, kind, sorted(partitions)]
        self._file.write(json.dumps(line) + "\n")


def read_notes(folder: Path, since_s: float) -> list[Note]:
    """Notes of all workers in the order of their times, which count from `since_s`."""
    lines = [
        json.loads(line)
        for path in folder.glob("*.jsonl")
        for line in path.read_text().splitlines(keepends=True)
        if line.endswith("\n")  # A kill may cut the last one.
    ]
    notes = [
        Note(at_s - since_s, member, kind, partition)
        for at_s, member, kind, partitions in lines
        for partition in partitions
    ]
    return sorted(notes, key=lambda note: note.at_s)
