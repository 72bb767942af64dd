"""No partition of a session group may be worked on by two members at one time, by the clocks that
let them, and tokens of accepted commits never fall.

Of a commit the history has when it was asked for and when its answer was heard. It was accepted in
between, so one counts as later than another if it was asked for after the other's answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter

from tests.simulation.worlds.checkers.history import Line, of


def check(history: list[Line], dump: list[Line]) -> Iterator[str]:
    for line in history:
        if line["op"] == "worked" and len(line["members"]) > 1:
            yield (
                f"{line['group']}, at {line['at']:.3f}: {' and '.join(line['members'])} "
                f"may work on {line['partition']}"
            )
    commits: dict[tuple[str, str], list[Line]] = {}
    for line in of(history, "kept"):
        commits.setdefault((line["group"], line["partition"]), []).append(line)
    for key, lines in commits.items():
        answered = sorted(lines, key=itemgetter("ended"))
        newest, known = 0, 0
        for line in sorted(lines, key=itemgetter("began")):
            while known < len(answered) and answered[known]["ended"] <= line["began"]:
                newest, known = max(newest, answered[known]["token"]), known + 1
            if line["token"] < newest:
                yield f"{key}: a commit under {line['token']} was accepted after one under {newest}"
