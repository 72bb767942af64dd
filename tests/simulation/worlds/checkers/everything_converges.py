"""A while after everything was healed each group is at rest: all of its members are in the same
generation, each partition is with exactly one of them, the coordinator knows them and nobody else,
and of a cluster one node decides."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.worlds.checkers.history import Line


def check(history: list[Line], dump: list[Line]) -> Iterator[str]:
    for line in history:
        if line["op"] == "decided" and len(line["deciding"]) != 1:
            yield f"of the nodes {line['deciding']} decide"
        if line["op"] != "rested":
            continue
        absent = sorted(name for name, share in line["shares"].items() if share is None)
        known = [share for share in line["shares"].values() if share is not None]
        generations = sorted({generation for generation, _ in known})
        held = sorted(partition for _, partitions in known for partition in partitions)
        if absent:
            yield f"{line['group']}: {', '.join(absent)} did not come to rest"
        elif len(generations) > 1:
            yield f"{line['group']}: members are in generations {generations}"
        elif held != line["expected"]:
            yield f"{line['group']}: held are {held}, and there are {line['expected']}"
        elif set(line["seats"].values()) != {1}:
            yield f"{line['group']}: the coordinator knows members so many times: {line['seats']}"
