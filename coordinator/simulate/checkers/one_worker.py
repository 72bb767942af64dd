"""No partition of a session group may be worked on by two members at one time, by the clocks that
let them, and tokens of accepted commits never fall."""

from __future__ import annotations

from collections.abc import Iterator

from coordinator.simulate.checkers.history import Line, of


def check(history: list[Line], dump: list[Line]) -> Iterator[str]:
    for line in history:
        if line["op"] == "worked" and len(line["members"]) > 1:
            yield (
                f"{line['group']}, at {line['at']:.3f}: {' and '.join(line['members'])} "
                f"may work on {line['partition']}"
            )
    newest: dict[tuple[str, str], int] = {}
    for line in of(history, "kept"):
        key = line["group"], line["partition"]
        before = newest.get(key, 0)
        if line["token"] < before:
            yield f"{key}: a commit under {line['token']} was accepted after one under {before}"
        newest[key] = max(line["token"], before)
