"""Who joins after a generation was heard of hears of that one or of a later one."""

from __future__ import annotations

from collections.abc import Iterator

from tests.checkers.history import Line, of


def check(history: list[Line], dump: list[Line]) -> Iterator[str]:
    heard: dict[str, list[tuple[float, int]]] = {}
    for line in of(history, "joined", "assigned"):
        known = heard.setdefault(line["group"], [])
        # The highest that had been answered before this call was made.
        highest = max((g for ended, g in known if ended < line["began"]), default=0)
        if line["op"] == "joined" and line["generation"] < highest:
            yield f"{line['group']}: generation {line['generation']} came after {highest}"
        if not known or line["generation"] > known[-1][1]:
            known.append((line["ended"], line["generation"]))
