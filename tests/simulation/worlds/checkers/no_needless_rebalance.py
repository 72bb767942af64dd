"""Members of a group in which nothing happens are never told to join again."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.worlds.checkers.history import Line, of

HARMLESS = (
    "NONE",
    "none",
    "NOT_COORDINATOR",
    "COORDINATOR_NOT_AVAILABLE",
    "COORDINATOR_LOAD_IN_PROGRESS",
)


def check(history: list[Line], dump: list[Line]) -> Iterator[str]:
    quiet = {line["group"]: line["since"] for line in history if line["op"] == "quiet"}
    for line in of(history, "beaten", "committed"):
        if line["began"] < quiet.get(line["group"], float("inf")):
            continue
        if line["answer"] not in HARMLESS:
            yield f"{line['group']} was at rest, and {line['op']} was answered {line['answer']}"
