"""A shard that is not loaded, or has failed since, is given no input."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.worlds.checkers.history import Line


def check(history: list[Line], dump: list[Line]) -> Iterator[str]:
    for line in history:
        if line["op"] == "stepped" and not line["loaded"]:
            yield f"{line['node']} has stepped a shard that is not loaded"
