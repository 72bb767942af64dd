"""A join that begins after a generation was answered is answered with that or a later one.

Static members that have restarted are the exception: they are let in without a rebalance, with the
number that is durable (decision 0001).
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.worlds.checkers.history import Line, of


def check(history: list[Line], dump: list[Line]) -> Iterator[str]:
    heard: dict[str, list[tuple[float, int]]] = {}
    for line in of(history, "joined", "assigned"):
        known = heard.setdefault(line["group"], [])
        # The highest that had been answered before this call was made.
        highest = max((g for ended, g in known if ended < line["began"]), default=0)
        is_later = line["generation"] >= highest or line.get("restarted", False)
        if line["op"] == "joined" and not is_later:
            yield f"{line['group']}: generation {line['generation']} came after {highest}"
        if not known or line["generation"] > known[-1][1]:
            known.append((line["ended"], line["generation"]))
