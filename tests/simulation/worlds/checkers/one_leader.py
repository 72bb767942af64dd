"""An earlier leader of a group never answers after a later one has: epochs never fall.

Heartbeats are the exception. They are answered from memory, so after a planned move the earlier
leader may answer them until it has read of the move, as long as its session lasts in the store.
A member then hears of a rebalance later; nothing durable depends on it.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.worlds.checkers.history import Line

FROM_MEMORY = frozenset({"Heartbeat", "HeartbeatBatch"})


def check(history: list[Line], dump: list[Line]) -> Iterator[str]:
    newest: dict[str, Line] = {}
    served = (line for line in history if line["op"] == "served")
    for line in sorted(served, key=lambda line: line["at"]):
        before = newest.setdefault(line["group"], line)
        if line["epoch"] < before["epoch"]:
            if line["method"] in FROM_MEMORY and line["in_session"]:
                continue
            yield (
                f"{line['group']}: {line['node']} answered {line['method']} in epoch "
                f"{line['epoch']}, after {before['node']} in epoch {before['epoch']}"
            )
        elif line["epoch"] == before["epoch"] and line["node"] != before["node"]:
            yield (
                f"{line['group']}: {before['node']} and {line['node']} answer in one epoch, "
                f"{line['epoch']}"
            )
        else:
            newest[line["group"]] = line
