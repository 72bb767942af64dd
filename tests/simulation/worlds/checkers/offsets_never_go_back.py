"""An offset that is read is at least the last acknowledged one, and was written by a commit.

The workload writes each partition's offsets in ascending order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator

from tests.simulation.worlds.checkers.history import Line, of


def check(history: list[Line], dump: list[Line]) -> Iterator[str]:
    tried: dict[tuple[str, str], set[int]] = defaultdict(lambda: {-1})
    # The highest offset that was known to be stored, by the time it was known.
    known: dict[tuple[str, str], tuple[list[float], list[int]]] = defaultdict(lambda: ([], []))
    for line in of(history, "committed"):
        tried[line["group"], line["partition"]].add(line["offset"])
    for line in of(history, "committed", "fetched"):
        key = (line["group"], line["partition"])
        times, offsets = known[key]
        if line["op"] == "fetched":
            index = bisect_left(times, line["began"])
            least = offsets[index - 1] if index else -1
            if line["offset"] < least:
                yield f"{key}: {line['offset']} was read after {least} had been stored"
            if line["offset"] not in tried[key]:
                yield f"{key}: {line['offset']} was read, and nobody has written it"
        elif line["answer"] != "NONE":
            continue
        times.append(line["ended"])
        offsets.append(max(line["offset"], offsets[-1] if offsets else -1))
