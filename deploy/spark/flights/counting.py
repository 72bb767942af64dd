"""Counts of flights and delays by carrier and month, stored by partition and offset."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from flights.notes import TAKES, WORKS, Notebook


class Counting:
    """`coordinator.sources.group.Work` with one JSON file for each partition and offset.

    A result is written, synced and then renamed, so that a file of that name is always complete.
    The process writes its pid to a file named by its client id, and notes when it works on which
    partition.
    """

    def __init__(self, directory: str, client_id: str) -> None:
        self._directory = Path(directory)
        self._counts: dict[int, Counter[tuple[str, int, str]]] = {}
        pids = self._directory / "pids"
        pids.mkdir(parents=True, exist_ok=True)
        (pids / client_id).write_text(str(os.getpid()))
        self._notebook = Notebook(notes_folder(self._directory), client_id)

    def resume(self, partition: int, offset: int) -> None:
        self._notebook.note(TAKES, [partition])
        self._counts[partition] = load(self._directory, partition, offset)

    def add(self, partition: int, batch: pa.RecordBatch) -> None:
        counts = self._counts[partition]
        delayed = pc.fill_null(pc.greater(batch["dep_delay"], 0), False)
        rows = zip(
            batch["carrier"].to_pylist(),
            batch["month"].to_pylist(),
            delayed.to_pylist(),
            strict=True,
        )
        for carrier, month, late in rows:
            counts[(carrier, month, "flights")] += 1
            counts[(carrier, month, "delayed")] += late

    def store(self, partition: int, offset: int) -> None:
        rows = [[*key, value] for key, value in sorted(self._counts[partition].items())]
        path = result_path(self._directory, partition, offset)
        temporary = path.with_suffix(f".{os.getpid()}")
        with temporary.open("w") as file:
            json.dump(rows, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
        self._notebook.note(WORKS, [partition])


def notes_folder(results: Path) -> Path:
    """Folder of the workers' notes, in that of their results."""
    return results / "notes"


def result_path(directory: Path, partition: int, offset: int) -> Path:
    """Path of the result of a partition up to an offset."""
    return directory / f"{partition:05}-{offset:08}.json"


def load(directory: Path, partition: int, offset: int) -> Counter[tuple[str, int, str]]:
    """Load the result of a partition at a committed offset; empty at 0."""
    if offset == 0:
        return Counter()
    rows = json.loads(result_path(directory, partition, offset).read_text())
    return Counter({(carrier, month, what): n for carrier, month, what, n in rows})


def merge(directory: Path, committed: dict[int, int]) -> dict[tuple[str, int], tuple[int, int]]:
    """Merge the results of all partitions at their committed offsets."""
    total: Counter[tuple[str, int, str]] = Counter()
    for partition, offset in committed.items():
        total.update(load(directory, partition, offset))
    keys = {(carrier, month) for carrier, month, _ in total}
    return {(c, m): (total[(c, m, "flights")], total[(c, m, "delayed")]) for c, m in keys}
