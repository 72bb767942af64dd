"""A commit that a worker was told is stored counts for the time in which it had the partition.

In no generation between that in which the partition was handed to the worker and that in which the
commit was accepted was it another member's (decision 0017).
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.worlds.checkers.history import Line, of


def check(history: list[Line], dump: list[Line]) -> Iterator[str]:
    owners: dict[tuple[str, str], dict[int, str]] = {}
    for line in of(history, "assigned"):
        for partition in line["partitions"]:
            owned = owners.setdefault((line["group"], partition), {})
            owned[line["generation"]] = line["member"]
    accepted: dict[tuple[str, str, int], Line] = {}
    for line in of(history, "committed"):
        if line["answer"] == "NONE":
            accepted[line["group"], line["partition"], line["offset"]] = line
    for line in history:
        if line["op"] != "handled":
            continue
        key = (line["group"], line["partition"], line["offset"])
        commit = accepted.get(key)
        if commit is None:
            yield f"{key}: a worker was told that it is stored, and nobody has said so"
            continue
        for generation, owner in owners.get(key[:2], {}).items():
            if line["since"] < generation <= commit["generation"] and owner != commit["member"]:
                yield (
                    f"{key}: handed out in generation {line['since']} and committed by "
                    f"{commit['member']} in {commit['generation']}; in {generation} "
                    f"it was {owner}'s"
                )
