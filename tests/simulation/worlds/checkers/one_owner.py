"""No partition has two owners in one generation, and no generation is handed out twice."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.worlds.checkers.history import Line, of


def check(history: list[Line], dump: list[Line]) -> Iterator[str]:
    owners: dict[tuple[str, int, str], str] = {}
    shares: dict[tuple[str, int, str], list[str]] = {}
    for line in of(history, "assigned"):
        group, generation, member = line["group"], line["generation"], line["member"]
        before = shares.setdefault((group, generation, member), line["partitions"])
        if before != line["partitions"]:
            yield (
                f"{group}, generation {generation}: {member} was given {before}, "
                f"and then {line['partitions']}"
            )
        for partition in line["partitions"]:
            owner = owners.setdefault((group, generation, partition), member)
            if owner != member:
                yield (
                    f"{group}, generation {generation}: {partition} belongs to {owner} "
                    f"and to {member}"
                )
    leaders: dict[tuple[str, int], str] = {}
    for line in of(history, "joined"):
        leader = leaders.setdefault((line["group"], line["generation"]), line["leader"])
        if leader != line["leader"]:
            yield (
                f"{line['group']}: generation {line['generation']} was handed out twice, led by "
                f"{leader} and by {line['leader']}"
            )
