"""Epochs only grow in a shard's log, and sequence numbers and offsets have no gaps."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.worlds.checkers.history import Line


def check(history: list[Line], dump: list[Line]) -> Iterator[str]:
    last: dict[int, Line] = {}
    for line in dump:
        if "sequence" not in line:
            continue  # A record of a snapshot.
        before = last.get(line["shard"])
        last[line["shard"]] = line
        if before is None:
            continue
        entry = f"shard {line['shard']}, entry {line['sequence']}"
        if line["epoch"] < before["epoch"]:
            yield f"{entry}: epoch {line['epoch']} comes after {before['epoch']}"
        if line["sequence"] - before["sequence"] not in (0, 1):
            yield f"{entry} comes after entry {before['sequence']}"
        if line["log_offset"] != before["log_offset"] + 1:
            yield f"{entry}: offset {line['log_offset']} comes after {before['log_offset']}"
